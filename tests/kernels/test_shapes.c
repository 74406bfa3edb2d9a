// Random matrices of every shape up to 300x300 and many blocks: ends of rows and of blocks that no
// vector fits, writes beyond a buffer's end, and counts.
#include "random.h"
#include "trial.h"

enum { MAX_SIDE = 300, MAX_ELEMENTS = MAX_SIDE * MAX_SIDE };

static const fq_block blocks[] = {{128, 128}, {1, 128}, {32, 32}, {1, 32},    {48, 80},
                                  {1, 1},     {64, 33}, {7, 16},  {300, 300}, {1000, 5}};
enum { N_BLOCKS = sizeof blocks / sizeof blocks[0] };

static const fq_dtype dtypes[] = {FQ_BF16, FQ_F16, FQ_F32};

// What kinds of numbers a matrix holds.
typedef enum kind { WEIGHTS, WIDE, ANY_FINITE, ANY_BITS, N_KINDS } kind;

static float random_weight(uint64_t *state, kind what) {
    const float x = ((float)random_below(state, 1u << 20) - 0x1p19f) * 0x1p-23f;
    switch (random_below(state, 16)) {
    case 0:
        return 0.0f;
    case 1:
        return -0.0f;
    default:
        return what == WEIGHTS ? x : ldexpf(x, (int)random_below(state, 60) - 40);
    }
}

static void store_bits(fq_dtype dtype, void *array, size_t i, uint32_t bits) {
    if (dtype == FQ_F32)
        ((float *)array)[i] = fq_f32_of_bits(bits);
    else
        ((uint16_t *)array)[i] = (uint16_t)bits;
}

// Any bits of the dtype. Most matrices of them hold NaN; ANY_FINITE clears an exponent's bit.
static void store_any(fq_dtype dtype, void *array, size_t i, uint32_t bits, kind what) {
    const uint32_t exponent_bit = dtype == FQ_F32    ? 1u << 23
                                  : dtype == FQ_BF16 ? 1u << 7
                                                     : 1u << 10;
    store_bits(dtype, array, i, what == ANY_FINITE ? bits & ~exponent_bit : bits);
}

static void fill(fq_dtype dtype, void *array, size_t n, kind what, uint64_t *state) {
    for (size_t i = 0; i < n; i++) {
        bool saturated = false;
        if (what == WEIGHTS || what == WIDE)
            reference_store(dtype, array, i, random_weight(state, what), &saturated);
        else
            store_any(dtype, array, i, (uint32_t)random_next(state), what);
    }
}

// Puts a few NaN and Inf into a matrix, or zeroes a stretch of it.
static void spoil(fq_dtype dtype, void *array, size_t n, uint64_t *state) {
    const uint32_t inf = dtype == FQ_F32 ? 0x7F800000u : dtype == FQ_BF16 ? 0x7F80u : 0x7C00u;
    const uint32_t sign = dtype == FQ_F32 ? 0x80000000u : 0x8000u;
    const uint32_t begin = random_below(state, (uint32_t)n);
    switch (random_below(state, 4)) {
    case 0:
        for (size_t i = begin; i < n; i++)
            store_bits(dtype, array, i, i % 2 ? sign : 0u);
        break;
    case 1:
        for (uint32_t k = random_below(state, 4); k < 4; k++)
            store_bits(dtype, array, random_below(state, (uint32_t)n), inf | k % 2);
        break;
    default:
        break;
    }
}

static void quantize_random(trial *t, fq_quantize_job job, uint64_t *state) {
    const size_t n = job.rows * job.cols;
    // Exactly as large as it must be, so that sanitizers see reads beyond it.
    void *source = trial_alloc(n * fq_dtype_bits(job.source_dtype) / 8);
    fill(job.source_dtype, source, n, (kind)random_below(state, N_KINDS), state);
    spoil(job.source_dtype, source, n, state);
    static const float floors[] = {FQ_DEFAULT_AMAX_FLOOR, FQ_DEFAULT_AMAX_FLOOR, 0.0f, 0.02f};
    job.source = source;
    job.pow2_scales = random_below(state, 2);
    job.amax_floor = floors[random_below(state, 4)];
    trial_quantize(t, job);
    free(source);
}

// Scales of the usual sizes, or any that are allowed.
static float random_scale(uint64_t *state, bool any) {
    const uint32_t usual = 0x38000000u + random_below(state, 0x02000000u);
    return fq_f32_of_bits(any ? random_below(state, 0x7F800000u) : usual);
}

static void dequantize_random(trial *t, fq_dequantize_job job, uint64_t *state) {
    const size_t n = job.rows * job.cols;
    const size_t n_blocks =
        fq_ceil_div(job.rows, job.block.rows) * fq_ceil_div(job.cols, job.block.cols);
    uint8_t *codes = trial_alloc(n);
    float *scales = trial_alloc(n_blocks * sizeof *scales);
    const bool any_scale = random_below(state, 2), nan = random_below(state, 2);
    for (size_t j = 0; j < n_blocks; j++)
        scales[j] = random_scale(state, any_scale);
    for (size_t i = 0; i < n; i++) {
        const uint8_t code = (uint8_t)random_next(state);
        codes[i] = !nan && (code & 0x7F) == FQ_E4M3_NAN_CODE ? 0x80 : code;
    }
    job.codes = codes;
    job.scales = scales;
    trial_dequantize(t, job);
    free(codes);
    free(scales);
}

static void test_shape(trial *t, uint64_t rows, uint64_t cols, fq_block block, uint64_t *state) {
    for (size_t k = 0; k < 3; k++) {
        const fq_quantize_job quantize = {
            .source_dtype = dtypes[k], .rows = rows, .cols = cols, .block = block};
        const fq_dequantize_job dequantize = {
            .target_dtype = dtypes[k], .rows = rows, .cols = cols, .block = block};
        quantize_random(t, quantize, state);
        dequantize_random(t, dequantize, state);
    }
}

// Every width up to 130 with few rows, since the ends of rows are what matters; then random shapes.
static void test_shapes(trial *t, uint32_t n_random, uint64_t *state) {
    for (uint64_t cols = 1; cols <= 130; cols++)
        test_shape(t, 3, cols, blocks[cols % N_BLOCKS], state);
    for (uint32_t i = 0; i < n_random; i++) {
        const uint64_t rows = 1 + random_below(state, MAX_SIDE);
        const uint64_t cols = 1 + random_below(state, MAX_SIDE);
        test_shape(t, rows, cols, blocks[i % N_BLOCKS], state);
    }
}

// Rows of whole vectors, for which a GPU has kernels of their own.
static void test_aligned_shapes(trial *t, uint32_t n_random, uint64_t *state) {
    for (uint32_t i = 0; i < n_random; i++) {
        const uint64_t rows = 1 + random_below(state, MAX_SIDE);
        const uint64_t cols = 4 * (1 + random_below(state, MAX_SIDE / 4));
        test_shape(t, rows, cols, blocks[i % 4 < 3 ? i % 2 : i / 4 % N_BLOCKS], state);
    }
}

// A row with more blocks than a variant may treat at a time.
static void test_many_blocks_in_a_row(trial *t, uint64_t *state) {
    test_shape(t, 5, 17000, (fq_block){2, 16}, state);
    test_shape(t, 2, 40000, (fq_block){1, 1}, state);
    test_shape(t, 1, 65537, (fq_block){128, 128}, state);
}

// One matrix of zeros but for two elements that are not finite. The one at [row, col] comes first
// in row-major order; that below it, to its left, is met before it if blocks are done one by one.
static void test_first_nonfinite(trial *t, uint64_t row, uint64_t col, fq_quantize_job job) {
    float *source = trial_alloc(job.rows * job.cols * sizeof *source);
    memset(source, 0, job.rows * job.cols * sizeof *source);
    source[row * job.cols + col] = -INFINITY;
    source[(row + 1) * job.cols + 1] = NAN;
    job.source = source;
    trial_quantize(t, job);
    CHECK_U64(t->quantized.nonfinite, 2);
    CHECK_U64(t->quantized.nonfinite_row, row);
    CHECK_U64(t->quantized.nonfinite_col, col);
    free(source);
}

// In neighbouring blocks, and with so many blocks in a row that they are not treated at once.
static void test_nonfinite(trial *t) {
    const fq_quantize_job neighbours = {
        .source_dtype = FQ_F32, .rows = 130, .cols = 400, .block = {128, 128}};
    const fq_quantize_job far_apart = {
        .source_dtype = FQ_F32, .rows = 4, .cols = 20000, .block = {4, 1}};
    test_first_nonfinite(t, 5, 300, neighbours);
    test_first_nonfinite(t, 128, 399, neighbours);
    test_first_nonfinite(t, 1, 19000, far_apart);
}

// n_random: how many random shapes.
int main(int argc, char **argv) {
    const uint32_t n_random = argc > 1 ? (uint32_t)atoi(argv[1]) : 400;
    uint64_t state = 4;
    trial t = {.expected = NULL};
    trial_init(&t, MAX_ELEMENTS, MAX_ELEMENTS);
    test_shapes(&t, n_random, &state);
    test_aligned_shapes(&t, n_random / 2, &state);
    test_many_blocks_in_a_row(&t, &state);
    test_nonfinite(&t);
    trial_finish(&t);
    return check_result();
}
