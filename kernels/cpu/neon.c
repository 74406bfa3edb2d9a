// Quantize, dequantize and compare with NEON. Ends of blocks are left to the plain variant.
#include "kernels/cpu/steps.h"

#include <arm_neon.h>

enum {
    N_32 = 4, // elements of a register as FP32
    N_16 = 8, // as BF16 or FP16
    N_8 = 16  // as codes: one step
};

static void amax_16(uint32_t *amax, const void *row, size_t cols, size_t block_cols) {
    const uint16_t *elements = row;
    for (size_t i = 0, n = 0; i < cols; i += n, amax++) {
        n = fq_cpu_least(block_cols, cols - i);
        uint16x8_t x = vdupq_n_u16(0);
        size_t k = 0;
        for (; n - k >= N_16; k += N_16)
            x = vmaxq_u16(x, vandq_u16(vld1q_u16(elements + i + k), vdupq_n_u16(0x7FFF)));
        const uint32_t found = vmaxvq_u16(x);
        *amax = found > *amax ? found : *amax;
        fq_cpu_plain.amax[FQ_CPU_BF16](amax, elements + i + k, n - k, block_cols);
    }
}

static void amax_32(uint32_t *amax, const void *row, size_t cols, size_t block_cols) {
    const float *elements = row;
    for (size_t i = 0, n = 0; i < cols; i += n, amax++) {
        n = fq_cpu_least(block_cols, cols - i);
        uint32x4_t x = vdupq_n_u32(0);
        size_t k = 0;
        for (; n - k >= N_32; k += N_32) {
            const uint32x4_t bits = vreinterpretq_u32_f32(vld1q_f32(elements + i + k));
            x = vmaxq_u32(x, vandq_u32(bits, vdupq_n_u32(0x7FFFFFFF)));
        }
        const uint32_t found = vmaxvq_u32(x);
        *amax = found > *amax ? found : *amax;
        fq_cpu_plain.amax[FQ_CPU_F32](amax, elements + i + k, n - k, block_cols);
    }
}

// N_32 elements as FP32.
FQ_CPU_INLINE float32x4_t load(fq_cpu_float type, const void *source, size_t i) {
    if (type == FQ_CPU_F32)
        return vld1q_f32((const float *)source + i);
    const uint16x4_t half = vld1_u16((const uint16_t *)source + i);
    if (type == FQ_CPU_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

// E4M3 codes of values in 0..464: nearest, ties to even.
FQ_CPU_INLINE uint32x4_t code_of(float32x4_t value) {
    // Adding 2^20 times the value's power of two leaves 3 bits of mantissa; below 2^-6 the step
    // stays 2^-9. The sum's bits then count the steps, 8 to 16 of them in a normal value.
    const uint32x4_t least = vdupq_n_u32((FQ_F32_BIAS - FQ_E4M3_BIAS + 1) << 23);
    const uint32x4_t exponent =
        vmaxq_u32(vandq_u32(vreinterpretq_u32_f32(value), vdupq_n_u32(0x7F800000)), least);
    const uint32x4_t magic = vaddq_u32(exponent, vdupq_n_u32(20 << 23));
    const float32x4_t sum = vaddq_f32(value, vreinterpretq_f32_u32(magic));
    const uint32x4_t steps = vsubq_u32(vreinterpretq_u32_f32(sum), magic);
    return vaddq_u32(steps, vshrq_n_u32(vsubq_u32(exponent, least), 20));
}

// Codes of N_32 elements from i on; adds those that are not zero and have code ±0 to *n_flushed.
FQ_CPU_INLINE uint16x4_t divide(fq_cpu_float type, const void *source, size_t i, float32x4_t scale,
                                uint32x4_t *n_flushed) {
    const float32x4_t x = load(type, source, i);
    const uint32x4_t magnitude = code_of(vdivq_f32(vabsq_f32(x), scale));
    const uint32x4_t flushed = vbicq_u32(vceqzq_u32(magnitude), vceqzq_f32(x));
    *n_flushed = vsubq_u32(*n_flushed, flushed); // -1 where true
    const uint32x4_t sign = vandq_u32(vshrq_n_u32(vreinterpretq_u32_f32(x), 24), vdupq_n_u32(0x80));
    return vmovn_u32(vorrq_u32(magnitude, sign));
}

// Encodes N_8 elements from i on.
FQ_CPU_INLINE void encode_by_division(fq_cpu_float type, const fq_cpu_encode *row, size_t i,
                                      float scale, fq_quantize_counts *counts) {
    const float32x4_t divisor = vdupq_n_f32(scale);
    uint32x4_t n_flushed = vdupq_n_u32(0);
    uint16x4_t code[4];
    for (size_t k = 0; k < 4; k++)
        code[k] = divide(type, row->source, i + k * N_32, divisor, &n_flushed);
    vst1q_u8(row->codes + i, vcombine_u8(vmovn_u16(vcombine_u16(code[0], code[1])),
                                         vmovn_u16(vcombine_u16(code[2], code[3]))));
    counts->flushed_to_zero += vaddvq_u32(n_flushed);
}

// A row of steps.h.
typedef struct step_table {
    uint8x16_t base, last;
    uint16x8_t least;
} step_table;

FQ_CPU_INLINE step_table load_steps(const fq_cpu_divisor *by) {
    const uint8x16_t bias = vdupq_n_u8(fq_cpu_steps_bias(by->scale));
    return (step_table){
        .base = vsubq_u8(vld1q_u8(by->steps->base), bias),
        .last = vld1q_u8(by->steps->last),
        .least = vdupq_n_u16(fq_cpu_steps_least(by->scale)),
    };
}

// Codes of N_8 elements, none of them under steps->least, by their lower and upper bytes.
FQ_CPU_INLINE uint8x16_t look_up_codes(uint8x16_t low, uint8x16_t high, const step_table *steps) {
    const uint8x16_t mantissa = vandq_u8(low, vdupq_n_u8(0x7F));
    const uint8x16_t group = vshrq_n_u8(mantissa, FQ_CPU_STEPS_GROUP_SHIFT);
    const uint8x16_t stepped = vcgtq_u8(mantissa, vqtbl1q_u8(steps->last, group)); // -1 where true
    // 8 times the biased exponent, modulo 256
    const uint8x16_t exponent =
        vorrq_u8(vshlq_n_u8(high, 4), vandq_u8(vshrq_n_u8(low, 4), vdupq_n_u8(8)));
    const uint8x16_t code = vsubq_u8(vaddq_u8(vqtbl1q_u8(steps->base, group), exponent), stepped);
    return vbslq_u8(vdupq_n_u8(0x80), high, code);
}

// Encodes N_8 elements from i on, some of which are too small for steps. Rare, and so kept out of
// the loop that is not.
__attribute__((noinline)) static void encode_small(const fq_cpu_encode *row, size_t i, float scale,
                                                   fq_quantize_counts *counts) {
    encode_by_division(FQ_CPU_BF16, row, i, scale, counts);
}

// Encodes N_8 elements from i on.
FQ_CPU_INLINE void encode_by_steps(const fq_cpu_encode *row, size_t i, float scale,
                                   const step_table *steps, fq_quantize_counts *counts) {
    const uint16_t *source = (const uint16_t *)row->source + i;
    const uint16x8_t x0 = vld1q_u16(source), x1 = vld1q_u16(source + N_16);
    const uint16x8_t magnitude_mask = vdupq_n_u16(0x7FFF);
    const uint16x8_t smaller =
        vminq_u16(vandq_u16(x0, magnitude_mask), vandq_u16(x1, magnitude_mask));
    if (vmaxvq_u16(vcltq_u16(smaller, steps->least)) != 0) {
        encode_small(row, i, scale, counts);
        return;
    }
    const uint8x16_t b0 = vreinterpretq_u8_u16(x0), b1 = vreinterpretq_u8_u16(x1);
    vst1q_u8(row->codes + i, look_up_codes(vuzp1q_u8(b0, b1), vuzp2q_u8(b0, b1), steps));
}

FQ_CPU_INLINE void encode(fq_cpu_float type, const fq_cpu_encode *row, fq_quantize_counts *counts) {
    const fq_cpu_divisor *by = row->by;
    for (size_t i = 0, n = 0; i < row->cols; i += n, by++) {
        n = fq_cpu_least(row->block_cols, row->cols - i);
        size_t k = 0;
        if (type == FQ_CPU_BF16 && by->steps) {
            const step_table steps = load_steps(by);
            for (; n - k >= N_8; k += N_8) {
                fq_cpu_fetch_next(type, row, i + k, N_8);
                encode_by_steps(row, i + k, by->scale, &steps, counts);
            }
        } else {
            for (; n - k >= N_8; k += N_8) {
                fq_cpu_fetch_next(type, row, i + k, N_8);
                encode_by_division(type, row, i + k, by->scale, counts);
            }
        }
        fq_cpu_encode_plain(type, row, i + k, n - k, by, counts);
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

// code × scale. No code is NaN.
FQ_CPU_INLINE float32x4_t product(uint16x4_t codes, float32x4_t scale) {
    const uint32x4_t code = vmovl_u16(codes);
    const uint32x4_t magnitude = vshlq_n_u32(vandq_u32(code, vdupq_n_u32(0x7F)), 20);
    // The bits of an E4M3 value are those of an FP32 value 2^120 times smaller, subnormals too.
    const float32x4_t value = vmulq_f32(vreinterpretq_f32_u32(magnitude), vdupq_n_f32(0x1p120f));
    return vbslq_f32(vdupq_n_u32(0x80000000), vreinterpretq_f32_u32(vshlq_n_u32(code, 24)),
                     vmulq_f32(value, scale));
}

// Nearest BF16 or FP16, ties to even. No value rounds beyond the greatest finite one.
FQ_CPU_INLINE uint16x4_t round_to_16(fq_cpu_float type, float32x4_t value) {
    if (type == FQ_CPU_F16)
        return vreinterpret_u16_f16(vcvt_f16_f32(value));
    const uint32x4_t bits = vreinterpretq_u32_f32(value);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vshrn_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd), 16);
}

// Casts N_8 codes back and stores them from i on. No code is NaN.
FQ_CPU_INLINE void decode_by_product(fq_cpu_float type, void *target, size_t i, uint8x16_t codes,
                                     float32x4_t scale) {
    const uint16x8_t low = vmovl_u8(vget_low_u8(codes)), high = vmovl_high_u8(codes);
    const uint16x4_t parts[4] = {vget_low_u16(low), vget_high_u16(low), vget_low_u16(high),
                                 vget_high_u16(high)};
    for (size_t k = 0; k < 4; k++) {
        const float32x4_t value = product(parts[k], scale);
        if (type == FQ_CPU_F32)
            vst1q_f32((float *)target + i + k * N_32, value);
        else
            vst1_u16((uint16_t *)target + i + k * N_32, round_to_16(type, value));
    }
}

// BF16 results of codes 0 to 15, which count steps of 2^-9, under one scale, by their bytes.
typedef struct result_table {
    uint8x16_t low, high;
} result_table;

FQ_CPU_INLINE result_table make_results(float32x4_t scale) {
    static const float steps[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint16x4_t result[4];
    for (int k = 0; k < 4; k++) {
        const float32x4_t values = vmulq_n_f32(vld1q_f32(steps + k * N_32), 0x1p-9f);
        result[k] = round_to_16(FQ_CPU_BF16, vmulq_f32(values, scale));
    }
    const uint8x16_t r0 = vreinterpretq_u8_u16(vcombine_u16(result[0], result[1]));
    const uint8x16_t r1 = vreinterpretq_u8_u16(vcombine_u16(result[2], result[3]));
    return (result_table){.low = vuzp1q_u8(r0, r1), .high = vuzp2q_u8(r0, r1)};
}

// Adds doublings, of which 8 are one, and sign to results of the table.
FQ_CPU_INLINE uint16x8_t finish_result(uint8x16_t result, uint8x8_t doublings, uint8x8_t code) {
    const uint16x8_t magnitude =
        vaddq_u16(vreinterpretq_u16_u8(result), vshll_n_u8(doublings, 7 - 3));
    return vbslq_u16(vdupq_n_u16(0x8000), vshll_n_u8(code, 8), magnitude);
}

// Casts N_8 codes back to BF16. No code is NaN.
FQ_CPU_INLINE void decode_by_table(uint16_t *target, uint8x16_t code, const result_table *table) {
    const uint8x16_t magnitude = vandq_u8(code, vdupq_n_u8(0x7F));
    // The code if it is under 16, else the one from 8 to 15 with the same mantissa.
    const uint8x16_t index =
        vminq_u8(magnitude, vorrq_u8(vandq_u8(code, vdupq_n_u8(7)), vdupq_n_u8(8)));
    const uint8x16_t doublings = vsubq_u8(magnitude, index);
    const uint8x16_t low = vqtbl1q_u8(table->low, index), high = vqtbl1q_u8(table->high, index);
    vst1q_u16(target,
              finish_result(vzip1q_u8(low, high), vget_low_u8(doublings), vget_low_u8(code)));
    vst1q_u16(target + N_16,
              finish_result(vzip2q_u8(low, high), vget_high_u8(doublings), vget_high_u8(code)));
}

FQ_CPU_INLINE bool has_nan(uint8x16_t codes) {
    return vmaxvq_u8(vandq_u8(codes, vdupq_n_u8(0x7F))) == FQ_E4M3_NAN_CODE;
}

// The n elements from i on, all of one block.
FQ_CPU_INLINE void decode_block(fq_cpu_float type, const fq_cpu_decode *row, size_t i, size_t n,
                                const float *scale, fq_dequantize_counts *counts) {
    const float32x4_t factor = vdupq_n_f32(*scale);
    const bool by_table = type == FQ_CPU_BF16 && *scale >= FQ_CPU_LEAST_TABLE_SCALE;
    const result_table table = make_results(factor);
    for (; n >= N_8; i += N_8, n -= N_8) {
        const uint8x16_t codes = vld1q_u8(row->codes + i);
        if (has_nan(codes))
            fq_cpu_decode_plain(type, row, i, N_8, scale, counts);
        else if (by_table)
            decode_by_table((uint16_t *)row->target + i, codes, &table);
        else
            decode_by_product(type, row->target, i, codes, factor);
    }
    fq_cpu_decode_plain(type, row, i, n, scale, counts);
}

FQ_CPU_INLINE void decode(fq_cpu_float type, const fq_cpu_decode *row,
                          fq_dequantize_counts *counts) {
    const float *scale = row->scales;
    for (size_t i = 0, n = 0; i < row->cols; i += n, scale++) {
        n = fq_cpu_least(row->block_cols, row->cols - i);
        decode_block(type, row, i, n, scale, counts);
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

// A block's lanes, two in each register.
typedef struct error_lanes {
    float64x2_t error2[8], weight2[8];
    float32x4_t max_abs;
} error_lanes;

// Adds the square of each of x to two registers of lanes. The product of two FP32 values is exact
// in FP64, so that fusing it with the sum rounds as often as not.
FQ_CPU_INLINE void add_squares(float64x2_t *lanes, float32x4_t x) {
    const float64x2_t low = vcvt_f64_f32(vget_low_f32(x)), high = vcvt_high_f64_f32(x);
    lanes[0] = vfmaq_f64(lanes[0], low, low);
    lanes[1] = vfmaq_f64(lanes[1], high, high);
}

// N_8 codes and the weights that they stand for.
FQ_CPU_INLINE void compare_16(fq_cpu_float type, error_lanes *lanes, const uint8_t *codes,
                              const void *source, size_t i, float32x4_t scale) {
    const uint8x16_t code = vld1q_u8(codes), nan = vdupq_n_u8(FQ_E4M3_NAN_CODE);
    const uint8x16_t numbers = vbicq_u8(code, vceqq_u8(vandq_u8(code, nan), nan));
    const uint16x8_t low = vmovl_u8(vget_low_u8(numbers)), high = vmovl_high_u8(numbers);
    const uint16x4_t parts[4] = {vget_low_u16(low), vget_high_u16(low), vget_low_u16(high),
                                 vget_high_u16(high)};
    for (size_t k = 0; k < 4; k++) {
        const float32x4_t weights = load(type, source, i + k * N_32);
        const float32x4_t errors = vsubq_f32(product(parts[k], scale), weights);
        lanes->max_abs = vmaxq_f32(lanes->max_abs, vabsq_f32(errors));
        add_squares(lanes->error2 + 2 * k, errors);
        add_squares(lanes->weight2 + 2 * k, weights);
    }
}

FQ_CPU_INLINE void compare_block(fq_cpu_float type, const fq_cpu_compare *row, size_t i, size_t n,
                                 float32x4_t scale, fq_cpu_errors *errors) {
    error_lanes lanes = {.max_abs = vdupq_n_f32(0)};
    for (int k = 0; k < 8; k++) {
        lanes.error2[k] = vld1q_f64(errors->error2 + 2 * k);
        lanes.weight2[k] = vld1q_f64(errors->weight2 + 2 * k);
    }
    const size_t whole = n - n % N_8;
    for (size_t k = 0; k < whole; k += N_8)
        compare_16(type, &lanes, row->codes + i + k, row->source, i + k, scale);
    if (whole < n) { // zeros behind the end change nothing
        uint8_t codes[N_8] = {0};
        float source[N_8] = {0};
        const size_t size = fq_cpu_float_size(type);
        memcpy(codes, row->codes + i + whole, n - whole);
        memcpy(source, (const char *)row->source + (i + whole) * size, (n - whole) * size);
        compare_16(type, &lanes, codes, source, 0, scale);
    }
    const float max_abs = vmaxvq_f32(lanes.max_abs);
    errors->max_abs = max_abs > errors->max_abs ? max_abs : errors->max_abs;
    for (int k = 0; k < 8; k++) {
        vst1q_f64(errors->error2 + 2 * k, lanes.error2[k]);
        vst1q_f64(errors->weight2 + 2 * k, lanes.weight2[k]);
    }
}

FQ_CPU_INLINE void compare(fq_cpu_float type, const fq_cpu_compare *row) {
    const float *scale = row->scales;
    fq_cpu_errors *errors = row->errors;
    for (size_t i = 0, n = 0; i < row->cols; i += n, scale++, errors++) {
        n = fq_cpu_least(row->block_cols, row->cols - i);
        compare_block(type, row, i, n, vdupq_n_f32(*scale), errors);
    }
}

static void compare_bf16(const fq_cpu_compare *row) { compare(FQ_CPU_BF16, row); }

static void compare_f16(const fq_cpu_compare *row) { compare(FQ_CPU_F16, row); }

static void compare_f32(const fq_cpu_compare *row) { compare(FQ_CPU_F32, row); }

const fq_cpu_variant fq_cpu_neon = {
    .name = "neon",
    .title = "NEON",
    .amax = {amax_16, amax_16, amax_32},
    .encode = {encode_bf16, encode_f16, encode_f32},
    .decode = {decode_bf16, decode_f16, decode_f32},
    .compare = {compare_bf16, compare_f16, compare_f32},
    .multiply_f32 = fq_cpu_multiply_f32_neon,
    .multiply_f64 = fq_cpu_multiply_f64_neon,
};
