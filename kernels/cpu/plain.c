// The specification of quantize, dequantize and compare: plain loops over the scalar codecs of
// lib/fp8.h.
#include "kernels/cpu/cpu.h"

#include <float.h>
#include <math.h>

FQ_CPU_INLINE void amax(fq_cpu_float type, uint32_t *out, const void *row, size_t cols,
                        size_t block_cols) {
    for (size_t i = 0, end = 0; i < cols; out++) {
        for (end += fq_cpu_least(block_cols, cols - i); i < end; i++) {
            const uint32_t magnitude = type == FQ_CPU_F32
                                           ? fq_bits_of_f32(((const float *)row)[i]) & 0x7FFFFFFFu
                                           : ((const uint16_t *)row)[i] & 0x7FFFu;
            *out = magnitude > *out ? magnitude : *out;
        }
    }
}

static void amax_16(uint32_t *out, const void *row, size_t cols, size_t block_cols) {
    amax(FQ_CPU_BF16, out, row, cols, block_cols);
}

static void amax_32(uint32_t *out, const void *row, size_t cols, size_t block_cols) {
    amax(FQ_CPU_F32, out, row, cols, block_cols);
}

FQ_CPU_INLINE void encode(fq_cpu_float type, const fq_cpu_encode *row, fq_quantize_counts *counts) {
    const fq_cpu_divisor *by = row->by;
    for (size_t i = 0, end = 0; i < row->cols; by++) {
        for (end += fq_cpu_least(row->block_cols, row->cols - i); i < end; i++) {
            const float value = fq_cpu_load(type, row->source, i);
            const float quotient = value / by->scale;
            const uint8_t code = fq_e4m3_of_f32_sat(quotient);
            row->codes[i] = code;
            counts->flushed_to_zero += value != 0.0f && (code & 0x7Fu) == 0;
            counts->saturated += quotient > FQ_E4M3_SATURATES || quotient < -FQ_E4M3_SATURATES;
        }
    }
}

static void encode_bf16(const fq_cpu_encode *row, fq_quantize_counts *counts) {
    encode(FQ_CPU_BF16, row, counts);
}

static void encode_f16(const fq_cpu_encode *row, fq_quantize_counts *counts) {
    encode(FQ_CPU_F16, row, counts);
}

static void encode_f32(const fq_cpu_encode *row, fq_quantize_counts *counts) {
    encode(FQ_CPU_F32, row, counts);
}

// FP32 as it is, but Inf becomes the largest finite value and sets *saturated.
static inline float f32_sat(float value, bool *saturated) {
    const uint32_t bits = fq_bits_of_f32(value);
    if ((bits & 0x7FFFFFFFu) != 0x7F800000u)
        return value;
    *saturated = true;
    return bits >> 31 ? -FLT_MAX : FLT_MAX;
}

FQ_CPU_INLINE void store(fq_cpu_float type, void *array, size_t i, float value, bool *saturated) {
    if (type == FQ_CPU_BF16)
        ((uint16_t *)array)[i] = fq_bf16_of_f32_sat(value, saturated);
    else if (type == FQ_CPU_F16)
        ((uint16_t *)array)[i] = fq_f16_of_f32_sat(value, saturated);
    else
        ((float *)array)[i] = f32_sat(value, saturated);
}

FQ_CPU_INLINE void decode(fq_cpu_float type, const fq_cpu_decode *row,
                          fq_dequantize_counts *counts) {
    const float *scale = row->scales;
    for (size_t i = 0, end = 0; i < row->cols; scale++) {
        for (end += fq_cpu_least(row->block_cols, row->cols - i); i < end; i++) {
            const bool is_nan = (row->codes[i] & 0x7Fu) == FQ_E4M3_NAN_CODE;
            const float value = fq_f32_of_e4m3(row->codes[i]);
            bool saturated = false;
            // Not every processor carries a NaN's sign through a product.
            store(type, row->target, i, is_nan ? value : value * *scale, &saturated);
            counts->nan_codes += is_nan;
            counts->saturated += saturated;
        }
    }
}

static void decode_bf16(const fq_cpu_decode *row, fq_dequantize_counts *counts) {
    decode(FQ_CPU_BF16, row, counts);
}

static void decode_f16(const fq_cpu_decode *row, fq_dequantize_counts *counts) {
    decode(FQ_CPU_F16, row, counts);
}

static void decode_f32(const fq_cpu_decode *row, fq_dequantize_counts *counts) {
    decode(FQ_CPU_F32, row, counts);
}

// What a code stands for in a comparison.
static inline float stored_value(uint8_t code, float scale) {
    if ((code & 0x7Fu) == FQ_E4M3_NAN_CODE)
        return 0.0f;
    bool saturated = false;
    return f32_sat(fq_f32_of_e4m3(code) * scale, &saturated);
}

FQ_CPU_INLINE void compare(fq_cpu_float type, const fq_cpu_compare *row) {
    const float *scale = row->scales;
    fq_cpu_errors *errors = row->errors;
    for (size_t start = 0; start < row->cols; start += row->block_cols, scale++, errors++) {
        const size_t n = fq_cpu_least(row->block_cols, row->cols - start);
        for (size_t k = 0; k < n; k++) {
            const float weight = fq_cpu_load(type, row->source, start + k);
            if (!isfinite(weight))
                continue;
            const float error = stored_value(row->codes[start + k], *scale) - weight;
            errors->error2[k % FQ_COMPARE_LANES] += (double)error * (double)error;
            errors->weight2[k % FQ_COMPARE_LANES] += (double)weight * (double)weight;
            errors->max_abs = fmaxf(errors->max_abs, fabsf(error));
        }
    }
}

static void compare_bf16(const fq_cpu_compare *row) { compare(FQ_CPU_BF16, row); }

static void compare_f16(const fq_cpu_compare *row) { compare(FQ_CPU_F16, row); }

static void compare_f32(const fq_cpu_compare *row) { compare(FQ_CPU_F32, row); }

const fq_cpu_variant fq_cpu_plain = {
    .name = "plain",
    .title = "plain C",
    .amax = {amax_16, amax_16, amax_32},
    .encode = {encode_bf16, encode_f16, encode_f32},
    .decode = {decode_bf16, decode_f16, decode_f32},
    .compare = {compare_bf16, compare_f16, compare_f32},
    .multiply_f32 = fq_cpu_multiply_f32_plain,
    .multiply_f64 = fq_cpu_multiply_f64_plain,
};
