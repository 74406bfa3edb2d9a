// The block of a matrix that shares one scale.
#ifndef FQ_BLOCK_H
#define FQ_BLOCK_H

#include <stdint.h>

// 128×128 for weights, 1×128 for activations, others when read.
typedef struct fq_block {
    uint64_t rows;
    uint64_t cols;
} fq_block;

static inline uint64_t fq_ceil_div(uint64_t n, uint64_t d) { return n / d + (n % d != 0); }

#endif
