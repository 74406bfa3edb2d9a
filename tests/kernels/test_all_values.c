// Every value under many scales, and every code under every kind of scale: what random matrices
// would meet too seldom (subnormals, ties, scales that underflow, results that overflow).
#include "random.h"
#include "trial.h"

enum {
    N_PATTERNS = 0x10000,
    // Each code that is a number, filled up to 256 with some of them again; then a group with NaN.
    N_NUMBERS = 256,
    N_CODES = N_NUMBERS + 40,
    SCALES_PER_JOB = 512,
    MAX_ELEMENTS = SCALES_PER_JOB * N_CODES,
};

static const float floors[] = {FQ_DEFAULT_AMAX_FLOOR, 0.0f, 1e-12f, 1.0f};
enum { N_FLOORS = sizeof floors / sizeof floors[0] };

// One block of n elements, as f32 and pow2 scales, under all floors if all_floors.
static void quantize_block(trial *t, fq_dtype dtype, const void *source, size_t n,
                           bool all_floors) {
    for (size_t i = 0; i < 2 * (all_floors ? N_FLOORS : 2); i++) {
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

// All values of a 16-bit dtype up to amax, both signs. values: as many as quantize_all_up_to needs.
static void quantize_all_up_to(trial *t, fq_dtype dtype, uint16_t amax, uint16_t *values) {
    size_t n = 0;
    for (uint32_t magnitude = 0; magnitude <= amax; magnitude++) {
        values[n++] = (uint16_t)magnitude;
        values[n++] = (uint16_t)(magnitude | 0x8000);
    }
    quantize_block(t, dtype, values, n, false);
}

// Each exponent with mantissas at which something changes: powers of two; 1.75, which is 448·2^k,
// and its neighbours; the greatest.
static void test_16_bit_values(trial *t, uint16_t *values, uint32_t step) {
    static const uint16_t bf16[] = {0x00, 0x5F, 0x60, 0x61, 0x7F};
    static const uint16_t f16[] = {0x000, 0x001, 0x155, 0x2FF, 0x300, 0x301, 0x3FF};
    for (uint32_t exponent = 0; exponent < 255; exponent += step)
        for (size_t i = 0; i < sizeof bf16 / sizeof bf16[0]; i++)
            quantize_all_up_to(t, FQ_BF16, (uint16_t)(exponent << 7 | bf16[i]), values);
    for (uint32_t exponent = 0; exponent < 31; exponent++)
        for (size_t i = 0; i<sizeof f16 / sizeof f16[0]; i += step> 1 ? 3 : 1)
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
            quantize_block(t, FQ_F32, values, fill_rounding_points(values, amax), true);
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

// step: 1 tries all that is written above, more leaves out some.
int main(int argc, char **argv) {
    const uint32_t step = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    trial t = {.expected = NULL};
    trial_init(&t, MAX_ELEMENTS, SCALES_PER_JOB);
    void *values = trial_alloc(N_PATTERNS * sizeof(float));
    test_16_bit_values(&t, values, step);
    test_f32_values(&t, values);
    test_codes(&t, step);
    free(values);
    trial_finish(&t);
    return check_result();
}
