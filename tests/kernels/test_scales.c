// Scales at the ends of the range, and the way there and back: what a user sees of the floor, of
// underflow, of the largest values, and of converting twice.
#include "random.h"
#include "trial.h"

enum { ROWS = 128, COLS = 256, N = ROWS * COLS, N_BLOCKS = 2 };

typedef struct scale_case {
    float amax, floor;
    float f32, pow2; // the scales
} scale_case;

// Worked out in exact rational arithmetic, then rounded to FP32.
static const scale_case scale_cases[] = {
    {1.0f, 1e-4f, 0x1.24924ap-9f, 0x1p-8f},
    {448.0f, 1e-4f, 1.0f, 1.0f},
    {0x1.c2p8f, 1e-4f, 0x1.012492p0f, 2.0f},         // 450
    {0x1.FEp127f, 1e-4f, 0x1.236db6p119f, 0x1p120f}, // the largest BF16
    {0.0f, 1e-4f, 0x1.df595ap-23f, 0x1p-22f},        // all under the floor: that of 1e-4
    {1e-5f, 1e-4f, 0x1.df595ap-23f, 0x1p-22f},
    {1.0f, 448.0f, 1.0f, 1.0f},
    {0.0f, 0.0f, 1.0f, 1.0f}, // no floor
    {0x1p-149f, 0.0f, 0x1p-149f, 0x1p-126f},
    {0x1p-140f, 0.0f, 0x1p-149f, 0x1p-126f},        // 2^-140 / 448 rounds to 2^-149
    {0x1p-133f, 0.0f, 0x1.24p-142f, 0x1p-126f},     // 146 steps of 2^-149
    {0x1p-117f, 0.0f, 0x1.24924ap-126f, 0x1p-125f}, // the least normal ones
    {0x1.cp-118f, 0.0f, 0x1p-126f, 0x1p-126f},      // 448·2^-126
};

// A block with that amax. All variants agree on it with the reference; this says what is right.
static void test_scale(trial *t, const scale_case *c) {
    float *source = trial_alloc(64 * sizeof *source);
    for (size_t i = 0; i < 64; i++)
        source[i] = i % 2 ? c->amax : -c->amax;
    fq_quantize_job job = {
        .source = source,
        .source_dtype = FQ_F32,
        .rows = 1,
        .cols = 64,
        .block = {1, 64},
        .amax_floor = c->floor,
    };
    for (int pow2 = 0; pow2 < 2; pow2++) {
        job.pow2_scales = pow2;
        trial_quantize(t, job);
        if (!CHECK(t->expected_scales[0] == (pow2 ? c->pow2 : c->f32)))
            CHECK_NOTE("amax %a, floor %a: scale %a\n", (double)c->amax, (double)c->floor,
                       (double)t->expected_scales[0]);
        CHECK_U64(t->quantized.zero_blocks, c->amax == 0.0f);
        CHECK_U64(t->quantized.floored_blocks, c->amax != 0.0f && c->amax < c->floor);
        CHECK((t->expected[0] & 0x80) && !(t->expected[1] & 0x80)); // -0.0 has a sign too
    }
    free(source);
}

// 448·2^k has the scale 2^k in both kinds, and the code 448.
static void test_448(trial *t) {
    uint16_t *source = trial_alloc(32 * sizeof *source);
    for (uint32_t exponent = 9; exponent < 255; exponent++) {
        for (uint32_t i = 0; i < 32; i++)
            source[i] = (uint16_t)(exponent << 7 | 0x60 | (i % 2) << 15);
        fq_quantize_job job = {
            .source = source,
            .source_dtype = FQ_BF16,
            .rows = 1,
            .cols = 32,
            .block = {1, 32},
        };
        for (int pow2 = 0; pow2 < 2; pow2++) {
            job.pow2_scales = pow2;
            trial_quantize(t, job);
            CHECK(t->expected_scales[0] == ldexpf(1.0f, (int)exponent - 127 - 8));
            CHECK_U64(t->expected[0], 0x7E);
            CHECK_U64(t->expected[1], 0xFE);
        }
    }
    free(source);
}

// Values of many magnitudes, the greatest of a block about 2^top.
static void fill(uint16_t *x, uint64_t *state, uint32_t top) {
    for (size_t i = 0; i < N; i++) {
        const uint32_t less = random_below(state, 12);
        const uint32_t exponent = top > less ? top - less : 0;
        x[i] = (uint16_t)(exponent << 7 | (random_next(state) & 0x807F));
    }
}

// The greatest code of block j.
static uint8_t greatest_code(const uint8_t *codes, size_t j) {
    uint8_t greatest = 0;
    for (size_t i = 0; i < N; i++) {
        if (i % COLS / 128 == j && (codes[i] & 0x7F) > greatest)
            greatest = codes[i] & 0x7F;
    }
    return greatest;
}

// Checks that quantizing what was cast back gives the codes again, in blocks that still have their
// amax: any with FP32 scales, for 448 scales round to it; with powers of two those whose greatest
// code is over 224, for 224 would be reached with half the scale.
static void check_again(const trial *t, const uint8_t *codes, const float *scales, bool pow2) {
    enum { CODE_224 = 0x76 };
    for (size_t j = 0; j < N_BLOCKS; j++) {
        if (pow2 && greatest_code(codes, j) <= CODE_224)
            continue;
        CHECK(t->expected_scales[j] == scales[j]);
        size_t n_differ = 0;
        for (size_t i = 0; i < N; i++)
            n_differ += i % COLS / 128 == j && t->expected[i] != codes[i];
        CHECK_U64(n_differ, 0);
    }
}

static void test_there_and_back(trial *t, uint16_t *x, uint8_t *codes, bool pow2) {
    uint64_t state = 3;
    for (uint32_t top = 114; top < 255; top++) {
        float scales[N_BLOCKS];
        fill(x, &state, top);
        fq_quantize_job quantize = {
            .source = x,
            .source_dtype = FQ_BF16,
            .rows = ROWS,
            .cols = COLS,
            .block = {128, 128},
            .pow2_scales = pow2,
            .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        };
        trial_quantize(t, quantize);
        memcpy(codes, t->expected, N);
        memcpy(scales, t->expected_scales, sizeof scales);
        const fq_dequantize_job back = {
            .codes = codes,
            .rows = ROWS,
            .cols = COLS,
            .block = {128, 128},
            .scales = scales,
            .target_dtype = FQ_BF16,
        };
        trial_dequantize(t, back);
        memcpy(x, t->expected, N * sizeof *x);
        trial_quantize(t, quantize);
        check_again(t, codes, scales, pow2);
    }
}

int main(void) {
    trial t = {.expected = NULL};
    trial_init(&t, N, N_BLOCKS);
    uint16_t *x = trial_alloc(N * sizeof *x);
    uint8_t *codes = trial_alloc(N);
    for (size_t i = 0; i < sizeof scale_cases / sizeof scale_cases[0]; i++)
        test_scale(&t, &scale_cases[i]);
    test_448(&t);
    test_there_and_back(&t, x, codes, false);
    test_there_and_back(&t, x, codes, true);
    free(x);
    free(codes);
    trial_finish(&t);
    return check_result();
}
