// Quantize, dequantize and compare with AVX-512 (F, BW, VL). Ends of blocks are done under a mask.
#include "kernels/cpu/steps.h"

#include <immintrin.h>

enum {
    N_32 = 16, // elements of a register as FP32
    N_16 = 32  // as BF16 or FP16
};

// The first n elements; all if there are more.
FQ_CPU_INLINE __mmask16 first_16(size_t n) {
    return (__mmask16)(n >= N_32 ? 0xFFFFu : (1u << n) - 1);
}

FQ_CPU_INLINE __mmask32 first_32(size_t n) { return n >= N_16 ? ~0u : (1u << n) - 1; }

FQ_CPU_INLINE uint32_t greatest_of(__m512i x) {
    const __m256i y = _mm256_max_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    const __m128i z = _mm_max_epu16(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    // There is an instruction for the least of eight only.
    const __m128i least = _mm_minpos_epu16(_mm_xor_si128(z, _mm_set1_epi16(-1)));
    return ~(uint32_t)_mm_cvtsi128_si32(least) & 0xFFFFu;
}

static void amax_16(uint32_t *amax, const void *row, size_t cols, size_t block_cols) {
    const uint16_t *elements = row;
    for (size_t i = 0, n = 0; i < cols; i += n, amax++) {
        n = fq_cpu_least(block_cols, cols - i);
        __m512i greatest = _mm512_setzero_si512();
        for (size_t k = 0; k < n; k += N_16) {
            const __m512i x = _mm512_maskz_loadu_epi16(first_32(n - k), elements + i + k);
            greatest = _mm512_max_epu16(greatest, _mm512_and_si512(x, _mm512_set1_epi16(0x7FFF)));
        }
        const uint32_t found = greatest_of(greatest);
        *amax = found > *amax ? found : *amax;
    }
}

static void amax_32(uint32_t *amax, const void *row, size_t cols, size_t block_cols) {
    const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
    const float *elements = row;
    for (size_t i = 0, n = 0; i < cols; i += n, amax++) {
        n = fq_cpu_least(block_cols, cols - i);
        __m512i greatest = _mm512_setzero_si512();
        for (size_t k = 0; k < n; k += N_32) {
            const __m512i x = _mm512_maskz_loadu_epi32(first_16(n - k), elements + i + k);
            greatest = _mm512_max_epu32(greatest, _mm512_and_si512(x, mask));
        }
        const uint32_t found = _mm512_reduce_max_epu32(greatest);
        *amax = found > *amax ? found : *amax;
    }
}

// N_32 elements as FP32; 0 for those outside mask.
FQ_CPU_INLINE __m512 load(fq_cpu_float type, const void *source, size_t i, __mmask16 mask) {
    if (type == FQ_CPU_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)source + i);
    const __m256i half = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)source + i);
    if (type == FQ_CPU_F16)
        return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// E4M3 codes of values in 0..464: nearest, ties to even.
FQ_CPU_INLINE __m512i code_of(__m512 value) {
    // Adding 2^20 times the value's power of two leaves 3 bits of mantissa; below 2^-6 the step
    // stays 2^-9. The sum's bits then count the steps, 8 to 16 of them in a normal value.
    const __m512i least = _mm512_set1_epi32((FQ_F32_BIAS - FQ_E4M3_BIAS + 1) << 23);
    const __m512i exponent = _mm512_max_epi32(
        _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(0x7F800000)), least);
    const __m512i magic = _mm512_add_epi32(exponent, _mm512_set1_epi32(20 << 23));
    const __m512 sum = _mm512_add_ps(value, _mm512_castsi512_ps(magic));
    const __m512i steps = _mm512_sub_epi32(_mm512_castps_si512(sum), magic);
    return _mm512_add_epi32(steps, _mm512_srli_epi32(_mm512_sub_epi32(exponent, least), 20));
}

// Encodes n elements from i on, at most N_32.
FQ_CPU_INLINE void encode_by_division(fq_cpu_float type, const fq_cpu_encode *row, size_t i,
                                      size_t n, __m512 scale, fq_quantize_counts *counts) {
    const __mmask16 mask = first_16(n);
    const __m512 x = load(type, row->source, i, mask);
    const __m512i magnitude = code_of(_mm512_div_ps(_mm512_abs_ps(x), scale));
    const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(x), 24);
    const __m512i code = // magnitude | (sign & 0x80)
        _mm512_ternarylogic_epi32(magnitude, sign, _mm512_set1_epi32(0x80), 0xF8);
    _mm_mask_storeu_epi8(row->codes + i, mask, _mm512_cvtepi32_epi8(code));
    const __mmask16 zero_code = _mm512_testn_epi32_mask(magnitude, magnitude);
    const __mmask16 not_zero = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    counts->flushed_to_zero += (uint64_t)__builtin_popcount(zero_code & not_zero);
}

// A row of steps.h for vectors of 16-bit elements.
typedef struct step_table {
    __m512i base, last; // twice over: the index is mantissa >> 3 and a bit more
    __m512i least;
} step_table;

FQ_CPU_INLINE step_table load_steps(const fq_cpu_divisor *by) {
    const __m128i base = _mm_loadu_si128((const void *)by->steps->base);
    const __m128i last = _mm_loadu_si128((const void *)by->steps->last);
    const __m128i bias = _mm_set1_epi8((char)fq_cpu_steps_bias(by->scale));
    return (step_table){
        .base = _mm512_broadcast_i64x4(_mm256_cvtepu8_epi16(_mm_sub_epi8(base, bias))),
        .last = _mm512_broadcast_i64x4(_mm256_cvtepu8_epi16(last)),
        .least = _mm512_set1_epi16((short)fq_cpu_steps_least(by->scale)),
    };
}

// Codes of N_16 elements, none of them under steps->least.
FQ_CPU_INLINE __m256i look_up_codes(__m512i x, const step_table *steps) {
    const __m512i mantissa = _mm512_and_si512(x, _mm512_set1_epi16(0x7F));
    const __m512i group = _mm512_srli_epi16(x, FQ_CPU_STEPS_GROUP_SHIFT);
    const __m512i base = _mm512_permutexvar_epi16(group, steps->base);
    const __m512i last = _mm512_permutexvar_epi16(group, steps->last);
    // 8 times the biased exponent, modulo 256
    const __m512i exponent = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi16(0xF8));
    __m512i code = _mm512_add_epi16(base, exponent);
    const __mmask32 stepped = _mm512_cmpgt_epu16_mask(mantissa, last);
    code = _mm512_mask_add_epi16(code, stepped, code, _mm512_set1_epi16(1));
    // Bit 7 is the element's sign, the others are the code's.
    const __m512i sign = _mm512_srli_epi16(x, 8);
    return _mm512_cvtepi16_epi8(
        _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x80), sign, code, 0xCA));
}

// Encodes n elements from i on, at most N_16, some of which are too small for steps. Rare, and so
// kept out of the loop that is not.
__attribute__((noinline)) static void encode_small(const fq_cpu_encode *row, size_t i, size_t n,
                                                   float scale, fq_quantize_counts *counts) {
    const __m512 divisor = _mm512_set1_ps(scale);
    encode_by_division(FQ_CPU_BF16, row, i, n, divisor, counts);
    if (n > N_32)
        encode_by_division(FQ_CPU_BF16, row, i + N_32, n - N_32, divisor, counts);
}

// Encodes n elements from i on, at most N_16.
FQ_CPU_INLINE void encode_by_steps(const fq_cpu_encode *row, size_t i, size_t n, float scale,
                                   const step_table *steps, fq_quantize_counts *counts) {
    const __mmask32 mask = first_32(n);
    const __m512i x = _mm512_maskz_loadu_epi16(mask, (const uint16_t *)row->source + i);
    const __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi16(0x7FFF));
    if (_mm512_mask_cmplt_epu16_mask(mask, magnitude, steps->least) == 0)
        _mm256_mask_storeu_epi8(row->codes + i, mask, look_up_codes(x, steps));
    else
        encode_small(row, i, n, scale, counts);
}

FQ_CPU_INLINE void encode(fq_cpu_float type, const fq_cpu_encode *row, fq_quantize_counts *counts) {
    const fq_cpu_divisor *by = row->by;
    for (size_t i = 0, n = 0; i < row->cols; i += n, by++) {
        n = fq_cpu_least(row->block_cols, row->cols - i);
        const __m512 scale = _mm512_set1_ps(by->scale);
        if (type == FQ_CPU_BF16 && by->steps) {
            const step_table steps = load_steps(by);
            size_t k = 0;
            for (; n - k >= N_16; k += N_16) {
                fq_cpu_fetch_next(type, row, i + k, N_16);
                encode_by_steps(row, i + k, N_16, by->scale, &steps, counts);
            }
            if (k < n)
                encode_by_steps(row, i + k, n - k, by->scale, &steps, counts);
        } else {
            for (size_t k = 0; k < n; k += N_32) {
                fq_cpu_fetch_next(type, row, i + k, N_32);
                encode_by_division(type, row, i + k, n - k, scale, counts);
            }
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

// code × scale. No code is NaN.
FQ_CPU_INLINE __m512 product(__m128i codes, __m512 scale) {
    const __m512i code = _mm512_cvtepu8_epi32(codes);
    const __m512i magnitude =
        _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x7F)), 20);
    // The bits of an E4M3 value are those of an FP32 value 2^120 times smaller, subnormals too.
    const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(magnitude), _mm512_set1_ps(0x1p120f));
    const __m512i scaled = _mm512_castps_si512(_mm512_mul_ps(value, scale));
    // scaled | (code << 24 & sign)
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        scaled, _mm512_slli_epi32(code, 24), _mm512_set1_epi32((int)0x80000000u), 0xF8));
}

// Nearest BF16 or FP16, ties to even. No value rounds beyond the greatest finite one.
FQ_CPU_INLINE __m256i round_to_16(fq_cpu_float type, __m512 value) {
    if (type == FQ_CPU_F16)
        return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

// Casts N_32 codes back and stores those of mask. No code is NaN.
FQ_CPU_INLINE void decode_by_product(fq_cpu_float type, void *target, size_t i, __mmask16 mask,
                                     __m128i codes, __m512 scale) {
    const __m512 value = product(codes, scale);
    if (type == FQ_CPU_F32)
        _mm512_mask_storeu_ps((float *)target + i, mask, value);
    else
        _mm256_mask_storeu_epi16((uint16_t *)target + i, mask, round_to_16(type, value));
}

// BF16 results of codes 0 to 15, which count steps of 2^-9, under one scale.
FQ_CPU_INLINE __m512i result_table(__m512 scale) {
    const __m512 steps = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 values = _mm512_mul_ps(steps, _mm512_set1_ps(0x1p-9f));
    return _mm512_castsi256_si512(round_to_16(FQ_CPU_BF16, _mm512_mul_ps(values, scale)));
}

// BF16 results of N_16 codes. No code is NaN.
FQ_CPU_INLINE __m512i look_up_results(__m256i codes, __m512i table) {
    const __m512i code = _mm512_cvtepu8_epi16(codes);
    const __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi16(0x7F));
    // The code if it is under 16, else the one from 8 to 15 with the same mantissa.
    const __m512i index =
        _mm512_min_epu16(magnitude, _mm512_or_si512(_mm512_and_si512(code, _mm512_set1_epi16(7)),
                                                    _mm512_set1_epi16(8)));
    const __m512i doublings = _mm512_slli_epi16(_mm512_sub_epi16(magnitude, index), 7 - 3);
    const __m512i result = _mm512_add_epi16(_mm512_permutexvar_epi16(index, table), doublings);
    // result | (code << 8 & sign)
    return _mm512_ternarylogic_epi32(result, _mm512_slli_epi16(code, 8),
                                     _mm512_set1_epi16((short)0x8000), 0xF8);
}

FQ_CPU_INLINE bool has_nan(__m256i codes) {
    const __m256i nan = _mm256_set1_epi8(FQ_E4M3_NAN_CODE);
    return _mm256_cmpeq_epi8_mask(_mm256_and_si256(codes, nan), nan) != 0;
}

// The n elements from i on, all of one block.
FQ_CPU_INLINE void decode_block(fq_cpu_float type, const fq_cpu_decode *row, size_t i, size_t n,
                                const float *scale, fq_dequantize_counts *counts) {
    const __m512 factor = _mm512_set1_ps(*scale);
    const bool by_table = type == FQ_CPU_BF16 && *scale >= FQ_CPU_LEAST_TABLE_SCALE;
    const __m512i table = result_table(factor);
    for (const size_t end = i + n; i < end; i += N_16) {
        const __mmask32 mask = first_32(end - i);
        const __m256i codes = _mm256_maskz_loadu_epi8(mask, row->codes + i);
        if (has_nan(codes)) {
            fq_cpu_decode_plain(type, row, i, fq_cpu_least(N_16, end - i), scale, counts);
        } else if (by_table) {
            _mm512_mask_storeu_epi16((uint16_t *)row->target + i, mask,
                                     look_up_results(codes, table));
        } else {
            decode_by_product(type, row->target, i, (__mmask16)mask, _mm256_castsi256_si128(codes),
                              factor);
            decode_by_product(type, row->target, i + N_32, (__mmask16)(mask >> N_32),
                              _mm256_extracti128_si256(codes, 1), factor);
        }
    }
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

// A block's lanes: its first eight in [0].
typedef struct error_lanes {
    __m512d error2[2], weight2[2];
    __m512 max_abs;
} error_lanes;

// Adds the square of each of x to the lanes. The product of two FP32 values is exact in FP64, so
// that fusing it with the sum rounds as often as not.
FQ_CPU_INLINE void add_squares(__m512d lanes[2], __m512 x) {
    const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    const __m512d high =
        _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)));
    lanes[0] = _mm512_fmadd_pd(low, low, lanes[0]);
    lanes[1] = _mm512_fmadd_pd(high, high, lanes[1]);
}

// 16 codes and the weights that they stand for; zeros behind the end of a block change nothing.
FQ_CPU_INLINE void compare_16(error_lanes *lanes, __m128i codes, __m512 weights, __m512 scale) {
    const __m128i nan = _mm_set1_epi8(FQ_E4M3_NAN_CODE);
    const __mmask16 is_number = _mm_cmpneq_epi8_mask(_mm_and_si128(codes, nan), nan);
    const __m512 stored = _mm512_maskz_mov_ps(is_number, product(codes, scale));
    const __m512 errors = _mm512_sub_ps(stored, weights);
    lanes->max_abs = _mm512_max_ps(lanes->max_abs, _mm512_abs_ps(errors));
    add_squares(lanes->error2, errors);
    add_squares(lanes->weight2, weights);
}

FQ_CPU_INLINE void compare_block(fq_cpu_float type, const fq_cpu_compare *row, size_t i, size_t n,
                                 __m512 scale, fq_cpu_errors *errors) {
    error_lanes lanes = {.max_abs = _mm512_setzero_ps()};
    for (int half = 0; half < 2; half++) {
        lanes.error2[half] = _mm512_loadu_pd(errors->error2 + 8 * half);
        lanes.weight2[half] = _mm512_loadu_pd(errors->weight2 + 8 * half);
    }
    for (size_t k = 0; k < n; k += N_32) {
        const __mmask16 mask = first_16(n - k);
        const __m128i codes = _mm_maskz_loadu_epi8(mask, row->codes + i + k);
        compare_16(&lanes, codes, load(type, row->source, i + k, mask), scale);
    }
    for (int half = 0; half < 2; half++) {
        _mm512_storeu_pd(errors->error2 + 8 * half, lanes.error2[half]);
        _mm512_storeu_pd(errors->weight2 + 8 * half, lanes.weight2[half]);
    }
    const float max_abs = _mm512_reduce_max_ps(lanes.max_abs);
    errors->max_abs = max_abs > errors->max_abs ? max_abs : errors->max_abs;
}

FQ_CPU_INLINE void compare(fq_cpu_float type, const fq_cpu_compare *row) {
    const float *scale = row->scales;
    fq_cpu_errors *errors = row->errors;
    for (size_t i = 0, n = 0; i < row->cols; i += n, scale++, errors++) {
        n = fq_cpu_least(row->block_cols, row->cols - i);
        compare_block(type, row, i, n, _mm512_set1_ps(*scale), errors);
    }
}

static void compare_bf16(const fq_cpu_compare *row) { compare(FQ_CPU_BF16, row); }

static void compare_f16(const fq_cpu_compare *row) { compare(FQ_CPU_F16, row); }

static void compare_f32(const fq_cpu_compare *row) { compare(FQ_CPU_F32, row); }

const fq_cpu_variant fq_cpu_avx512 = {
    .name = "avx512",
    .title = "AVX-512",
    .amax = {amax_16, amax_16, amax_32},
    .encode = {encode_bf16, encode_f16, encode_f32},
    .decode = {decode_bf16, decode_f16, decode_f32},
    .compare = {compare_bf16, compare_f16, compare_f32},
    .multiply_f32 = fq_cpu_multiply_f32_avx512,
    .multiply_f64 = fq_cpu_multiply_f64_avx512,
};
