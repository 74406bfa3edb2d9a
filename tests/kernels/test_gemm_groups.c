// The strips of a group have the sums that each has by itself: those of Yexact and Yref to the bit,
// those of Y within its bound, whatever is mixed in the group, however weights are cut, and when it
// is launched. Where a backend has no groups, they have all the bits of lib/gemm.h.
#include "gemm_operands.h"
#include "gemm_trial.h"

enum { N_LANES = 3, MAX_WEIGHTS = 5 };

// Experts of a layer, [rows, cols] each, and how they are multiplied.
typedef struct group_case {
    uint64_t tokens, rows, cols;
    uint32_t n_weights;
    gemm_cut cut; // rows: not 0
    fq_dtype source_dtype;
    bool packed;
    bool launches_early; // whenever every lane has ended a strip
} group_case;

typedef struct expert {
    gemm_operands o;
    fq_gemm_sums *sums;
} expert;

// A strip, and where its sums go to.
typedef struct strip {
    expert *of;
    uint64_t row0, rows;
    uint32_t n_taken;
} strip;

// One use of a group.
typedef struct use {
    const subject *s;
    const fq_gemm *gemm;
    const group_case *c;
    fq_gemm_operand *x;
    fq_gemm_group *group;
} use;

static void take(void *taker, const fq_gemm_sums *sums, uint64_t rows) {
    strip *s = taker;
    CHECK_U64(rows, s->rows);
    memcpy(s->of->sums + s->row0, sums, s->rows * sizeof *sums);
    s->n_taken++;
}

static void begin(const use *u, uint32_t lane, strip *s) {
    fq_error err = {0};
    const fq_gemm_strip of_gemm = {
        .activations = u->x, .rows = s->rows, .group = u->group, .taker = s};
    CHECK(u->gemm->begin(u->s->device, lane, &of_gemm, &err) == FQ_OK);
}

static void add(const use *u, uint32_t lane, const strip *s, uint64_t col0, uint64_t cols) {
    fq_error err = {0};
    gemm_copy copy;
    gemm_copy_piece(&copy, &s->of->o.c.w, s->row0, s->rows, col0, cols);
    CHECK(u->gemm->add(u->s->device, lane, &copy.piece, &err) == FQ_OK);
    CHECK(u->s->backend->wait(u->s->device, lane, &err) == FQ_OK);
    for (size_t i = 0; i < 4; i++)
        free(copy.memory[i]);
}

static void end(const use *u, uint32_t lane, strip *s) {
    fq_error err = {0};
    const fq_gemm_result result = {.sums = s->of->sums + s->row0};
    CHECK(u->gemm->end(u->s->device, lane, u->group ? NULL : &result, &err) == FQ_OK);
    CHECK(u->s->backend->wait(u->s->device, lane, &err) == FQ_OK);
    s->n_taken += !u->group;
}

// Strips side by side, one a lane.
static void multiply(const use *u, strip *strips, uint32_t n) {
    const uint64_t all = u->c->cols, at_once = u->c->cut.cols > 0 ? u->c->cut.cols : all;
    for (uint32_t lane = 0; lane < n; lane++)
        begin(u, lane, &strips[lane]);
    for (uint64_t col0 = 0; col0 < all; col0 += at_once) {
        for (uint32_t lane = 0; lane < n; lane++)
            add(u, lane, &strips[lane], col0, all - col0 < at_once ? all - col0 : at_once);
    }
    for (uint32_t lane = 0; lane < n; lane++)
        end(u, lane, &strips[lane]);
}

static bool is_near(double sum2, double expected2, double bound2) {
    return fabs(sqrt(sum2) - sqrt(expected2)) <= 1.0001 * sqrt(bound2);
}

static bool is_row(const gemm_case *c, uint64_t row, const fq_gemm_sums *actual) {
    gemm_element elements[64];
    double bound2 = 0.0;
    CHECK(c->x.tokens <= 64);
    for (uint64_t t = 0; t < c->x.tokens; t++) {
        elements[t] = reference_gemm(c, t, row);
        const double bound = gemm_bound(c, &elements[t]);
        bound2 += bound * bound;
    }
    const fq_gemm_sums expected = reference_gemm_sums(c, elements);
    if (!subjects_are_gpus())
        return memcmp(actual, &expected, sizeof expected) == 0;
    return actual->n == expected.n && actual->exact2 == expected.exact2 &&
           actual->reference2 == expected.reference2 &&
           is_near(actual->kernel_error2, expected.kernel_error2, bound2) &&
           is_near(actual->error2, expected.error2, c->w.source ? bound2 : 0.0);
}

static void check_expert(const use *u, const expert *e) {
    for (uint64_t row = 0; row < u->c->rows; row++) {
        if (CHECK(is_row(&e->o.c, row, &e->sums[row])))
            continue;
        CHECK_NOTE("%s: row %" PRIu64 " of [%" PRIu64 ", %" PRIu64 "], %" PRIu64 " tokens%s\n",
                   u->s->name, row, u->c->rows, u->c->cols, u->c->tokens,
                   u->c->packed ? ", packed" : "");
        return;
    }
}

static void run_group(use *u, expert *experts, strip *strips, uint32_t n_strips) {
    fq_error err = {0};
    const fq_gemm_group_options options = {.activations = u->x,
                                           .rows = strips[0].rows,
                                           .n_strips = n_strips,
                                           .has_words = u->c->packed,
                                           .take = take};
    CHECK(u->gemm->open_group(&u->group, u->s->device, &options, &err) == FQ_OK);
    CHECK((u->group != NULL) == subjects_are_gpus());
    for (uint32_t i = 0; i < n_strips; i += N_LANES) {
        multiply(u, strips + i, n_strips - i < N_LANES ? n_strips - i : N_LANES);
        CHECK_U64(strips[i].n_taken, !u->group);
        if (u->c->launches_early)
            CHECK(u->gemm->launch(u->s->device, u->group, &err) == FQ_OK);
        CHECK_U64(strips[i].n_taken, !u->group || u->c->launches_early);
    }
    CHECK(u->gemm->launch(u->s->device, u->group, &err) == FQ_OK);
    CHECK(u->gemm->launch(u->s->device, u->group, &err) == FQ_OK); // there is nothing left
    for (uint32_t i = 0; i < n_strips; i++)
        CHECK_U64(strips[i].n_taken, 1);
    for (uint32_t i = 0; i < u->c->n_weights; i++)
        check_expert(u, &experts[i]);
    u->gemm->close_group(u->s->device, u->group);
}

static void run_on(const subject *s, const group_case *c, expert *experts) {
    const uint64_t n_per_weight = fq_ceil_div(c->rows, c->cut.rows);
    const uint32_t n_strips = (uint32_t)n_per_weight * c->n_weights;
    strip *strips = trial_alloc(n_strips * sizeof *strips);
    use u = {.s = s, .gemm = fq_gemm_find(s->backend), .c = c};
    fq_error err = {0};
    for (uint32_t i = 0; i < n_strips; i++) { // the experts in turns
        const uint64_t row0 = i / c->n_weights * c->cut.rows, left = c->rows - row0;
        strips[i] = (strip){.of = &experts[i % c->n_weights],
                            .row0 = row0,
                            .rows = left < c->cut.rows ? left : c->cut.rows};
    }
    CHECK(u.gemm->load(&u.x, s->device, &experts[0].o.c.x, &err) == FQ_OK);
    run_group(&u, experts, strips, n_strips);
    u.gemm->unload(s->device, u.x);
    free(strips);
}

// Words of some rows that are not those of the first of their 128.
static void spoil_words(const group_case *c, expert *e) {
    for (uint64_t row = 1; row < c->rows; row += 37)
        e->o.packed[row] += 0x01010101u;
}

static void test_case(const subjects *them, const group_case *c, uint64_t *state) {
    expert experts[MAX_WEIGHTS];
    for (uint32_t i = 0; i < c->n_weights; i++) {
        experts[i].o =
            gemm_operands_make(c->tokens, c->rows, c->cols, c->source_dtype, c->packed, state);
        experts[i].sums = trial_alloc(c->rows * sizeof *experts[i].sums);
        experts[i].o.c.x = experts[0].o.c.x;
        if (i == 1) // what one has not, others have
            experts[i].o.c.w.source = NULL;
        if (i == 2 && c->packed)
            spoil_words(c, &experts[i]);
    }
    for (size_t k = 0; k < them->n; k++)
        run_on(&them->all[k], c, experts);
    for (uint32_t i = 0; i < c->n_weights; i++) {
        gemm_operands_free(&experts[i].o);
        free(experts[i].sums);
    }
}

static const group_case cases[] = {
    {1, 1, 1, 2, {1, 0}, FQ_BF16, false, false},
    {33, 130, 600, 5, {130, 0}, FQ_BF16, false, false},
    {33, 300, 600, 3, {128, 0}, FQ_F32, false, false}, // the last strips have fewer rows
    {20, 200, 1100, 3, {200, 512}, FQ_F16, false, false},
    {20, 270, 1100, 4, {256, 512}, FQ_BF16, true, false}, // rows of words that begin anywhere
    {7, 130, 600, 5, {128, 0}, FQ_BF16, true, true},
    {64, 256, 512, 4, {256, 0}, FQ_BF16, false, true},
    {3, 128, 77, 5, {128, 0}, FQ_BF16, false, true}, // rows of codes that begin anywhere
};

// n: how many of the cases, from the first on.
int main(int argc, char **argv) {
    const size_t n_cases = sizeof cases / sizeof cases[0];
    const size_t n = argc > 1 ? (size_t)atoi(argv[1]) : n_cases;
    const fq_device_options options = {
        .n_lanes = N_LANES, .max_elements = 1, .max_blocks = 1, .for_checks = true};
    uint64_t state = 7;
    subjects them;
    subjects_open(&them, &options);
    for (size_t i = 0; i < n && i < n_cases; i++)
        test_case(&them, &cases[i], &state);
    subjects_close(&them);
    return check_result();
}
