// Every value under many scales, and every code under every kind of scale: what random matrices
// would meet too seldom (subnormals, ties, scales that underflow, results that overflow).
#include "random.h"
#include "trial.h"

#include <assert.h>

enum {
    N_PATTERNS = 0x10000,
    // Each code that is a number, filled up to 256 with some of them again; then a group with NaN.
    N_NUMBERS = 256,
    N_CODES = N_NUMBERS + 40,
    SCALES_PER_JOB = 512,
    MAX_ELEMENTS = SCALES_PER_JOB * N_CODES,
};

// One block of n elements, as f32 and pow2 scales, under the default floor, none, and one of its
// own over amax: then the scale is no multiple of amax, and variants may not use what they know of
// it.
static void quantize_block(trial *t, fq_dtype dtype, const void *source, size_t n, float amax) {
    const float floors[] = {FQ_DEFAULT_AMAX_FLOOR, 0.0f, fminf(1.37f * amax, FLT_MAX)};
    for (size_t i = 0; i < 2 * sizeof floors / sizeof floors[0]; i++) {
        const fq_quantize_job job = {
            .source = source,
            .source_dtype = dtype,
            .rows = 1,
            .cols = n,
            .block = {1, n},
            .pow2_scales = i % 2,
            .amax_floor = floors[i / 2],
        };
        trial_quantize(t, job);
    }
}

// All values of a 16-bit dtype up to amax, both signs. values: room for N_PATTERNS.
static void quantize_all_up_to(trial *t, fq_dtype dtype, uint16_t amax, uint16_t *values) {
    size_t n = 0;
    for (uint32_t magnitude = 0; magnitude <= amax; magnitude++) {
        values[n++] = (uint16_t)magnitude;
        values[n++] = (uint16_t)(magnitude | 0x8000);
    }
    quantize_block(t, dtype, values, n, reference_load(dtype, &amax, 0));
}

// Each exponent with mantissas at which something changes: powers of two; 1.75, which is 448·2^k,
// and its neighbours; the greatest.
static void test_16_bit_values(trial *t, uint16_t *values, uint32_t step) {
    static const uint16_t bf16[] = {0x00, 0x5F, 0x60, 0x61, 0x7F};
    const size_t f16_step = step > 1 ? 3 : 1;
    static const uint16_t f16[] = {0x000, 0x001, 0x155, 0x2FF, 0x300, 0x301, 0x3FF};
    for (uint32_t exponent = 0; exponent < 255; exponent += step)
        for (size_t i = 0; i < sizeof bf16 / sizeof bf16[0]; i++)
            quantize_all_up_to(t, FQ_BF16, (uint16_t)(exponent << 7 | bf16[i]), values);
    for (uint32_t exponent = 0; exponent < 31; exponent++)
        for (size_t i = 0; i < sizeof f16 / sizeof f16[0]; i += f16_step)
            quantize_all_up_to(t, FQ_F16, (uint16_t)(exponent << 10 | f16[i]), values);
}

// FP32 values are too many to try them all. Each rounding point of E4M3 under a scale, and its
// neighbours to both sides, are those that an inexact division would get wrong.
static size_t fill_rounding_points(float *values, float amax) {
    const float scale = amax / FQ_E4M3_MAX;
    size_t n = 0;
    values[n++] = amax;
    for (uint8_t code = 0; code < FQ_E4M3_MAX_CODE; code++) {
        const float low = fq_f32_of_e4m3(code), high = fq_f32_of_e4m3((uint8_t)(code + 1));
        const float middle = (low + high) / 2 * scale;
        const uint32_t bits = fq_bits_of_f32(middle);
        for (uint32_t k = bits > 3 ? bits - 3 : 0; k <= bits + 3; k++) {
            const float x = fq_f32_of_bits(k);
            if (x > amax)
                continue;
            values[n++] = x;
            values[n++] = -x;
        }
    }
    return n;
}

static void test_f32_values(trial *t, float *values) {
    uint64_t state = 1;
    for (uint32_t exponent = 0; exponent < 255; exponent++) {
        const uint32_t mantissas[] = {0, 0x600000, 0x5FFFFF, 0x7FFFFF,
                                      (uint32_t)random_next(&state) & 0x7FFFFF};
        for (size_t i = 0; i < sizeof mantissas / sizeof mantissas[0]; i++) {
            const float amax = fq_f32_of_bits(exponent << 23 | mantissas[i]);
            quantize_block(t, FQ_F32, values, fill_rounding_points(values, amax), amax);
        }
    }
}

// The codes in groups with and without NaN: SIMD variants treat these differently.
static void fill_codes(uint8_t *codes) {
    for (uint32_t i = 0; i < N_CODES; i++) {
        const uint8_t code = (uint8_t)(i * 37); // neighbours in memory are none in value
        codes[i] = (code & 0x7F) == FQ_E4M3_NAN_CODE ? (uint8_t)i & 0x80u : code;
    }
    codes[N_NUMBERS + 5] = 0x7F;
    codes[N_NUMBERS + 20] = 0xFF;
}

// Casts every code back under each of n scales, to all targets.
static void dequantize_all(trial *t, const float *scales, size_t n) {
    uint8_t *codes = trial_alloc(MAX_ELEMENTS);
    fill_codes(codes);
    for (size_t row = 1; row < SCALES_PER_JOB; row++)
        memcpy(codes + row * N_CODES, codes, N_CODES);
    static const fq_dtype targets[] = {FQ_BF16, FQ_F16, FQ_F32};
    for (size_t i = 0; i < n; i += SCALES_PER_JOB) {
        for (size_t k = 0; k < 3; k++) {
            const fq_dequantize_job job = {
                .codes = codes,
                .rows = n - i < SCALES_PER_JOB ? n - i : SCALES_PER_JOB,
                .cols = N_CODES,
                .block = {1, N_CODES},
                .scales = scales + i,
                .target_dtype = targets[k],
            };
            trial_dequantize(t, job);
        }
    }
    free(codes);
}

// Every scale that BF16 or E8M0 can say, zero and subnormals too, every step-th of them; FP32
// scales between these, and those of all BF16 amax.
static void test_codes(trial *t, uint32_t step) {
    float *scales = trial_alloc(4 * 0x7F80 * sizeof *scales);
    uint64_t state = 2;
    size_t n = 0;
    for (uint32_t bits = 0; bits < 0x7F80; bits += step) {
        const float amax = fq_f32_of_bf16((uint16_t)bits);
        scales[n++] = amax;
        scales[n++] = fq_f32_of_bits(bits << 16 | (uint32_t)(random_next(&state) & 0xFFFF));
        scales[n++] = fq_scale_of_amax(amax, 0.0f, false);
    }
    for (uint32_t e = 0; e < 255; e++)
        scales[n++] = fq_f32_of_e8m0((uint8_t)e);
    scales[n++] = FLT_MAX;
    scales[n++] = 0x1p-149f;
    dequantize_all(t, scales, n);
    free(scales);
}

// The 127 finite E4M3 values from +0 on, in units of 2^-9, as the tables of the OCP specification
// have them: written out, so that they share no formula with the code.
static const uint32_t ocp_values[] = {
    0,      1,      2,      3,      4,      5,      6,      7,     8,     9,      10,     11,
    12,     13,     14,     15,     16,     18,     20,     22,    24,    26,     28,     30,
    32,     36,     40,     44,     48,     52,     56,     60,    64,    72,     80,     88,
    96,     104,    112,    120,    128,    144,    160,    176,   192,   208,    224,    240,
    256,    288,    320,    352,    384,    416,    448,    480,   512,   576,    640,    704,
    768,    832,    896,    960,    1024,   1152,   1280,   1408,  1536,  1664,   1792,   1920,
    2048,   2304,   2560,   2816,   3072,   3328,   3584,   3840,  4096,  4608,   5120,   5632,
    6144,   6656,   7168,   7680,   8192,   9216,   10240,  11264, 12288, 13312,  14336,  15360,
    16384,  18432,  20480,  22528,  24576,  26624,  28672,  30720, 32768, 36864,  40960,  45056,
    49152,  53248,  57344,  61440,  65536,  73728,  81920,  90112, 98304, 106496, 114688, 122880,
    131072, 147456, 163840, 180224, 196608, 212992, 229376,
};
enum { N_OCP_VALUES = sizeof ocp_values / sizeof ocp_values[0] };

// All codes that are numbers, under a scale of 2^9.
static void test_ocp_values(trial *t) {
    static_assert(N_OCP_VALUES == FQ_E4M3_MAX_CODE + 1, "one value for each code up to 448");
    uint8_t *codes = trial_alloc(2 * N_OCP_VALUES);
    const float scale = 512.0f;
    for (uint32_t i = 0; i < N_OCP_VALUES; i++) {
        codes[i] = (uint8_t)i;
        codes[N_OCP_VALUES + i] = (uint8_t)(i | 0x80);
    }
    const fq_dequantize_job job = {.codes = codes,
                                   .rows = 1,
                                   .cols = 2 * N_OCP_VALUES,
                                   .block = {1, 2 * N_OCP_VALUES},
                                   .scales = &scale,
                                   .target_dtype = FQ_F32};
    trial_dequantize(t, job);
    for (uint32_t i = 0; i < N_OCP_VALUES; i++) {
        const uint32_t bits = fq_bits_of_f32((float)ocp_values[i]);
        CHECK_U64(trial_bits(t->expected, i, 4), bits);
        CHECK_U64(trial_bits(t->expected, N_OCP_VALUES + i, 4), bits | 0x80000000u);
    }
    free(codes);
}

// step: 1 tries all that is written above, more leaves out some.
int main(int argc, char **argv) {
    const uint32_t step = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    trial t = {.expected = NULL};
    trial_init(&t, MAX_ELEMENTS, SCALES_PER_JOB);
    void *values = trial_alloc(N_PATTERNS * sizeof(float));
    test_ocp_values(&t);
    test_16_bit_values(&t, values, step);
    test_f32_values(&t, values);
    test_codes(&t, step);
    free(values);
    trial_finish(&t);
    return check_result();
}
