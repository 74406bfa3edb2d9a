// A checkpoint made in memory, tensor by tensor: for tests of planning and running.
#ifndef FQ_TESTS_MEMORY_CHECKPOINT_H
#define FQ_TESTS_MEMORY_CHECKPOINT_H

#include "lib/tensor.h"
#include "tests/memory_source.h"

#include <stdlib.h>

enum { MEMORY_MAX_SHARDS = 20, MEMORY_MAX_TENSORS = 64 };

typedef struct memory_checkpoint {
    fq_checkpoint checkpoint;
    fq_arena arena;
    fq_shard shards[MEMORY_MAX_SHARDS];
    fq_tensor tensors[MEMORY_MAX_SHARDS][MEMORY_MAX_TENSORS];
    memory_source sources[MEMORY_MAX_SHARDS];
    unsigned char *bytes[MEMORY_MAX_SHARDS];
} memory_checkpoint;

// Appends a tensor of bytes 0 to a shard; shards are made in order, from 0. Returns where its bytes
// are, valid until the next call for that shard. The name is borrowed.
static inline void *memory_checkpoint_add(memory_checkpoint *memory, uint32_t shard,
                                          const char *name, fq_dtype dtype, uint32_t rank,
                                          const uint64_t *shape) {
    fq_shard *s = &memory->shards[shard];
    s->tensors = memory->tensors[shard];
    fq_tensor *tensor = &s->tensors[s->n_tensors++];
    uint64_t *copy = fq_arena_array(&memory->arena, rank, sizeof *copy);
    if (rank > 0)
        memcpy(copy, shape, rank * sizeof *copy);
    *tensor = (fq_tensor){.name = name,
                          .dtype = dtype,
                          .rank = rank,
                          .shape = copy,
                          .offset = s->data_nbytes,
                          .shard = shard};
    fq_tensor_nbytes(&tensor->nbytes, dtype, copy, rank);
    memory->bytes[shard] = realloc(memory->bytes[shard], s->data_nbytes + tensor->nbytes + 1);
    unsigned char *bytes = memory->bytes[shard] + s->data_nbytes;
    memset(bytes, 0, tensor->nbytes);
    s->data_nbytes += tensor->nbytes;
    return bytes;
}

static inline void *memory_checkpoint_add_2d(memory_checkpoint *memory, uint32_t shard,
                                             const char *name, fq_dtype dtype, uint64_t rows,
                                             uint64_t cols) {
    const uint64_t shape[] = {rows, cols};
    return memory_checkpoint_add(memory, shard, name, dtype, 2, shape);
}

// Ends the making: names ("a.safetensors" is the first), sources and the index of names.
static inline void memory_checkpoint_finish(memory_checkpoint *memory, size_t n_shards) {
    for (size_t s = 0; s < n_shards; s++) {
        fq_shard *shard = &memory->shards[s];
        shard->name = fq_arena_printf(&memory->arena, "%c.safetensors", (int)('a' + s));
        memory->sources[s] = memory_source_of(shard->name, memory->bytes[s], shard->data_nbytes);
        shard->source = &memory->sources[s].source;
    }
    memory->checkpoint = (fq_checkpoint){
        .path = "model", .is_folder = true, .shards = memory->shards, .n_shards = n_shards};
    const fq_tensor *duplicate;
    fq_error err = {0};
    fq_checkpoint_index(&memory->checkpoint, &memory->arena, &duplicate, &err);
}

static inline void memory_checkpoint_free(memory_checkpoint *memory) {
    for (size_t s = 0; s < MEMORY_MAX_SHARDS; s++)
        free(memory->bytes[s]);
    fq_arena_free(&memory->arena);
}

#endif
