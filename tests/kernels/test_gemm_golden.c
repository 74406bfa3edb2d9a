// The GEMM gives what PyTorch's FP32 and FP64 arithmetic and DeepGEMM on an H200 gave for the same
// operands, by scales in FP32 and by packed words: the definition is that of the engines.
#include "gemm_trial.h"
#include "golden.h"

enum { TOKENS = 32, ROWS = 160, COLS = 512, N_BLOCKS = COLS / 128 };

static golden read_f32(const char *file, const char *name) {
    const golden read = golden_read(file, name);
    CHECK(read.dtype == FQ_F32 && read.rows == TOKENS && read.cols == ROWS);
    return read;
}

// ‖a − b‖ / ‖b‖
static double difference(const float *a, const float *b) {
    double error2 = 0.0, square = 0.0;
    for (size_t i = 0; i < TOKENS * ROWS; i++) {
        const double error = (double)a[i] - (double)b[i];
        error2 += error * error;
        square += (double)b[i] * (double)b[i];
    }
    return sqrt(error2 / square);
}

// Tensor cores keep about 14 bits.
static double max_difference(void) { return subjects_are_gpus() ? 2e-4 : 1e-7; }

static void check_product(const char *name, const gemm_outcome *outcome, double exact2) {
    char file[64];
    snprintf(file, sizeof file, "gemm32x160x512.%s", name);
    const golden blocks = read_f32(file, "ref_blockacc_f32");
    const golden exact = read_f32(file, "ref_f64_as_f32");
    const golden unquantized = read_f32(file, "unquantized_f32");
    // Its sum of a block runs in another order.
    CHECK(difference(outcome->product, blocks.data) < max_difference());
    CHECK(difference(outcome->product, exact.data) < max_difference());
    const double error = difference(outcome->product, unquantized.data);
    CHECK(error > 0.035 && error < 0.041);
    double square = 0.0;
    for (size_t i = 0; i < TOKENS * ROWS; i++)
        square += (double)((float *)exact.data)[i] * (double)((float *)exact.data)[i];
    CHECK(fabs(exact2 / square - 1.0) < 1e-7); // rounded to FP32 there
    free(blocks.data);
    free(exact.data);
    free(unquantized.data);
}

// DeepGEMM rounds to BF16, which is 1.66e-3 by itself, and its tensor cores keep about 14 bits:
// here and there the nearest BF16 value is another, by one step.
static void check_deepgemm(const char *name, const gemm_outcome *outcome) {
    char file[64];
    snprintf(file, sizeof file, "gemm32x160x512.%s.deepgemm", name);
    const golden theirs = golden_read(file, "d_deepgemm_bf16");
    const uint16_t *bits = theirs.data;
    float values[TOKENS * ROWS];
    size_t n_other = 0;
    for (size_t i = 0; i < TOKENS * ROWS; i++) {
        bool saturated = false;
        values[i] = fq_f32_of_bf16(bits[i]);
        const uint16_t ours = fq_bf16_of_f32_sat(outcome->product[i], &saturated);
        n_other += ours != bits[i];
    }
    CHECK(n_other < TOKENS * ROWS / 10);
    CHECK(difference(values, outcome->product) < 1.7e-3);
    free(theirs.data);
}

static void check_subject(const subject *s, const char *name, const gemm_case *c) {
    gemm_outcome outcome = {.sums = NULL};
    gemm_run(s, c, (gemm_cut){0, 0}, &outcome);
    double exact2 = 0.0, error2 = 0.0;
    for (size_t row = 0; row < ROWS; row++) {
        CHECK_U64(outcome.sums[row].n, TOKENS);
        exact2 += outcome.sums[row].exact2;
        error2 += outcome.sums[row].kernel_error2;
    }
    CHECK(sqrt(error2 / exact2) < max_difference());
    check_product(name, &outcome, exact2);
    check_deepgemm(name, &outcome);
    gemm_outcome_free(&outcome);
}

static void test_golden(const subjects *them, const char *name, bool packed) {
    char file[64];
    snprintf(file, sizeof file, "gemm32x160x512.%s", name);
    const golden a = golden_read(file, "a"), b = golden_read(file, "b");
    const golden a_scale = golden_read(file, "a_scale"), b_scale = golden_read(file, "b_scale");
    uint16_t values[TOKENS * COLS] = {0};
    uint32_t words[ROWS] = {0};
    for (size_t i = 0; i < ROWS * N_BLOCKS; i++) {
        const float scale = ((const float *)b_scale.data)[i / N_BLOCKS / 128 * N_BLOCKS + i % 4];
        words[i / N_BLOCKS] |= (uint32_t)fq_e8m0_of_f32_up(scale) << (8 * (i % N_BLOCKS));
    }
    const gemm_case c = {
        .x = {.tokens = TOKENS,
              .cols = COLS,
              .values = values,
              .codes = a.data,
              .scales = a_scale.data},
        .w = {.rows = ROWS,
              .cols = COLS,
              .codes = b.data,
              .scales = b_scale.data,
              .packed = packed ? words : NULL,
              .packed_stride = ROWS},
    };
    CHECK(a.rows == TOKENS && a.cols == COLS && b.rows == ROWS && b_scale.cols == N_BLOCKS);
    for (size_t k = 0; k < them->n; k++)
        check_subject(&them->all[k], name, &c);
    free(a.data);
    free(b.data);
    free(a_scale.data);
    free(b_scale.data);
}

int main(void) {
    const fq_device_options options = {.n_lanes = 1, .max_elements = 1, .max_blocks = 1};
    subjects them;
    subjects_open(&them, &options);
    test_golden(&them, "fp32", false);
    test_golden(&them, "ue8m0", false);
    test_golden(&them, "ue8m0", true);
    subjects_close(&them);
    return check_result();
}
