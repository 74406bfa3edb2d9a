// Experts of a layer share a launch: verify must find all that belong together and nothing else,
// say beforehand how many strips will come and how large they are, hold back no weight for ever,
// and give the figures that each would have had by itself. The GEMM is the CPU's, with groups that
// keep what comes out of it until they are launched.
#include "lib/band.h"
#include "lib/verify.h"
#include "tests/memory_weights.h"

#include <pthread.h>
#include <stdlib.h>

enum { N_LANES = 4, MAX_STRIPS = 64 };

// ---- A GEMM with groups

typedef struct kept_strip {
    void *taker;
    fq_gemm_sums *sums;
    uint64_t rows;
} kept_strip;

struct fq_gemm_group {
    fq_gemm_group_options options;
    pthread_mutex_t lock;
    kept_strip kept[MAX_STRIPS];
    uint64_t n_kept, n_begun, n_given;
};

// What was done with groups in a run.
typedef struct tally {
    uint64_t n_open, n_opened, n_strips, n_launched, n_alone;
    uint64_t n_wrong; // that lanes found, which may not use CHECK
} tally;

static tally did;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of did
static fq_gemm_strip lane_strips[N_LANES];
static bool has_room, launch_fails, is_full; // full: by each strip that ends

static void count(uint64_t *what, uint64_t n) {
    pthread_mutex_lock(&lock);
    *what += n;
    pthread_mutex_unlock(&lock);
}

// What is kept goes to its takers.
static void give(fq_gemm_group *group) {
    pthread_mutex_lock(&group->lock);
    for (; group->n_kept > 0; group->n_kept--, group->n_given++) {
        const kept_strip *kept = &group->kept[group->n_kept - 1];
        group->options.take(kept->taker, kept->sums, kept->rows);
        free(kept->sums);
    }
    pthread_mutex_unlock(&group->lock);
}

static fq_status begin(fq_device *device, uint32_t lane, const fq_gemm_strip *strip,
                       fq_error *err) {
    fq_gemm_strip alone = *strip;
    lane_strips[lane] = *strip;
    alone.group = NULL;
    if (strip->group) {
        const fq_gemm_group_options *options = &strip->group->options;
        count(&did.n_wrong, strip->rows > options->rows);
        count(&did.n_wrong, strip->activations != options->activations);
        count(&strip->group->n_begun, 1);
        if (is_full)
            give(strip->group);
    } else {
        count(&did.n_alone, 1);
    }
    return fq_cpu_gemm.begin(device, lane, &alone, err);
}

static fq_status add(fq_device *device, uint32_t lane, const fq_gemm_piece *piece, fq_error *err) {
    const fq_gemm_group *group = lane_strips[lane].group;
    count(&did.n_wrong, group && group->options.has_words != (piece->packed != NULL));
    return fq_cpu_gemm.add(device, lane, piece, err);
}

static fq_status end(fq_device *device, uint32_t lane, const fq_gemm_result *result,
                     fq_error *err) {
    const fq_gemm_strip *strip = &lane_strips[lane];
    fq_gemm_group *group = strip->group;
    count(&did.n_wrong, !group == !result);
    if (!group)
        return fq_cpu_gemm.end(device, lane, result, err);
    const kept_strip kept = {strip->taker, malloc(strip->rows * sizeof *kept.sums), strip->rows};
    const fq_gemm_result to_keep = {.sums = kept.sums};
    const fq_status status = fq_cpu_gemm.end(device, lane, &to_keep, err);
    pthread_mutex_lock(&group->lock);
    if (group->n_kept < MAX_STRIPS)
        group->kept[group->n_kept++] = kept;
    pthread_mutex_unlock(&group->lock);
    return status;
}

static fq_status open_group(fq_gemm_group **out, fq_device *device,
                            const fq_gemm_group_options *options, fq_error *err) {
    (void)device, (void)err;
    *out = NULL;
    if (!has_room)
        return FQ_OK;
    *out = calloc(1, sizeof **out);
    (*out)->options = *options;
    pthread_mutex_init(&(*out)->lock, NULL);
    count(&did.n_opened, 1);
    count(&did.n_open, 1);
    count(&did.n_strips, options->n_strips);
    return FQ_OK;
}

static fq_status launch(fq_device *device, fq_gemm_group *group, fq_error *err) {
    (void)device;
    if (!group)
        return FQ_OK;
    count(&did.n_wrong, group->n_begun != group->options.n_strips);
    count(&did.n_wrong, group->n_kept + group->n_given != group->options.n_strips);
    count(&did.n_launched, 1);
    if (launch_fails)
        return fq_fail(err, FQ_DEVICE, "the launch fails");
    give(group);
    return FQ_OK;
}

static void close_group(fq_device *device, fq_gemm_group *group) {
    (void)device;
    if (!group)
        return;
    for (; group->n_kept > 0; group->n_kept--)
        free(group->kept[group->n_kept - 1].sums);
    pthread_mutex_destroy(&group->lock);
    free(group);
    count(&did.n_open, (uint64_t)-1);
}

// ---- Models

typedef struct weight {
    uint32_t shard;
    const char *name, *scale_name;
    uint64_t rows, cols;
} weight;

#define WEIGHT(shard, name, rows, cols)                                                            \
    { shard, name ".weight", name ".weight_scale_inv", rows, cols }

// Six groups: gate and up of layer 0, whose experts lie in both shards, down of it but for the
// expert of another shape, gate of layer 1, whose rows are cut in pieces by the least bands, the
// experts that lie deeper, and the stack.
static const weight weights[] = {
    WEIGHT(0, "l.0.experts.0.down", 200, 300),
    WEIGHT(0, "l.0.experts.0.gate", 700, 300),
    WEIGHT(0, "l.0.experts.0.up", 700, 300),
    WEIGHT(0, "l.0.experts.1.down", 200, 300),
    WEIGHT(0, "l.0.experts.1.gate", 700, 300),
    WEIGHT(0, "l.0.shared_experts.gate", 700, 300),
    WEIGHT(1, "l.0.experts.1.up", 700, 300),
    WEIGHT(1, "l.0.experts.10.down", 200, 301),
    WEIGHT(1, "l.0.experts.10.gate", 700, 300),
    WEIGHT(1, "l.0.experts.10.up", 700, 300),
    WEIGHT(1, "l.1.experts.0.gate", 129, 9000),
    WEIGHT(1, "l.1.experts.1.gate", 129, 9000),
    WEIGHT(1, "l.1.experts.1.down", 200, 300),
    WEIGHT(1, "l.2.experts.0.up", 200, 300),
    WEIGHT(1, "l.2.experts.gate", 200, 300),
    WEIGHT(1, "l.3.experts.0.experts.4.up", 200, 300),
    WEIGHT(1, "l.3.experts.0.experts.5.up", 200, 300),
    WEIGHT(1, "l.3.experts.1.experts.4.up", 200, 300),
};

enum { N_WEIGHTS = sizeof weights / sizeof weights[0], N_GROUPS = 6 };

// Of other makers: without a counterpart in the reference.
static void add_stack(memory_checkpoint *to) {
    static const uint64_t shape[] = {3, 200, 300}, grid[] = {3, 2, 3};
    uint8_t *codes = memory_checkpoint_add(to, 0, "l.4.experts.w13_weight", FQ_F8_E4M3, 3, shape);
    for (size_t i = 0; i < 3 * 200 * 300; i++)
        codes[i] = (uint8_t)(0x20 + memory_weights_random() % 0x20);
    float *scales =
        memory_checkpoint_add(to, 0, "l.4.experts.w13_weight_scale_inv", FQ_F32, 3, grid);
    for (size_t i = 0; i < 3 * 2 * 3; i++)
        scales[i] = 0.01f * (float)(1 + memory_weights_random() % 50);
}

static void make_models(memory_checkpoint *reference, memory_checkpoint *quantized) {
    for (size_t i = 0; i < N_WEIGHTS; i++) {
        const weight *w = &weights[i];
        memory_weights_add(reference, quantized, w->shard, w->name, w->scale_name, w->rows,
                           w->cols);
    }
    add_stack(quantized);
    memory_checkpoint_finish(reference, 2);
    memory_checkpoint_finish(quantized, 2);
}

// ---- Runs

typedef struct setting {
    const fq_gemm *gemm;
    uint32_t n_lanes;
    size_t band_elements;
    uint64_t tokens;
    const char *glob; // NULL: all
} setting;

static fq_status verify(fq_verify *out, const memory_checkpoint *quantized,
                        const memory_checkpoint *reference, const setting *with, fq_error *err) {
    const fq_model model = fq_model_unknown();
    const fq_activations_options activations = {.kind = FQ_ACTIVATIONS_NORMAL,
                                                .tokens = with->tokens};
    const fq_verify_options options = {
        .globs = &with->glob, .n_globs = with->glob != NULL, .limits = {-1.0, -1.0, -1.0}};
    const fq_device_options device_options = {.n_lanes = with->n_lanes,
                                              .max_elements = with->band_elements,
                                              .max_blocks = fq_band_max_blocks(with->band_elements),
                                              .for_checks = true};
    fq_verify_run_options run = {
        .backend = &fq_cpu_backend,
        .checker = &fq_cpu_checker,
        .gemm = with->gemm,
        .activations = &activations,
        .n_lanes = with->n_lanes,
        .band_elements = with->band_elements,
    };
    did = (tally){0};
    *out = (fq_verify){.checkpoint = NULL};
    CHECK(run.backend->open(&run.device, &device_options, err) == FQ_OK);
    fq_status status =
        fq_verify_plan(out, &quantized->checkpoint, &model,
                       reference ? &reference->checkpoint : NULL, &model, &options, err);
    if (!status)
        status = fq_verify_run(out, &run, err);
    run.backend->close(run.device);
    CHECK_U64(did.n_open, 0);
    CHECK_U64(did.n_wrong, 0);
    return status;
}

static bool is_same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static void check_same(const fq_verify *a, const fq_verify *b) {
    CHECK(memcmp(&a->summary, &b->summary, sizeof a->summary) == 0);
    CHECK_U64(a->n_tensors, b->n_tensors);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const fq_verify_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        bool same = CHECK(x->has_gemm && y->has_gemm);
        same &= CHECK(memcmp(&x->weight, &y->weight, sizeof x->weight) == 0);
        same &= CHECK(is_same(x->gemm.rel_l2, y->gemm.rel_l2));
        same &= CHECK(is_same(x->gemm.kernel_rel_l2, y->gemm.kernel_rel_l2));
        same &= CHECK(x->gemm.tokens == y->gemm.tokens && x->reasons.n == y->reasons.n);
        if (!same)
            CHECK_NOTE("%s\n", x->tensor->name);
    }
}

static const fq_gemm *joint_gemm(void) {
    static fq_gemm gemm;
    gemm = fq_cpu_gemm;
    gemm.begin = begin;
    gemm.add = add;
    gemm.end = end;
    gemm.open_group = open_group;
    gemm.launch = launch;
    gemm.close_group = close_group;
    return &gemm;
}

// 4 tokens let a strip be a whole band; 300 tokens cut it into 128 rows.
static void test_same_figures(const memory_checkpoint *quantized,
                              const memory_checkpoint *reference) {
    static const struct {
        uint64_t tokens, n_strips; // of all groups, with the largest bands
    } of[] = {{4, 15}, {300, 54}};
    static const size_t bands[] = {FQ_MIN_BAND_ELEMENTS, 3 * FQ_MIN_BAND_ELEMENTS, 4 << 20};
    fq_error err = {0};
    for (size_t k = 0; k < sizeof of / sizeof of[0]; k++) {
        setting with = {&fq_cpu_gemm, 1, 4 << 20, of[k].tokens, NULL};
        fq_verify expected, actual;
        CHECK(verify(&expected, quantized, reference, &with, &err) == FQ_OK);
        with.gemm = joint_gemm();
        for (size_t i = 0; i < 6; i++) {
            with.band_elements = bands[i % 3];
            with.n_lanes = i < 3 ? 1 : N_LANES;
            CHECK(verify(&actual, quantized, reference, &with, &err) == FQ_OK);
            CHECK_U64(did.n_opened, N_GROUPS);
            CHECK_U64(did.n_launched, N_GROUPS);
            if (i % 3 == 2)
                CHECK_U64(did.n_strips, of[k].n_strips);
            check_same(&actual, &expected);
            fq_verify_free(&actual);
        }
        fq_verify_free(&expected);
    }
}

static void test_without_room(const memory_checkpoint *quantized,
                              const memory_checkpoint *reference) {
    setting with = {&fq_cpu_gemm, N_LANES, 4 << 20, 4, NULL};
    fq_verify expected, actual;
    fq_error err = {0};
    CHECK(verify(&expected, quantized, reference, &with, &err) == FQ_OK);
    with.gemm = joint_gemm();
    has_room = false;
    CHECK(verify(&actual, quantized, reference, &with, &err) == FQ_OK);
    has_room = true;
    CHECK_U64(did.n_launched, 0);
    CHECK(did.n_alone > N_WEIGHTS);
    check_same(&actual, &expected);
    fq_verify_free(&actual);
    fq_verify_free(&expected);
}

// Strips are given their sums early, by whatever lane begins another, while others of the same
// weight begin.
static void test_full(const memory_checkpoint *quantized, const memory_checkpoint *reference) {
    setting with = {&fq_cpu_gemm, 1, FQ_MIN_BAND_ELEMENTS, 300, NULL};
    fq_verify expected, actual;
    fq_error err = {0};
    CHECK(verify(&expected, quantized, reference, &with, &err) == FQ_OK);
    with.gemm = joint_gemm();
    is_full = true;
    for (with.n_lanes = 1; with.n_lanes <= N_LANES; with.n_lanes += N_LANES - 1) {
        CHECK(verify(&actual, quantized, reference, &with, &err) == FQ_OK);
        CHECK_U64(did.n_launched, N_GROUPS);
        check_same(&actual, &expected);
        fq_verify_free(&actual);
    }
    is_full = false;
    fq_verify_free(&expected);
}

// Only what was chosen is waited for; one expert alone makes no group.
static void test_chosen(const memory_checkpoint *quantized, const memory_checkpoint *reference) {
    static const struct {
        const char *glob;
        uint64_t n_tensors, n_launched;
    } of[] = {{"l.0.experts.[01].*", 6, 3}, {"*.10.*", 3, 0}, {"*w13*", 1, 1}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const setting with = {joint_gemm(), 2, 4 << 20, 4, of[i].glob};
        fq_verify found;
        fq_error err = {0};
        CHECK(verify(&found, quantized, reference, &with, &err) == FQ_OK);
        CHECK_U64(found.n_tensors, of[i].n_tensors);
        CHECK_U64(did.n_launched, of[i].n_launched);
        for (size_t k = 0; k < found.n_tensors; k++)
            CHECK(found.tensors[k].has_gemm);
        fq_verify_free(&found);
    }
}

static fq_status fail_to_read(fq_source *source, uint64_t offset, void *out, size_t nbytes,
                              fq_error *err) {
    (void)offset, (void)out, (void)nbytes;
    return fq_fail(err, FQ_BAD_INPUT, "%s: cannot be read", source->name);
}

// Groups that are open when a run ends are closed, whatever ended it.
static void test_failures(memory_checkpoint *quantized, memory_checkpoint *reference) {
    const setting with = {joint_gemm(), N_LANES, 4 << 20, 4, NULL};
    fq_verify found;
    fq_error err = {0};
    launch_fails = true;
    CHECK(verify(&found, quantized, reference, &with, &err) == FQ_DEVICE);
    CHECK_HAS(err.text, "the launch fails");
    launch_fails = false;
    fq_verify_free(&found);
    err = (fq_error){0};
    quantized->sources[1].source.read = fail_to_read;
    CHECK(verify(&found, quantized, reference, &with, &err) == FQ_BAD_INPUT);
    CHECK(did.n_opened > 0);
    quantized->sources[1].source.read = memory_source_read;
    fq_verify_free(&found);
}

int main(void) {
    static memory_checkpoint reference, quantized;
    has_room = true;
    make_models(&reference, &quantized);
    test_same_figures(&quantized, &reference);
    test_same_figures(&quantized, NULL);
    test_without_room(&quantized, &reference);
    test_full(&quantized, &reference);
    test_chosen(&quantized, &reference);
    test_failures(&quantized, &reference);
    memory_checkpoint_free(&reference);
    memory_checkpoint_free(&quantized);
    return check_result();
}
