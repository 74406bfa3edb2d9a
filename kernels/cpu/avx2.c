// Quantize, dequantize and compare with AVX2 and F16C. Ends of blocks are left to the plain
// variant.
#include "kernels/cpu/steps.h"

#include <immintrin.h>

enum {
    N_32 = 8,  // elements of a register as FP32
    N_16 = 16, // as BF16 or FP16
    N_8 = 32   // as codes: one step
};

FQ_CPU_INLINE __m256i load_256(const void *p) { return _mm256_loadu_si256(p); }

static void amax_16(uint32_t *amax, const void *row, size_t cols, size_t block_cols) {
    const __m256i mask = _mm256_set1_epi16(0x7FFF);
    const uint16_t *elements = row;
    for (size_t i = 0, n = 0; i < cols; i += n, amax++) {
        n = fq_cpu_least(block_cols, cols - i);
        __m256i x = _mm256_setzero_si256();
        size_t k = 0;
        for (; n - k >= N_16; k += N_16)
            x = _mm256_max_epu16(x, _mm256_and_si256(load_256(elements + i + k), mask));
        const __m128i y = _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        // There is an instruction for the least of eight only.
        const __m128i least = _mm_minpos_epu16(_mm_xor_si128(y, _mm_set1_epi16(-1)));
        const uint32_t found = ~(uint32_t)_mm_cvtsi128_si32(least) & 0xFFFFu;
        *amax = found > *amax ? found : *amax;
        fq_cpu_plain.amax[FQ_CPU_BF16](amax, elements + i + k, n - k, block_cols);
    }
}

static void amax_32(uint32_t *amax, const void *row, size_t cols, size_t block_cols) {
    const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
    const float *elements = row;
    for (size_t i = 0, n = 0; i < cols; i += n, amax++) {
        n = fq_cpu_least(block_cols, cols - i);
        __m256i x = _mm256_setzero_si256();
        size_t k = 0;
        for (; n - k >= N_32; k += N_32)
            x = _mm256_max_epu32(x, _mm256_and_si256(load_256(elements + i + k), mask));
        uint32_t found[N_32];
        _mm256_storeu_si256((void *)found, x);
        for (int lane = 0; lane < N_32; lane++)
            *amax = found[lane] > *amax ? found[lane] : *amax;
        fq_cpu_plain.amax[FQ_CPU_F32](amax, elements + i + k, n - k, block_cols);
    }
}

// N_32 elements as FP32.
FQ_CPU_INLINE __m256 load(fq_cpu_float type, const void *source, size_t i) {
    if (type == FQ_CPU_F32)
        return _mm256_loadu_ps((const float *)source + i);
    const __m128i half = _mm_loadu_si128((const void *)((const uint16_t *)source + i));
    if (type == FQ_CPU_F16)
        return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// E4M3 codes of values in 0..464: nearest, ties to even.
FQ_CPU_INLINE __m256i code_of(__m256 value) {
    // Adding 2^20 times the value's power of two leaves 3 bits of mantissa; below 2^-6 the step
    // stays 2^-9. The sum's bits then count the steps, 8 to 16 of them in a normal value.
    const __m256i least = _mm256_set1_epi32((FQ_F32_BIAS - FQ_E4M3_BIAS + 1) << 23);
    const __m256i exponent = _mm256_max_epi32(
        _mm256_and_si256(_mm256_castps_si256(value), _mm256_set1_epi32(0x7F800000)), least);
    const __m256i magic = _mm256_add_epi32(exponent, _mm256_set1_epi32(20 << 23));
    const __m256 sum = _mm256_add_ps(value, _mm256_castsi256_ps(magic));
    const __m256i steps = _mm256_sub_epi32(_mm256_castps_si256(sum), magic);
    return _mm256_add_epi32(steps, _mm256_srli_epi32(_mm256_sub_epi32(exponent, least), 20));
}

// Codes of N_32 elements from i on. flushed: the lanes of those that are not zero and have code ±0.
FQ_CPU_INLINE __m256i divide(fq_cpu_float type, const void *source, size_t i, __m256 scale,
                             __m256i *flushed) {
    const __m256 sign_bit = _mm256_set1_ps(-0.0f);
    const __m256i zero = _mm256_setzero_si256();
    const __m256 x = load(type, source, i);
    const __m256i magnitude = code_of(_mm256_div_ps(_mm256_andnot_ps(sign_bit, x), scale));
    const __m256i is_zero = _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ));
    *flushed = _mm256_andnot_si256(is_zero, _mm256_cmpeq_epi32(magnitude, zero));
    const __m256i sign = _mm256_castps_si256(_mm256_and_ps(x, sign_bit));
    return _mm256_or_si256(magnitude, _mm256_srli_epi32(sign, 24));
}

// Encodes N_8 elements from i on.
FQ_CPU_INLINE void encode_by_division(fq_cpu_float type, const fq_cpu_encode *row, size_t i,
                                      __m256 scale, fq_quantize_counts *counts) {
    __m256i code[4], flushed[4];
    for (size_t k = 0; k < 4; k++)
        code[k] = divide(type, row->source, i + k * N_32, scale, &flushed[k]);
    const __m256i packed = _mm256_packus_epi16(_mm256_packus_epi32(code[0], code[1]),
                                               _mm256_packus_epi32(code[2], code[3]));
    // Packing works within halves of a register: bring the parts in order.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((void *)(row->codes + i), _mm256_permutevar8x32_epi32(packed, order));
    const __m256i any = _mm256_packs_epi16(_mm256_packs_epi32(flushed[0], flushed[1]),
                                           _mm256_packs_epi32(flushed[2], flushed[3]));
    counts->flushed_to_zero += (uint64_t)__builtin_popcount((uint32_t)_mm256_movemask_epi8(any));
}

// A row of steps.h.
typedef struct step_table {
    __m256i base, last; // of 8-bit elements, twice over
    __m256i least;      // of 16-bit elements
} step_table;

FQ_CPU_INLINE step_table load_steps(const fq_cpu_divisor *by) {
    const __m128i base = _mm_loadu_si128((const void *)by->steps->base);
    const __m128i last = _mm_loadu_si128((const void *)by->steps->last);
    const __m128i bias = _mm_set1_epi8((char)fq_cpu_steps_bias(by->scale));
    return (step_table){
        .base = _mm256_broadcastsi128_si256(_mm_sub_epi8(base, bias)),
        .last = _mm256_broadcastsi128_si256(last),
        .least = _mm256_set1_epi16((short)fq_cpu_steps_least(by->scale)),
    };
}

// Codes of 2·N_16 elements, none of them under steps->least.
FQ_CPU_INLINE __m256i look_up_codes(__m256i x0, __m256i x1, const step_table *steps) {
    const __m256i mantissa_mask = _mm256_set1_epi16(0x7F);
    const __m256i mantissa = _mm256_packus_epi16(_mm256_and_si256(x0, mantissa_mask),
                                                 _mm256_and_si256(x1, mantissa_mask));
    // 8 times the biased exponent, modulo 256
    const __m256i exponent_mask = _mm256_set1_epi16(0xF8);
    const __m256i exponent =
        _mm256_packus_epi16(_mm256_and_si256(_mm256_srli_epi16(x0, 4), exponent_mask),
                            _mm256_and_si256(_mm256_srli_epi16(x1, 4), exponent_mask));
    const __m256i group = _mm256_and_si256(_mm256_srli_epi16(mantissa, FQ_CPU_STEPS_GROUP_SHIFT),
                                           _mm256_set1_epi8(0x0F));
    const __m256i base = _mm256_shuffle_epi8(steps->base, group);
    const __m256i last = _mm256_shuffle_epi8(steps->last, group);
    const __m256i stepped = _mm256_cmpgt_epi8(mantissa, last); // -1 where true
    const __m256i code = _mm256_sub_epi8(_mm256_add_epi8(base, exponent), stepped);
    // Packing with saturation keeps the sign.
    const __m256i sign = _mm256_and_si256(_mm256_packs_epi16(x0, x1), _mm256_set1_epi8((char)0x80));
    // Packing works within halves of a register: bring the parts in order.
    return _mm256_permute4x64_epi64(_mm256_or_si256(code, sign), 0xD8);
}

// Encodes N_8 elements from i on, some of which are too small for steps. Rare, and so kept out of
// the loop that is not.
__attribute__((noinline)) static void encode_small(const fq_cpu_encode *row, size_t i, float scale,
                                                   fq_quantize_counts *counts) {
    encode_by_division(FQ_CPU_BF16, row, i, _mm256_set1_ps(scale), counts);
}

// Encodes N_8 elements from i on.
FQ_CPU_INLINE void encode_by_steps(const fq_cpu_encode *row, size_t i, float scale,
                                   const step_table *steps, fq_quantize_counts *counts) {
    const __m256i magnitude_mask = _mm256_set1_epi16(0x7FFF);
    const __m256i x0 = load_256((const uint16_t *)row->source + i);
    const __m256i x1 = load_256((const uint16_t *)row->source + i + N_16);
    const __m256i smaller = _mm256_min_epu16(_mm256_and_si256(x0, magnitude_mask),
                                             _mm256_and_si256(x1, magnitude_mask));
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi16(steps->least, smaller)) == 0)
        _mm256_storeu_si256((void *)(row->codes + i), look_up_codes(x0, x1, steps));
    else
        encode_small(row, i, scale, counts);
}

FQ_CPU_INLINE void encode(fq_cpu_float type, const fq_cpu_encode *row, fq_quantize_counts *counts) {
    const fq_cpu_divisor *by = row->by;
    for (size_t i = 0, n = 0; i < row->cols; i += n, by++) {
        n = fq_cpu_least(row->block_cols, row->cols - i);
        const __m256 scale = _mm256_set1_ps(by->scale);
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
                encode_by_division(type, row, i + k, scale, counts);
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

// code × scale of the N_32 codes in the low half. No code is NaN.
FQ_CPU_INLINE __m256 product(__m128i codes, __m256 scale) {
    const __m256i code = _mm256_cvtepu8_epi32(codes);
    const __m256i magnitude =
        _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7F)), 20);
    const __m256i sign =
        _mm256_and_si256(_mm256_slli_epi32(code, 24), _mm256_set1_epi32((int)0x80000000u));
    // The bits of an E4M3 value are those of an FP32 value 2^120 times smaller, subnormals too.
    const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p120f));
    return _mm256_or_ps(_mm256_mul_ps(value, scale), _mm256_castsi256_ps(sign));
}

// Nearest BF16 or FP16, ties to even. No value rounds beyond the greatest finite one.
FQ_CPU_INLINE __m128i round_to_16(fq_cpu_float type, __m256 value) {
    if (type == FQ_CPU_F16)
        return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

// Casts the N_32 codes from i on back. No code is NaN.
FQ_CPU_INLINE void decode_by_product(fq_cpu_float type, const fq_cpu_decode *row, size_t i,
                                     __m256 scale) {
    const __m256 value = product(_mm_loadl_epi64((const void *)(row->codes + i)), scale);
    if (type == FQ_CPU_F32)
        _mm256_storeu_ps((float *)row->target + i, value);
    else
        _mm_storeu_si128((void *)((uint16_t *)row->target + i), round_to_16(type, value));
}

// BF16 results of codes 0 to 15, which count steps of 2^-9, under one scale, by their bytes.
typedef struct result_table {
    __m256i low, high; // twice over
} result_table;

FQ_CPU_INLINE result_table make_results(__m256 scale) {
    const __m256 steps = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 step = _mm256_set1_ps(0x1p-9f);
    const __m256 v0 = _mm256_mul_ps(steps, step);
    const __m256 v1 = _mm256_mul_ps(_mm256_add_ps(steps, _mm256_set1_ps(8)), step);
    const __m128i r0 = round_to_16(FQ_CPU_BF16, _mm256_mul_ps(v0, scale));
    const __m128i r1 = round_to_16(FQ_CPU_BF16, _mm256_mul_ps(v1, scale));
    const __m128i low_byte = _mm_set1_epi16(0xFF);
    return (result_table){
        .low = _mm256_broadcastsi128_si256(
            _mm_packus_epi16(_mm_and_si128(r0, low_byte), _mm_and_si128(r1, low_byte))),
        .high = _mm256_broadcastsi128_si256(
            _mm_packus_epi16(_mm_srli_epi16(r0, 8), _mm_srli_epi16(r1, 8))),
    };
}

// Adds doublings, of which 8 are one, and sign to results of the table. Both come in the upper
// bytes of 16-bit elements.
FQ_CPU_INLINE __m256i finish_result(__m256i result, __m256i doublings, __m256i code) {
    const __m256i magnitude = _mm256_add_epi16(result, _mm256_srli_epi16(doublings, 8 - (7 - 3)));
    return _mm256_or_si256(magnitude, _mm256_and_si256(code, _mm256_set1_epi16((short)0x8000)));
}

// Casts N_8 codes back to BF16. No code is NaN.
FQ_CPU_INLINE void decode_by_table(uint16_t *target, __m256i codes, const result_table *table) {
    // Unpacking works within halves of a register.
    const __m256i code = _mm256_permute4x64_epi64(codes, 0xD8);
    const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi8(0x7F));
    // The code if it is under 16, else the one from 8 to 15 with the same mantissa.
    const __m256i index =
        _mm256_min_epu8(magnitude, _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi8(7)),
                                                   _mm256_set1_epi8(8)));
    const __m256i doublings = _mm256_sub_epi8(magnitude, index);
    const __m256i low = _mm256_shuffle_epi8(table->low, index);
    const __m256i high = _mm256_shuffle_epi8(table->high, index);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i first =
        finish_result(_mm256_unpacklo_epi8(low, high), _mm256_unpacklo_epi8(zero, doublings),
                      _mm256_unpacklo_epi8(zero, code));
    const __m256i second =
        finish_result(_mm256_unpackhi_epi8(low, high), _mm256_unpackhi_epi8(zero, doublings),
                      _mm256_unpackhi_epi8(zero, code));
    _mm256_storeu_si256((void *)target, first);
    _mm256_storeu_si256((void *)(target + N_16), second);
}

FQ_CPU_INLINE bool has_nan(__m256i codes) {
    const __m256i nan = _mm256_set1_epi8(FQ_E4M3_NAN_CODE);
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(codes, nan), nan)) != 0;
}

// The n elements from i on, all of one block.
FQ_CPU_INLINE void decode_block(fq_cpu_float type, const fq_cpu_decode *row, size_t i, size_t n,
                                const float *scale, fq_dequantize_counts *counts) {
    const __m256 factor = _mm256_set1_ps(*scale);
    const bool by_table = type == FQ_CPU_BF16 && *scale >= FQ_CPU_LEAST_TABLE_SCALE;
    const result_table table = make_results(factor);
    for (; n >= N_8; i += N_8, n -= N_8) {
        const __m256i codes = load_256(row->codes + i);
        if (has_nan(codes)) {
            fq_cpu_decode_plain(type, row, i, N_8, scale, counts);
        } else if (by_table) {
            decode_by_table((uint16_t *)row->target + i, codes, &table);
        } else {
            for (size_t k = 0; k < N_8; k += N_32)
                decode_by_product(type, row, i + k, factor);
        }
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

// A block's lanes, four in each register.
typedef struct error_lanes {
    __m256d error2[4], weight2[4];
    __m256 max_abs;
} error_lanes;

// Adds the square of each of x to two registers of lanes.
FQ_CPU_INLINE void add_squares(__m256d *lanes, __m256 x) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    lanes[0] = _mm256_add_pd(lanes[0], _mm256_mul_pd(low, low));
    lanes[1] = _mm256_add_pd(lanes[1], _mm256_mul_pd(high, high));
}

// N_32 codes and the weights that they stand for; half: which half of the lanes is theirs.
FQ_CPU_INLINE void compare_8(error_lanes *lanes, int half, __m128i codes, __m256 weights,
                             __m256 scale) {
    const __m128i nan = _mm_set1_epi8(FQ_E4M3_NAN_CODE);
    const __m128i is_nan = _mm_cmpeq_epi8(_mm_and_si128(codes, nan), nan);
    const __m256 stored = product(_mm_andnot_si128(is_nan, codes), scale);
    const __m256 errors = _mm256_sub_ps(stored, weights);
    lanes->max_abs = _mm256_max_ps(lanes->max_abs, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), errors));
    add_squares(lanes->error2 + 2 * half, errors);
    add_squares(lanes->weight2 + 2 * half, weights);
}

FQ_CPU_INLINE void compare_16(fq_cpu_float type, error_lanes *lanes, const uint8_t *codes,
                              const void *source, size_t i, __m256 scale) {
    const __m128i both = _mm_loadu_si128((const void *)codes);
    compare_8(lanes, 0, both, load(type, source, i), scale);
    compare_8(lanes, 1, _mm_srli_si128(both, N_32), load(type, source, i + N_32), scale);
}

FQ_CPU_INLINE void compare_block(fq_cpu_float type, const fq_cpu_compare *row, size_t i, size_t n,
                                 __m256 scale, fq_cpu_errors *errors) {
    error_lanes lanes = {.max_abs = _mm256_setzero_ps()};
    for (int k = 0; k < 4; k++) {
        lanes.error2[k] = _mm256_loadu_pd(errors->error2 + 4 * k);
        lanes.weight2[k] = _mm256_loadu_pd(errors->weight2 + 4 * k);
    }
    const size_t whole = n - n % N_16;
    for (size_t k = 0; k < whole; k += N_16)
        compare_16(type, &lanes, row->codes + i + k, row->source, i + k, scale);
    if (whole < n) { // zeros behind the end change nothing
        uint8_t codes[N_16] = {0};
        float source[N_16] = {0};
        const size_t size = fq_cpu_float_size(type);
        memcpy(codes, row->codes + i + whole, n - whole);
        memcpy(source, (const char *)row->source + (i + whole) * size, (n - whole) * size);
        compare_16(type, &lanes, codes, source, 0, scale);
    }
    float max_abs[N_32];
    _mm256_storeu_ps(max_abs, lanes.max_abs);
    for (int k = 0; k < N_32; k++)
        errors->max_abs = max_abs[k] > errors->max_abs ? max_abs[k] : errors->max_abs;
    for (int k = 0; k < 4; k++) {
        _mm256_storeu_pd(errors->error2 + 4 * k, lanes.error2[k]);
        _mm256_storeu_pd(errors->weight2 + 4 * k, lanes.weight2[k]);
    }
}

FQ_CPU_INLINE void compare(fq_cpu_float type, const fq_cpu_compare *row) {
    const float *scale = row->scales;
    fq_cpu_errors *errors = row->errors;
    for (size_t i = 0, n = 0; i < row->cols; i += n, scale++, errors++) {
        n = fq_cpu_least(row->block_cols, row->cols - i);
        compare_block(type, row, i, n, _mm256_set1_ps(*scale), errors);
    }
}

static void compare_bf16(const fq_cpu_compare *row) { compare(FQ_CPU_BF16, row); }

static void compare_f16(const fq_cpu_compare *row) { compare(FQ_CPU_F16, row); }

static void compare_f32(const fq_cpu_compare *row) { compare(FQ_CPU_F32, row); }

const fq_cpu_variant fq_cpu_avx2 = {
    .name = "avx2",
    .title = "AVX2",
    .amax = {amax_16, amax_16, amax_32},
    .encode = {encode_bf16, encode_f16, encode_f32},
    .decode = {decode_bf16, decode_f16, decode_f32},
    .compare = {compare_bf16, compare_f16, compare_f32},
    .multiply_f32 = fq_cpu_multiply_f32_avx2,
    .multiply_f64 = fq_cpu_multiply_f64_avx2,
};
