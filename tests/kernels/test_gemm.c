// The GEMM of every variant is what lib/gemm.h says, to the bit: for any shape, any cut into strips
// and pieces, any kind of reference, and with packed words; since verify's figures are to be the
// same on every machine. On GPUs that is so but for Y, which has a bound, and what follows from it.
#include "gemm_operands.h"
#include "gemm_trial.h"

enum { MAX_TOKENS = 70, MAX_ROWS = 300, MAX_COLS = 1200 };

// [rows, tokens], to be freed.
static gemm_element *expect(const gemm_case *c) {
    const uint64_t tokens = c->x.tokens;
    gemm_element *expected = trial_alloc(tokens * c->w.rows * sizeof *expected);
    for (uint64_t row = 0; row < c->w.rows; row++) {
        gemm_element *elements = &expected[row * tokens];
        for (uint64_t t = 0; t < tokens; t++)
            elements[t] = reference_gemm(c, t, row);
        // The packed words may say something else.
        const bool is_bound = !c->w.packed && reference_gemm_counts(elements, tokens);
        for (uint64_t t = 0; t < tokens && is_bound; t++)
            CHECK(fabs((double)elements[t].product - elements[t].exact) <=
                  gemm_bound(c, &elements[t]));
    }
    return expected;
}

static bool is_product(const gemm_case *c, const gemm_element *y, float product) {
    if (subjects_are_gpus())
        return fabs((double)product - (double)y->product) <= gemm_bound(c, y);
    return memcmp(&product, &y->product, sizeof product) == 0 ||
           (isnan(product) && isnan(y->product));
}

// product: [tokens, rows], as it came out. On GPUs a row that is left out may have any.
static bool check_product(const subject *s, const gemm_case *c, const float *product,
                          const gemm_element *expected) {
    const uint64_t tokens = c->x.tokens;
    for (uint64_t i = 0; i < tokens * c->w.rows; i++) {
        const gemm_element *row = &expected[i / tokens * tokens], *y = &expected[i];
        const float actual = product[i % tokens * c->w.rows + i / tokens];
        if (subjects_are_gpus() && !reference_gemm_counts(row, tokens))
            continue;
        if (CHECK(is_product(c, y, actual)))
            continue;
        CHECK_NOTE("%s: Y: row %" PRIu64 ", token %" PRIu64 ": %a, not %a\n", s->name, i / tokens,
                   i % tokens, (double)actual, (double)y->product);
        return false;
    }
    return true;
}

// The sums of a row, of the products that came out.
static fq_gemm_sums sums_of(const gemm_case *c, uint64_t row, const float *product,
                            const gemm_element *expected) {
    gemm_element elements[MAX_TOKENS];
    const uint64_t tokens = c->x.tokens;
    CHECK(tokens <= MAX_TOKENS);
    for (uint64_t t = 0; t < tokens; t++) {
        elements[t] = expected[row * tokens + t];
        elements[t].product = product[t * c->w.rows + row];
    }
    return reference_gemm_sums(c, elements);
}

static void check_cut(const subject *s, const gemm_case *c, gemm_cut cut,
                      const gemm_element *expected) {
    gemm_outcome actual = {.sums = NULL};
    gemm_run(s, c, cut, &actual);
    bool good = check_product(s, c, actual.product, expected);
    for (uint64_t row = 0; good && row < c->w.rows; row++) {
        const fq_gemm_sums sums = sums_of(c, row, actual.product, expected);
        const fq_gemm_sums *a = &actual.sums[row], *e = &sums;
        good = CHECK(memcmp(a, e, sizeof *a) == 0);
        if (!good)
            CHECK_NOTE("%s: row %" PRIu64 ": %" PRIu64 " elements, %a, %a, %a, %a, not %" PRIu64
                       ", %a, %a, %a, %a\n",
                       s->name, row, a->n, a->kernel_error2, a->exact2, a->error2, a->reference2,
                       e->n, e->kernel_error2, e->exact2, e->error2, e->reference2);
    }
    if (!good)
        CHECK_NOTE("%" PRIu64 " tokens, weight [%" PRIu64 ", %" PRIu64 "], %s%s, cut into [%" PRIu64
                   ", %" PRIu64 "]\n",
                   c->x.tokens, c->w.rows, c->w.cols,
                   c->w.source ? fq_dtype_name(c->w.source_dtype) : "no reference",
                   c->w.packed ? ", packed" : "", cut.rows, cut.cols);
    gemm_outcome_free(&actual);
}

static void check_case(const subjects *them, const gemm_case *c) {
    static const gemm_cut cuts[] = {{0, 0}, {128, 512}, {256, 0}, {0, 1024}};
    gemm_element *expected = expect(c);
    for (size_t k = 0; k < them->n; k++) {
        for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
            check_cut(&them->all[k], c, cuts[i], expected);
    }
    free(expected);
}

static void test_shape(const subjects *them, uint64_t tokens, uint64_t rows, uint64_t cols,
                       uint64_t *state) {
    static const fq_dtype dtypes[] = {FQ_BF16, FQ_F16, FQ_F32};
    gemm_operands o = gemm_operands_make(tokens, rows, cols, dtypes[random_below(state, 3)],
                                         random_below(state, 3) == 0, state);
    check_case(them, &o.c);
    o.c.w.source = NULL;
    check_case(them, &o.c);
    gemm_operands_free(&o);
}

static void test_shapes(const subjects *them, uint32_t n_random, uint64_t *state) {
    test_shape(them, 1, 1, 1, state);
    test_shape(them, 33, 9, 129, state);
    test_shape(them, 32, 128, 512, state);
    test_shape(them, 65, 130, 1100, state);
    for (uint32_t i = 0; i < n_random; i++)
        test_shape(them, 1 + random_below(state, MAX_TOKENS), 1 + random_below(state, MAX_ROWS),
                   1 + random_below(state, MAX_COLS), state);
}

// Words in row-major order instead, which nothing but the product shows where all have a place.
static void test_words_in_wrong_order(const subjects *them, uint64_t *state) {
    gemm_operands o = gemm_operands_make(8, 256, 1024, FQ_BF16, true, state);
    uint32_t *row_major = trial_alloc(2 * 256 * sizeof *row_major);
    for (size_t row = 0; row < 256; row++) {
        for (size_t word = 0; word < 2; word++)
            row_major[row * 2 + word] = o.packed[word * 256 + row];
    }
    memcpy(o.packed, row_major, 2 * 256 * sizeof *row_major);
    check_case(them, &o.c);
    gemm_element *expected = expect(&o.c);
    const fq_gemm_sums sums = reference_gemm_sums(&o.c, &expected[200 * o.c.x.tokens]);
    CHECK(sums.kernel_error2 > 0.01 * sums.exact2);
    free(expected);
    free(row_major);
    gemm_operands_free(&o);
}

// What FP32 cannot hold is left out: rows with a NaN code, with an infinite weight, with scales
// that make the product overflow or vanish. A row is, too, where that is so for one token of many:
// the others' products are those that cancel, and any error is great beside them.
static void test_left_out(const subjects *them, uint64_t *state) {
    gemm_operands o = gemm_operands_make(5, 400, 300, FQ_BF16, false, state);
    o.w_codes[7 * 300 + 299] = 0xFF;
    ((uint16_t *)o.source)[20 * 300 + 3] = 0x7F80;
    for (size_t block = 0; block < 3; block++) {
        o.w_scales[1 * 3 + block] = 0x1p120f;
        o.w_scales[2 * 3 + block] = 0x1p-149f;
    }
    ((uint16_t *)o.source)[30 * 300 + 5] = 0x7200; // 2^101
    for (size_t token = 0; token < 5; token++)
        o.values[token * 300 + 5] = token == 2 ? 0x3F80 : 0;
    check_case(them, &o.c);
    gemm_element *expected = expect(&o.c);
    static const struct {
        uint64_t row, n;
    } rows[] = {{7, 0}, {20, 0}, {21, 5}, {30, 0}, {128, 0}, {256, 0}, {384, 5}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_U64(reference_gemm_sums(&o.c, &expected[rows[i].row * 5]).n, rows[i].n);
    free(expected);
    gemm_operands_free(&o);
}

// Two lanes at once, each with a strip of its own, do not meet.
static void test_lanes(const subjects *them, uint64_t *state) {
    gemm_operands a = gemm_operands_make(3, 40, 200, FQ_BF16, false, state),
                  b = gemm_operands_make(40, 7, 384, FQ_F32, false, state);
    const gemm_operands *both[2] = {&a, &b};
    for (size_t k = 0; k < them->n; k++) {
        const subject *s = &them->all[k];
        const fq_gemm *gemm = fq_gemm_find(s->backend);
        fq_gemm_operand *x[2] = {NULL, NULL};
        fq_gemm_sums sums[2][40];
        fq_error err = {0};
        for (uint32_t lane = 0; lane < 2; lane++) {
            CHECK(gemm->load(&x[lane], s->device, &both[lane]->c.x, &err) == FQ_OK);
            const fq_gemm_strip strip = {.activations = x[lane], .rows = both[lane]->c.w.rows};
            CHECK(gemm->begin(s->device, lane, &strip, &err) == FQ_OK);
        }
        for (uint32_t lane = 0; lane < 2; lane++)
            CHECK(gemm->add(s->device, lane, &both[lane]->c.w, &err) == FQ_OK);
        for (uint32_t lane = 0; lane < 2; lane++) {
            const gemm_case *c = &both[lane]->c;
            float product[40 * 7]; // of the larger one
            const fq_gemm_result result = {.sums = sums[lane], .product = product};
            gemm_element *expected = expect(c);
            CHECK(gemm->end(s->device, lane, &result, &err) == FQ_OK);
            CHECK(s->backend->wait(s->device, lane, &err) == FQ_OK);
            check_product(s, c, product, expected);
            for (uint64_t row = 0; row < c->w.rows; row++) {
                const fq_gemm_sums e = sums_of(c, row, product, expected);
                CHECK(memcmp(&sums[lane][row], &e, sizeof e) == 0);
            }
            free(expected);
            gemm->unload(s->device, x[lane]);
        }
        gemm->unload(s->device, NULL);
    }
    gemm_operands_free(&a);
    gemm_operands_free(&b);
}

// n_random: how many random shapes.
int main(int argc, char **argv) {
    const uint32_t n_random = argc > 1 ? (uint32_t)atoi(argv[1]) : 24;
    const fq_device_options options = {.n_lanes = 2, .max_elements = 1, .max_blocks = 1};
    uint64_t state = 5;
    subjects them;
    subjects_open(&them, &options);
    test_shapes(&them, n_random, &state);
    test_words_in_wrong_order(&them, &state);
    test_left_out(&them, &state);
    test_lanes(&them, &state);
    subjects_close(&them);
    return check_result();
}
