// Random matrices of every shape, dtype and block: each variant gives the bytes and counts of the
// reference, and writes nothing outside. Ends of rows and blocks are where SIMD code goes wrong.
//
// test_shapes [N]: so many matrices.
#include "tests/kernels/matrix.h"
#include "tests/kernels/reference.h"

static const fq_dtype dtypes[] = {FQ_BF16, FQ_F16, FQ_F32};
static const fq_block usual_blocks[] = {{128, 128}, {1, 128}, {32, 32}, {1, 32}};

typedef struct shape {
    uint64_t rows, cols, n, n_scales;
    fq_block block;
    fq_dtype dtype;
    size_t size;
} shape;

static shape random_shape(uint64_t *state) {
    shape s = {.rows = 1 + random_under(state, 300), .cols = 1 + random_under(state, 300)};
    const uint64_t k = random_under(state, 6);
    s.block = k < 4 ? usual_blocks[k]
                    : (fq_block){1 + random_under(state, 400), 1 + random_under(state, 400)};
    s.dtype = dtypes[random_under(state, 3)];
    s.n = s.rows * s.cols;
    s.n_scales = fq_ceil_div(s.rows, s.block.rows) * fq_ceil_div(s.cols, s.block.cols);
    s.size = fq_dtype_bits(s.dtype) / 8;
    return s;
}

static void note_shape(const shape *s) {
    CHECK_NOTE("%d x %d %s in blocks of %d x %d\n", (int)s->rows, (int)s->cols,
               fq_dtype_name(s->dtype), (int)s->block.rows, (int)s->block.cols);
}

static float random_floor(uint64_t *state) {
    switch (random_under(state, 3)) {
    case 0:
        return FQ_DEFAULT_AMAX_FLOOR;
    case 1:
        return 0.0f;
    default: // up to FLT_MAX
        return fq_f32_of_bits((uint32_t)random_under(state, 0x7F800000));
    }
}

static void test_quantize(const devices *all, const shape *s, uint64_t *state) {
    void *source = exact_alloc(s->n * s->size);
    random_fill(source, s->n, s->dtype, state);
    uint8_t *codes = guarded_alloc(s->n);
    float *scales = guarded_alloc(s->n_scales * sizeof *scales);
    fq_quantize_counts counts;
    fq_quantize_job job = {
        .source = source,
        .source_dtype = s->dtype,
        .rows = s->rows,
        .cols = s->cols,
        .block = s->block,
        .pow2_scales = random_under(state, 2),
        .amax_floor = random_floor(state),
        .codes = codes,
        .scales = scales,
        .counts = &counts,
    };
    reference_quantize(&job);
    for (size_t i = 0; i < all->n; i++) {
        fq_quantize_counts found;
        const char *name = all->variants[i]->name;
        job.counts = &found;
        job.codes = guarded_alloc(s->n);
        job.scales = guarded_alloc(s->n_scales * sizeof *scales);
        devices_quantize(all, i, &job);
        const bool same =
            CHECK(same_matrix(name, "code", job.codes, codes, s->rows, s->cols, 1)) &
            CHECK(same_matrix(name, "scale", job.scales, scales, 1, s->n_scales, sizeof *scales)) &
            CHECK(memcmp(&found, &counts, sizeof counts) == 0) &
            CHECK(guarded_intact(job.codes, s->n)) &
            CHECK(guarded_intact(job.scales, s->n_scales * sizeof *scales));
        if (!same)
            note_shape(s);
        guarded_free(job.codes);
        guarded_free(job.scales);
    }
    free(source);
    guarded_free(codes);
    guarded_free(scales);
}

// Scales of all sizes, zero and subnormal too; seldom one that makes results saturate, since one
// is enough for its whole row of blocks.
static float random_scale(uint64_t *state, bool great) {
    const uint64_t k = random_under(state, 64);
    if (k == 0)
        return 0.0f;
    const uint32_t mantissa = (uint32_t)random_under(state, 1u << 23);
    const uint32_t exponent = (uint32_t)random_under(state, great ? 255 : 120);
    return fq_f32_of_bits(exponent << 23 | mantissa);
}

static void test_dequantize(const devices *all, const shape *s, uint64_t *state) {
    uint8_t *codes = exact_alloc(s->n);
    const bool with_nan = random_under(state, 2);
    for (uint64_t i = 0; i < s->n; i++) {
        const uint8_t code = (uint8_t)random_under(state, 256);
        codes[i] = (code & 0x7F) == 0x7F && !(with_nan && random_under(state, 4) == 0) ? 0 : code;
    }
    float *scales = exact_alloc(s->n_scales * sizeof *scales);
    const bool great = random_under(state, 4) == 0;
    for (uint64_t i = 0; i < s->n_scales; i++)
        scales[i] = random_scale(state, great);
    void *expected = guarded_alloc(s->n * s->size);
    fq_dequantize_counts counts;
    fq_dequantize_job job = {
        .codes = codes,
        .rows = s->rows,
        .cols = s->cols,
        .block = s->block,
        .scales = scales,
        .target_dtype = s->dtype,
        .target = expected,
        .counts = &counts,
    };
    reference_dequantize(&job);
    for (size_t i = 0; i < all->n; i++) {
        fq_dequantize_counts found;
        job.counts = &found;
        job.target = guarded_alloc(s->n * s->size);
        devices_dequantize(all, i, &job);
        const bool same = CHECK(same_matrix(all->variants[i]->name, "element", job.target,
                                            expected, s->rows, s->cols, s->size)) &
                          CHECK(memcmp(&found, &counts, sizeof counts) == 0) &
                          CHECK(guarded_intact(job.target, s->n * s->size));
        if (!same)
            note_shape(s);
        guarded_free(job.target);
    }
    free(codes);
    free(scales);
    guarded_free(expected);
}

// More blocks side by side than are taken at once, and a block that is wider than any matrix.
static void test_wide(const devices *all, uint64_t *state) {
    const uint64_t cols[] = {700, 32768 + 130};
    const fq_block blocks[] = {{2, 2}, {128, 128}, {(uint64_t)1 << 63, (uint64_t)1 << 63}};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) {
            shape s = {.rows = 5, .cols = cols[i], .block = blocks[k], .dtype = FQ_BF16, .size = 2};
            s.n = s.rows * s.cols;
            s.n_scales = fq_ceil_div(s.rows, s.block.rows) * fq_ceil_div(s.cols, s.block.cols);
            test_quantize(all, &s, state);
            test_dequantize(all, &s, state);
        }
    }
}

int main(int argc, char **argv) {
    const long n = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;
    devices all = devices_open();
    uint64_t state = 1;
    for (long i = 0; i < n; i++) {
        const shape s = random_shape(&state);
        test_quantize(&all, &s, &state);
        test_dequantize(&all, &s, &state);
    }
    test_wide(&all, &state);
    devices_close(&all);
    return check_result();
}
