// Memory that is given back all at once: names, shapes and tables that live as long as their owner.
#ifndef FQ_ARENA_H
#define FQ_ARENA_H

#include "error.h"

#include <stddef.h>

// Zeroed is empty. Not safe for use by two threads at once.
typedef struct fq_arena {
    struct fq_arena_chunk *chunks;
} fq_arena;

// nbytes zeroed bytes, aligned for any type; NULL when out of memory. Lives until fq_arena_free.
void *fq_arena_alloc(fq_arena *arena, size_t nbytes);

// Like fq_arena_alloc for n items of item_size bytes; NULL too when the product overflows.
void *fq_arena_array(fq_arena *arena, size_t n, size_t item_size);

// A copy of the first n bytes of text, NUL-terminated; NULL when out of memory.
char *fq_arena_strndup(fq_arena *arena, const char *text, size_t n);

// A formatted string; NULL when out of memory.
char *fq_arena_printf(fq_arena *arena, const char *format, ...) FQ_PRINTF(2, 3);

// Frees everything the arena gave out and makes it empty again.
void fq_arena_free(fq_arena *arena);

#endif
