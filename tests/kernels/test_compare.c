// Stored codes held against their weights: every implementation must find the same as the
// definition, to the last bit of the sums, whatever the codes, scales and weights are.
#include "random.h"
#include "reference_compare.h"
#include "subjects.h"
#include "tests/check.h"

enum { MAX_SIDE = 300, MAX_ELEMENTS = 70000, MAX_BLOCKS = 70000 };

static const fq_block blocks[] = {{128, 128}, {1, 128}, {32, 32}, {1, 32},   {48, 80},
                                  {1, 1},     {64, 33}, {7, 16},  {300, 300}};
enum { N_BLOCKS = sizeof blocks / sizeof blocks[0] };

static const fq_dtype dtypes[] = {FQ_BF16, FQ_F16, FQ_F32};

// What a matrix is like before it is spoilt.
typedef enum kind { WEIGHTS, ANY_BITS, N_KINDS } kind;

typedef struct trial {
    subjects subjects;
    fq_block_errors *expected, *actual;
    uint8_t *codes;
    float *scales;
    void *source;
} trial;

static void *allocate(size_t nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, nbytes) != 0)
        exit(1);
    return memory;
}

static bool same_finding(fq_finding a, fq_finding e) {
    return a.n == e.n && (a.n == 0 || (a.first.row == e.first.row && a.first.col == e.first.col));
}

static void check_counts(const char *name, const fq_compare_counts *a, const fq_compare_counts *e) {
    if (CHECK(a->saturated == e->saturated && a->flushed_to_zero == e->flushed_to_zero &&
              same_finding(a->nan_codes, e->nan_codes) &&
              same_finding(a->codes_differ, e->codes_differ) &&
              same_finding(a->out_of_bound, e->out_of_bound) &&
              same_finding(a->nonfinite, e->nonfinite)))
        return;
    CHECK_NOTE("%s: saturated %" PRIu64 " of %" PRIu64 ", flushed %" PRIu64 " of %" PRIu64
               ", NaN %" PRIu64 " of %" PRIu64 ", differ %" PRIu64 " of %" PRIu64
               ", out of bound %" PRIu64 " of %" PRIu64 ", not finite %" PRIu64 " of %" PRIu64 "\n",
               name, a->saturated, e->saturated, a->flushed_to_zero, e->flushed_to_zero,
               a->nan_codes.n, e->nan_codes.n, a->codes_differ.n, e->codes_differ.n,
               a->out_of_bound.n, e->out_of_bound.n, a->nonfinite.n, e->nonfinite.n);
}

static void check_blocks(const char *name, const fq_block_errors *a, const fq_block_errors *e,
                         size_t n, const fq_compare_job *job) {
    for (size_t j = 0; j < n; j++) {
        if (CHECK(memcmp(&a[j], &e[j], sizeof *a) == 0))
            continue;
        CHECK_NOTE("%s: %s [%" PRIu64 ", %" PRIu64 "] in %" PRIu64 "x%" PRIu64 ", block %zu:\n",
                   name, fq_dtype_name(job->source_dtype), job->rows, job->cols, job->block.rows,
                   job->block.cols, j);
        CHECK_NOTE("error2 %a of %a, weight2 %a of %a, amax %a of %a, max_abs %a of %a\n",
                   a[j].error2, e[j].error2, a[j].weight2, e[j].weight2, (double)a[j].amax,
                   (double)e[j].amax, (double)a[j].max_abs, (double)e[j].max_abs);
        return;
    }
}

static void compare(trial *t, fq_compare_job job) {
    const size_t n_blocks =
        fq_ceil_div(job.rows, job.block.rows) * fq_ceil_div(job.cols, job.block.cols);
    fq_compare_counts expected, actual;
    job.codes = t->codes;
    job.scales = t->scales;
    job.source = t->source;
    job.blocks = t->expected;
    job.counts = &expected;
    reference_compare(&job);
    job.blocks = t->actual;
    job.counts = &actual;
    for (size_t k = 0; k < t->subjects.n; k++) {
        const subject *s = &t->subjects.all[k];
        const fq_checker *checker = fq_checker_find(s->backend);
        fq_error err = {0};
        memset(&actual, 0xFF, sizeof actual); // they are overwritten, not added to
        memset(t->actual, 0xFF, n_blocks * sizeof *t->actual);
        CHECK(checker->compare(s->device, 0, &job, &err) == FQ_OK);
        CHECK(s->backend->wait(s->device, 0, &err) == FQ_OK);
        check_counts(s->name, &actual, &expected);
        check_blocks(s->name, t->actual, t->expected, n_blocks, &job);
    }
}

// Weights, and the codes and scales that quantizing makes of them.
static void make_honest(trial *t, const fq_compare_job *job, kind what, uint64_t *state) {
    const size_t n = job->rows * job->cols;
    for (size_t i = 0; i < n; i++) {
        const float x = ((float)random_below(state, 1u << 20) - 0x1p19f) * 0x1p-23f;
        const uint32_t bits = (uint32_t)random_next(state);
        bool saturated = false;
        if (what == WEIGHTS)
            reference_store(job->source_dtype, t->source, i,
                            bits % 16 ? ldexpf(x, -(int)(bits % 20)) : 0.0f, &saturated);
        else if (job->source_dtype == FQ_F32)
            ((float *)t->source)[i] = fq_f32_of_bits(bits & ~(1u << 23));
        else
            ((uint16_t *)t->source)[i] = (uint16_t)(bits & 0xFB7F);
    }
    fq_quantize_counts counts;
    const fq_quantize_job quantize = {
        .source = t->source,
        .source_dtype = job->source_dtype,
        .rows = job->rows,
        .cols = job->cols,
        .block = job->block,
        .pow2_scales = random_below(state, 2),
        .amax_floor = random_below(state, 2) ? FQ_DEFAULT_AMAX_FLOOR : 0.0f,
        .codes = t->codes,
        .scales = t->scales,
        .counts = &counts,
    };
    reference_quantize(&quantize);
}

static uint32_t any(uint64_t *state, size_t n) { return random_below(state, (uint32_t)n); }

// Breaks what make_honest made in one of the ways that files are broken.
static void spoil(trial *t, const fq_compare_job *job, uint64_t *state) {
    const size_t n = job->rows * job->cols;
    const size_t n_blocks =
        fq_ceil_div(job->rows, job->block.rows) * fq_ceil_div(job->cols, job->block.cols);
    const uint32_t inf = job->source_dtype == FQ_BF16 ? 0x7F80u : 0x7C00u;
    float *scale = &t->scales[any(state, n_blocks)];
    switch (random_below(state, 10)) {
    case 0: // single codes
        for (int k = 0; k < 5; k++)
            t->codes[any(state, n)] ^= (uint8_t)(1u << any(state, 8));
        break;
    case 1:
        t->codes[any(state, n)] = 0x7F;
        t->codes[any(state, n)] = 0xFF;
        break;
    case 2: // all codes
        for (size_t i = 0; i < n; i++)
            t->codes[i] = (uint8_t)random_next(state);
        break;
    case 3:
        *scale = 0.0f;
        break;
    case 4:
        *scale *= 0.5f;
        break;
    case 5:
        *scale = fq_f32_of_bits(fq_bits_of_f32(*scale) + 1);
        break;
    case 6: // any scales
        for (size_t j = 0; j < n_blocks; j++)
            t->scales[j] = fq_f32_of_bits(any(state, 0x7F800000u));
        break;
    case 7: // NaN and Inf among the weights
        if (job->source_dtype == FQ_F32)
            ((float *)t->source)[any(state, n)] = any(state, 2) ? NAN : -INFINITY;
        else
            ((uint16_t *)t->source)[any(state, n)] = (uint16_t)(inf | any(state, 2));
        break;
    default:
        break;
    }
}

static void test_shape(trial *t, uint64_t rows, uint64_t cols, fq_block block, uint64_t *state) {
    static const float slacks[] = {0x1p-9f, 0x1p-7f, 0.0f};
    for (size_t k = 0; k < 3; k++) {
        const fq_compare_job job = {.source_dtype = dtypes[k],
                                    .rows = rows,
                                    .cols = cols,
                                    .block = block,
                                    .slack = slacks[any(state, 3)]};
        make_honest(t, &job, (kind)any(state, N_KINDS), state);
        spoil(t, &job, state);
        compare(t, job);
    }
}

// Quotients at the middle between two codes and next to it, under any scales, and the codes on both
// sides: what is not divided exactly takes the one for the other.
static void test_ties(trial *t, uint64_t *state) {
    const fq_compare_job job = {
        .source_dtype = FQ_F32, .rows = 128, .cols = 500, .block = {1, 100}, .slack = 0x1p-9f};
    for (size_t j = 0; j < 128 * 5; j++) {
        const uint32_t exponent = 27 + any(state, 200); // 2^-100 to 2^99
        t->scales[j] = fq_f32_of_bits(exponent << 23 | any(state, 1u << 23));
    }
    for (size_t i = 0; i < 128 * 500; i++) {
        const float scale = t->scales[i / 100];
        const uint8_t low = (uint8_t)any(state, FQ_E4M3_MAX_CODE);
        const float tie = 0.5f * (fq_f32_of_e4m3(low) + fq_f32_of_e4m3((uint8_t)(low + 1)));
        const uint32_t product = fq_bits_of_f32(tie * scale) + any(state, 5) - 2;
        const uint32_t sign = any(state, 2);
        ((float *)t->source)[i] = fq_f32_of_bits(sign << 31 | product);
        t->codes[i] = (uint8_t)(sign << 7 | (low + any(state, 2)));
    }
    compare(t, job);
}

// What quantizing makes is what is expected: no code differs, none is out of bound.
static void test_honest(trial *t, uint64_t *state) {
    const fq_compare_job job = {
        .source_dtype = FQ_BF16, .rows = 200, .cols = 300, .block = {128, 128}, .slack = 0x1p-9f};
    fq_compare_counts counts;
    fq_compare_job filled = job;
    make_honest(t, &job, WEIGHTS, state);
    filled.codes = t->codes;
    filled.scales = t->scales;
    filled.source = t->source;
    filled.blocks = t->expected;
    filled.counts = &counts;
    reference_compare(&filled);
    CHECK_U64(counts.codes_differ.n, 0);
    CHECK_U64(counts.out_of_bound.n, 0);
    t->codes[150 * 300 + 17] ^= 2;
    reference_compare(&filled);
    CHECK_U64(counts.codes_differ.n, 1);
    CHECK_U64(counts.codes_differ.first.row, 150);
    CHECK_U64(counts.codes_differ.first.col, 17);
    compare(t, job);
}

// n_random: how many random shapes.
int main(int argc, char **argv) {
    const uint32_t n_random = argc > 1 ? (uint32_t)atoi(argv[1]) : 300;
    const fq_device_options options = {
        .n_lanes = 1, .max_elements = MAX_ELEMENTS, .max_blocks = MAX_BLOCKS, .for_checks = true};
    uint64_t state = 11;
    trial t = {
        .expected = allocate(MAX_BLOCKS * sizeof *t.expected),
        .actual = allocate(MAX_BLOCKS * sizeof *t.actual),
        .codes = allocate(MAX_ELEMENTS),
        .scales = allocate(MAX_BLOCKS * sizeof *t.scales),
        .source = allocate(MAX_ELEMENTS * sizeof(float)),
    };
    subjects_open(&t.subjects, &options);
    test_honest(&t, &state);
    for (uint32_t i = 0; i < 1 + n_random / 10; i++)
        test_ties(&t, &state);
    for (uint64_t cols = 1; cols <= 130; cols++)
        test_shape(&t, 3, cols, blocks[cols % N_BLOCKS], &state);
    for (uint32_t i = 0; i < n_random; i++) {
        const uint64_t rows = 1 + any(&state, MAX_SIDE);
        test_shape(&t, rows, 1 + any(&state, MAX_ELEMENTS / MAX_SIDE), blocks[i % N_BLOCKS],
                   &state);
    }
    // More blocks in a row than are treated at a time, and one block that is wider than that.
    test_shape(&t, 2, 35000, (fq_block){1, 1}, &state);
    test_shape(&t, 2, 20000, (fq_block){2, 20000}, &state);
    test_shape(&t, 1, 65537, (fq_block){128, 128}, &state);
    subjects_close(&t.subjects);
    free(t.expected);
    free(t.actual);
    free(t.codes);
    free(t.scales);
    free(t.source);
    return check_result();
}
