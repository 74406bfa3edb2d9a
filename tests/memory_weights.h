// Random weights and what quantizing makes of them, in two checkpoints in memory.
#ifndef FQ_TESTS_MEMORY_WEIGHTS_H
#define FQ_TESTS_MEMORY_WEIGHTS_H

#include "kernels/cpu/backend.h"
#include "lib/fp8.h"
#include "lib/scale.h"
#include "tests/check.h"
#include "tests/memory_checkpoint.h"

enum { MEMORY_WEIGHTS_MAX = 129 * 9000, MEMORY_WEIGHTS_MAX_BLOCKS = 2 * 71 };

static uint64_t memory_weights_state = 1;

static inline void memory_weights_seed(uint64_t seed) { memory_weights_state = seed; }

static inline uint32_t memory_weights_random(void) {
    memory_weights_state = memory_weights_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(memory_weights_state >> 33);
}

// Adds a BF16 weight to one checkpoint, its codes and scales to the other.
static inline void memory_weights_add(memory_checkpoint *reference, memory_checkpoint *quantized,
                                      uint32_t shard, const char *name, const char *scale_name,
                                      uint64_t rows, uint64_t cols) {
    const fq_block block = {FQ_BLOCK_SIZE, FQ_BLOCK_SIZE};
    static uint8_t codes[MEMORY_WEIGHTS_MAX] __attribute__((aligned(64)));
    static uint16_t weights[MEMORY_WEIGHTS_MAX] __attribute__((aligned(64)));
    static float scales[MEMORY_WEIGHTS_MAX_BLOCKS];
    for (uint64_t i = 0; i < rows * cols; i++)
        weights[i] = (uint16_t)((memory_weights_random() & 0x8000u) |
                                ((110 + memory_weights_random() % 10) << 7) |
                                (memory_weights_random() & 0x7F));
    const fq_device_options options = {
        .n_lanes = 1, .max_elements = MEMORY_WEIGHTS_MAX, .max_blocks = MEMORY_WEIGHTS_MAX_BLOCKS};
    const fq_backend *backend = &fq_cpu_backend;
    fq_device *device;
    fq_quantize_counts counts;
    fq_error err = {0};
    CHECK(backend->open(&device, &options, &err) == FQ_OK);
    const fq_quantize_job job = {.source = weights,
                                 .source_dtype = FQ_BF16,
                                 .rows = rows,
                                 .cols = cols,
                                 .block = block,
                                 .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
                                 .codes = codes,
                                 .scales = scales,
                                 .counts = &counts};
    CHECK(backend->quantize(device, 0, &job, &err) == FQ_OK);
    backend->close(device);
    const uint64_t grid_rows = fq_ceil_div(rows, block.rows);
    const uint64_t grid_cols = fq_ceil_div(cols, block.cols);
    memcpy(memory_checkpoint_add_2d(reference, shard, name, FQ_BF16, rows, cols), weights,
           2 * rows * cols);
    memcpy(memory_checkpoint_add_2d(quantized, shard, name, FQ_F8_E4M3, rows, cols), codes,
           rows * cols);
    memcpy(memory_checkpoint_add_2d(quantized, shard, scale_name, FQ_F32, grid_rows, grid_cols),
           scales, grid_rows * grid_cols * sizeof *scales);
}

#endif
