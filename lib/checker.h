// What a device offers to verify: stored codes held against the weights that they stand for.
#ifndef FQ_CHECKER_H
#define FQ_CHECKER_H

#include "backend.h"

// A place in a matrix, or in its grid of blocks.
typedef struct fq_place {
    uint64_t row, col;
} fq_place;

// What was met so often, and where first in row-major order.
typedef struct fq_finding {
    uint64_t n;
    fq_place first; // void where n is 0
} fq_finding;

// One block, w its weights and ŵ what is stored for them:
//     ŵ = fl32(code × scale), at most the greatest finite FP32 value; 0 for a NaN code
//     d = fl32(ŵ − w)
// Weights that are NaN or infinite are left out of everything but compare_counts.nonfinite.
//
// The sums are the same bits on every device: FQ_COMPARE_LANES sums in FP64, one of the columns
// whose number within the block is the lane's modulo FQ_COMPARE_LANES. Each goes through the rows
// from the first to the last, through a row from left to right, and adds the product of two FP32
// values, which is exact in FP64, with one rounding. The lanes are then added in halves: lane i and
// lane i + 8, then i and i + 4, i + 2, i + 1.
typedef struct fq_block_errors {
    double error2;  // Σ d²
    double weight2; // Σ w²
    float amax;     // max |w|
    float max_abs;  // max |d|
} fq_block_errors;

enum { FQ_COMPARE_LANES = 16 };

// The codes of a job. A code is expected to be E4M3(w / scale), as when quantizing; under a scale
// of 0 nothing is expected.
typedef struct fq_compare_counts {
    uint64_t saturated;       // elements with |w / scale| over 464
    uint64_t flushed_to_zero; // non-zero elements whose code is ±0
    fq_finding nan_codes;     // 0x7F and 0xFF
    fq_finding codes_differ;  // from what is expected
    // Elements whose code is not the expected one, or that saturate, with |d| over half an E4M3
    // step at |w| under the scale, plus slack·|w|. In FP32, each operation rounded, E the power of
    // two in |w / scale|, 2^-6 at least and 2^8 at most:
    //     |d| > 2^-4·E·scale + slack·|w|     and  |d| > slack·|w|  under a scale of 0
    fq_finding out_of_bound;
    fq_finding nonfinite; // weights that are NaN or infinite
} fq_compare_counts;

// A matrix to check. The pointers are host memory and are left alone by the caller until wait.
typedef struct fq_compare_job {
    const uint8_t *codes;  // [rows, cols] E4M3, row-major, contiguous, 64-byte aligned
    const void *source;    // [rows, cols] of source_dtype: the weights; likewise
    fq_dtype source_dtype; // BF16, F16 or F32
    uint64_t rows, cols;   // at least 1
    fq_block block;
    const float *scales;     // [ceil(rows/block.rows), ceil(cols/block.cols)], finite, not negative
    float slack;             // share of |w| that an error may have beyond half a step
    fq_block_errors *blocks; // out: like scales
    fq_compare_counts *counts; // out: overwritten; rows and columns count from this matrix's start
} fq_compare_job;

// The checks of one backend, on devices that it opened for them. Every entry is there; every
// implementation gives the same bits for the same job, whatever the lane.
typedef struct fq_checker {
    // Starts a job in a lane, as fq_backend's quantize does: it ends with the backend's wait(lane).
    fq_status (*compare)(fq_device *device, uint32_t lane, const fq_compare_job *job,
                         fq_error *err);
} fq_checker;

#endif
