// Quantize and dequantize once more, element by element: what every variant must give.
#ifndef FQ_TESTS_KERNELS_REFERENCE_H
#define FQ_TESTS_KERNELS_REFERENCE_H

#include "tests/kernels/devices.h"

#include <float.h>
#include <math.h>

// Element i, widened to FP32.
static inline float reference_load(fq_dtype dtype, const void *array, size_t i) {
    if (dtype == FQ_F32)
        return ((const float *)array)[i];
    const uint16_t bits = ((const uint16_t *)array)[i];
    return dtype == FQ_F16 ? fq_f32_of_f16(bits) : fq_f32_of_bf16(bits);
}

static inline void reference_block(const fq_quantize_job *job, uint64_t row0, uint64_t col0,
                                   float *scale) {
    const uint64_t row1 = row0 + fq_cpu_least(job->block.rows, job->rows - row0);
    const uint64_t col1 = col0 + fq_cpu_least(job->block.cols, job->cols - col0);
    fq_quantize_counts *counts = job->counts;
    float amax = 0.0f;
    for (uint64_t r = row0; r < row1; r++) {
        for (uint64_t c = col0; c < col1; c++)
            amax = fmaxf(amax, fabsf(reference_load(job->source_dtype, job->source,
                                                    r * job->cols + c)));
    }
    *scale = fq_scale_of_amax(amax, job->amax_floor, job->pow2_scales);
    counts->zero_blocks += amax == 0.0f;
    counts->floored_blocks += amax > 0.0f && amax < job->amax_floor;
    for (uint64_t r = row0; r < row1; r++) {
        for (uint64_t c = col0; c < col1; c++) {
            const uint64_t i = r * job->cols + c;
            const float w = reference_load(job->source_dtype, job->source, i);
            job->codes[i] = fq_e4m3_of_f32_sat(w / *scale);
            counts->saturated += fabsf(w / *scale) > 464.0f;
            counts->flushed_to_zero += w != 0.0f && (job->codes[i] & 0x7F) == 0;
        }
    }
}

// For a source that is finite.
static inline void reference_quantize(const fq_quantize_job *job) {
    *job->counts = (fq_quantize_counts){0};
    float *scale = job->scales;
    for (uint64_t r = 0; r < job->rows; r += job->block.rows) {
        for (uint64_t c = 0; c < job->cols; c += job->block.cols)
            reference_block(job, r, c, scale++);
    }
}

static inline void reference_dequantize(const fq_dequantize_job *job) {
    *job->counts = (fq_dequantize_counts){0};
    const uint64_t n_cols = fq_ceil_div(job->cols, job->block.cols);
    for (uint64_t i = 0; i < job->rows * job->cols; i++) {
        const uint64_t r = i / job->cols / job->block.rows, c = i % job->cols / job->block.cols;
        float value = fq_f32_of_e4m3(job->codes[i]);
        if (isnan(value))
            job->counts->nan_codes++;
        else
            value *= job->scales[r * n_cols + c];
        bool saturated = false;
        if (job->target_dtype == FQ_BF16) {
            ((uint16_t *)job->target)[i] = fq_bf16_of_f32_sat(value, &saturated);
        } else if (job->target_dtype == FQ_F16) {
            ((uint16_t *)job->target)[i] = fq_f16_of_f32_sat(value, &saturated);
        } else {
            saturated = isinf(value);
            ((float *)job->target)[i] = saturated ? copysignf(FLT_MAX, value) : value;
        }
        job->counts->saturated += saturated;
    }
}

#endif
