// Codes held against weights as lib/checker.h defines it, one element after the other.
#ifndef FQ_TESTS_KERNELS_REFERENCE_COMPARE_H
#define FQ_TESTS_KERNELS_REFERENCE_COMPARE_H

#include "lib/checker.h"
#include "reference.h"

#include <stdlib.h>

// In the order of the matrix, so that the first is the first.
static inline void reference_find(fq_finding *finding, bool found, uint64_t row, uint64_t col) {
    if (found && finding->n++ == 0)
        finding->first = (fq_place){row, col};
}

static inline float reference_bound(float magnitude, float scale, float slack) {
    if (scale == 0.0f)
        return slack * magnitude;
    const float quotient = magnitude / scale;
    int exponent = -6;
    if (quotient >= 0x1p8f) // infinity too
        exponent = 8;
    else if (quotient >= 0x1p-6f)
        exponent = ilogbf(quotient);
    return ldexpf(1.0f, exponent - 4) * scale + slack * magnitude;
}

static inline void reference_compare_element(const fq_compare_job *job, size_t row, size_t col) {
    const size_t i = row * job->cols + col;
    const size_t block = reference_block(job->block, job->cols, row, col);
    const float weight = reference_load(job->source_dtype, job->source, i);
    const float scale = job->scales[block];
    const uint8_t code = job->codes[i];
    const bool is_nan = (code & 0x7F) == 0x7F, is_zero = (code & 0x7F) == 0;
    fq_compare_counts *counts = job->counts;
    fq_block_errors *errors = &job->blocks[block];
    reference_find(&counts->nonfinite, !isfinite(weight), row, col);
    if (!isfinite(weight))
        return;
    float stored = is_nan ? 0.0f : fq_f32_of_e4m3(code) * scale;
    if (isinf(stored))
        stored = copysignf(FLT_MAX, stored);
    const float error = stored - weight;
    const bool saturates = fabsf(weight / scale) > 464.0f;
    const bool differs = scale > 0.0f && code != fq_e4m3_of_f32_sat(weight / scale);
    const bool is_far = fabsf(error) > reference_bound(fabsf(weight), scale, job->slack);
    counts->saturated += saturates;
    counts->flushed_to_zero += weight != 0.0f && is_zero;
    reference_find(&counts->nan_codes, is_nan, row, col);
    reference_find(&counts->codes_differ, differs, row, col);
    reference_find(&counts->out_of_bound, (differs || saturates) && is_far, row, col);
    errors->amax = fmaxf(errors->amax, fabsf(weight));
    errors->max_abs = fmaxf(errors->max_abs, fabsf(error));
}

// Σ of what is asked for over one block: lanes, then halves.
static inline double reference_sum(const fq_compare_job *job, size_t row0, size_t col0,
                                   bool of_errors) {
    double lanes[FQ_COMPARE_LANES] = {0};
    const float scale = job->scales[reference_block(job->block, job->cols, row0, col0)];
    for (size_t r = row0; r < job->rows && r < row0 + job->block.rows; r++) {
        for (size_t c = col0; c < job->cols && c < col0 + job->block.cols; c++) {
            const uint8_t code = job->codes[r * job->cols + c];
            const float w = reference_load(job->source_dtype, job->source, r * job->cols + c);
            float stored = (code & 0x7F) == 0x7F ? 0.0f : fq_f32_of_e4m3(code) * scale;
            if (isinf(stored))
                stored = copysignf(FLT_MAX, stored);
            const double x = (double)(of_errors ? stored - w : w);
            if (isfinite(w))
                lanes[(c - col0) % FQ_COMPARE_LANES] += x * x;
        }
    }
    for (int n = FQ_COMPARE_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lanes[i] += lanes[i + n];
    return lanes[0];
}

static inline void reference_compare(const fq_compare_job *job) {
    const size_t grid_cols = fq_ceil_div(job->cols, job->block.cols);
    const size_t n_blocks = fq_ceil_div(job->rows, job->block.rows) * grid_cols;
    *job->counts = (fq_compare_counts){0};
    memset(job->blocks, 0, n_blocks * sizeof *job->blocks);
    for (size_t row = 0; row < job->rows; row++)
        for (size_t col = 0; col < job->cols; col++)
            reference_compare_element(job, row, col);
    for (size_t j = 0; j < n_blocks; j++) {
        const size_t row0 = j / grid_cols * job->block.rows, col0 = j % grid_cols * job->block.cols;
        job->blocks[j].error2 = reference_sum(job, row0, col0, true);
        job->blocks[j].weight2 = reference_sum(job, row0, col0, false);
    }
}

#endif
