// The arena: a list of chunks, each handed out from front to back.
#include "arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fq_arena_chunk {
    struct fq_arena_chunk *next;
    size_t used, capacity;
    _Alignas(max_align_t) unsigned char bytes[];
};

enum { CHUNK_NBYTES = 64 * 1024, ALIGNMENT = _Alignof(max_align_t) };

static struct fq_arena_chunk *add_chunk(fq_arena *arena, size_t nbytes) {
    const size_t capacity = nbytes > CHUNK_NBYTES ? nbytes : CHUNK_NBYTES;
    if (capacity > SIZE_MAX - sizeof(struct fq_arena_chunk))
        return NULL;
    struct fq_arena_chunk *chunk = calloc(1, sizeof *chunk + capacity);
    if (!chunk)
        return NULL;
    chunk->capacity = capacity;
    // A chunk of its own for a large request leaves the current one in front, to be used up.
    if (arena->chunks && nbytes > CHUNK_NBYTES / 4) {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
    } else {
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    return chunk;
}

void *fq_arena_alloc(fq_arena *arena, size_t nbytes) {
    if (nbytes > SIZE_MAX - ALIGNMENT)
        return NULL;
    const size_t rounded = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct fq_arena_chunk *chunk = arena->chunks;
    if (!chunk || rounded > chunk->capacity - chunk->used) {
        chunk = add_chunk(arena, rounded);
        if (!chunk)
            return NULL;
    }
    void *memory = chunk->bytes + chunk->used;
    chunk->used += rounded;
    return memory;
}

void *fq_arena_array(fq_arena *arena, size_t n, size_t item_size) {
    if (item_size != 0 && n > SIZE_MAX / item_size)
        return NULL;
    return fq_arena_alloc(arena, n * item_size);
}

char *fq_arena_strndup(fq_arena *arena, const char *text, size_t n) {
    if (n == SIZE_MAX)
        return NULL;
    char *copy = fq_arena_alloc(arena, n + 1);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

char *fq_arena_printf(fq_arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : fq_arena_alloc(arena, (size_t)n + 1);
    if (!text)
        return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

void fq_arena_free(fq_arena *arena) {
    struct fq_arena_chunk *chunk = arena->chunks;
    while (chunk) {
        struct fq_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    arena->chunks = NULL;
}
