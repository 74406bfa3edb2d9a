// Growing arrays whose memory comes from an arena.
#ifndef FQ_FORMATS_GROW_H
#define FQ_FORMATS_GROW_H

#include "lib/arena.h"

#include <string.h>

// items, which holds n of *capacity, with room for one more: a copy of twice the size where it is
// full. NULL when out of memory. What is left behind lives as long as the arena, in sum no more
// than the array itself.
static inline void *fq_arena_grown(fq_arena *arena, void *items, size_t n, size_t *capacity,
                                   size_t item_size) {
    if (n < *capacity)
        return items;
    const size_t larger = n ? 2 * n : 64;
    void *copy = fq_arena_array(arena, larger, item_size);
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, items, n * item_size);
    *capacity = larger;
    return copy;
}

#endif
