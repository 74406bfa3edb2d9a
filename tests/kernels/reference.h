// Quantize and dequantize as the codecs of lib/fp8.h define them, one element after the other.
//
// Nothing here is clever, so that it can be read against docs/numerics.md.
#ifndef FQ_TESTS_KERNELS_REFERENCE_H
#define FQ_TESTS_KERNELS_REFERENCE_H

#include "lib/backend.h"
#include "lib/fp8.h"

#include <float.h>
#include <math.h>
#include <string.h>

// Element i of an array of BF16, F16 or F32, widened.
static inline float reference_load(fq_dtype dtype, const void *array, size_t i) {
    if (dtype == FQ_F32)
        return ((const float *)array)[i];
    const uint16_t bits = ((const uint16_t *)array)[i];
    return dtype == FQ_BF16 ? fq_f32_of_bf16(bits) : fq_f32_of_f16(bits);
}

static inline void reference_store(fq_dtype dtype, void *array, size_t i, float value,
                                   bool *saturated) {
    if (dtype == FQ_BF16) {
        ((uint16_t *)array)[i] = fq_bf16_of_f32_sat(value, saturated);
    } else if (dtype == FQ_F16) {
        ((uint16_t *)array)[i] = fq_f16_of_f32_sat(value, saturated);
    } else {
        *saturated = isinf(value);
        ((float *)array)[i] = isinf(value) ? copysignf(FLT_MAX, value) : value;
    }
}

// Which scale an element has.
static inline size_t reference_block(fq_block block, size_t cols, size_t row, size_t col) {
    return row / block.rows * fq_ceil_div(cols, block.cols) + col / block.cols;
}

// The greatest magnitude of each block, into scales. Counts what is not finite.
static inline void reference_amax(const fq_quantize_job *job) {
    const size_t n_blocks =
        fq_ceil_div(job->rows, job->block.rows) * fq_ceil_div(job->cols, job->block.cols);
    memset(job->scales, 0, n_blocks * sizeof *job->scales);
    for (size_t row = 0; row < job->rows; row++) {
        for (size_t col = 0; col < job->cols; col++) {
            const float x = reference_load(job->source_dtype, job->source, row * job->cols + col);
            float *amax = &job->scales[reference_block(job->block, job->cols, row, col)];
            if (isfinite(x)) {
                *amax = fmaxf(*amax, fabsf(x));
            } else if (job->counts->nonfinite++ == 0) {
                job->counts->nonfinite_row = row;
                job->counts->nonfinite_col = col;
            }
        }
    }
}

static inline void reference_quantize(const fq_quantize_job *job) {
    fq_quantize_counts *counts = job->counts;
    *counts = (fq_quantize_counts){0};
    reference_amax(job);
    if (counts->nonfinite)
        return;
    const size_t n_blocks =
        fq_ceil_div(job->rows, job->block.rows) * fq_ceil_div(job->cols, job->block.cols);
    for (size_t j = 0; j < n_blocks; j++) {
        const float amax = job->scales[j];
        counts->zero_blocks += amax == 0.0f;
        counts->floored_blocks += amax > 0.0f && amax < job->amax_floor;
        job->scales[j] = fq_scale_of_amax(amax, job->amax_floor, job->pow2_scales);
    }
    for (size_t row = 0; row < job->rows; row++) {
        for (size_t col = 0; col < job->cols; col++) {
            const size_t i = row * job->cols + col;
            const float x = reference_load(job->source_dtype, job->source, i);
            const float scale = job->scales[reference_block(job->block, job->cols, row, col)];
            const float quotient = x / scale;
            job->codes[i] = fq_e4m3_of_f32_sat(quotient);
            counts->saturated += fabsf(quotient) > 464.0f;
            counts->flushed_to_zero += x != 0.0f && (job->codes[i] & 0x7F) == 0;
        }
    }
}

static inline void reference_dequantize(const fq_dequantize_job *job) {
    *job->counts = (fq_dequantize_counts){0};
    for (size_t row = 0; row < job->rows; row++) {
        for (size_t col = 0; col < job->cols; col++) {
            const size_t i = row * job->cols + col;
            const float value = fq_f32_of_e4m3(job->codes[i]);
            const float scale = job->scales[reference_block(job->block, job->cols, row, col)];
            bool saturated = false;
            // A NaN is not multiplied: processors differ in the sign that they give it.
            reference_store(job->target_dtype, job->target, i, isnan(value) ? value : value * scale,
                            &saturated);
            job->counts->saturated += saturated;
            job->counts->nan_codes += isnan(value) != 0;
        }
    }
}

#endif
