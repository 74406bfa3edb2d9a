// The loop of verify: any number of lanes and any band size give the same figures to the last bit;
// failures of reading end it cleanly; and the maps are those of the worst weights.
#include "lib/band.h"
#include "lib/verify.h"
#include "tests/check.h"
#include "tests/memory_weights.h"

#include <stdlib.h>

enum { N_WEIGHTS = 12 };

static const char *const names[N_WEIGHTS][2] = {
#define NAME(i)                                                                                    \
    { "l." #i ".up_proj.weight", "l." #i ".up_proj.weight_scale_inv" }
    NAME(00), NAME(01), NAME(02), NAME(03), NAME(04), NAME(05),
    NAME(06), NAME(07), NAME(08), NAME(09), NAME(10), NAME(11),
#undef NAME
};

static void add_norm(memory_checkpoint *to) {
    uint32_t *norm = memory_checkpoint_add_2d(to, 0, "norm", FQ_F32, 3, 5);
    for (uint32_t i = 0; i < 15; i++)
        norm[i] = i;
}

// One weight is wide, so that the least bands cut its rows of blocks in pieces.
static void make_models(memory_checkpoint *reference, memory_checkpoint *quantized) {
    memory_weights_seed(1);
    add_norm(reference);
    add_norm(quantized);
    for (uint32_t i = 0; i < N_WEIGHTS; i++)
        memory_weights_add(reference, quantized, i % 2, names[i][0], names[i][1],
                           i == 5 ? 129 : 200, i == 5 ? 9000 : 300);
    memory_checkpoint_finish(reference, 2);
    memory_checkpoint_finish(quantized, 2);
}

// The bytes of a tensor.
static unsigned char *bytes_of(memory_checkpoint *memory, const char *name) {
    const fq_tensor *tensor = fq_checkpoint_find(&memory->checkpoint, name);
    return memory->bytes[tensor->shard] + tensor->offset;
}

typedef struct setting {
    uint32_t n_lanes;
    size_t band_elements;
    const int *cancelled;
} setting;

static fq_status verify(fq_verify *out, const memory_checkpoint *quantized,
                        const memory_checkpoint *reference, const setting *with, fq_error *err) {
    const fq_model model = fq_model_unknown();
    const fq_verify_options options = {.limits = {.weight_rel_l2 = -1.0}};
    const fq_device_options device_options = {.n_lanes = with->n_lanes,
                                              .max_elements = with->band_elements,
                                              .max_blocks = fq_band_max_blocks(with->band_elements),
                                              .for_checks = true};
    fq_verify_run_options run = {
        .backend = &fq_cpu_backend,
        .checker = &fq_cpu_checker,
        .n_lanes = with->n_lanes,
        .band_elements = with->band_elements,
        .cancelled = with->cancelled,
    };
    CHECK(run.backend->open(&run.device, &device_options, err) == FQ_OK);
    fq_status status =
        fq_verify_plan(out, &quantized->checkpoint, &model,
                       reference ? &reference->checkpoint : NULL, &model, &options, err);
    if (!status)
        status = fq_verify_run(out, &run, err);
    run.backend->close(run.device);
    return status;
}

static void check_same(const fq_verify *a, const fq_verify *b) {
    CHECK(memcmp(&a->summary, &b->summary, sizeof a->summary) == 0);
    CHECK_U64(a->n_tensors, b->n_tensors);
    CHECK_U64(a->problems.n, b->problems.n);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const fq_verify_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        CHECK(memcmp(&x->weight, &y->weight, sizeof x->weight) == 0);
        CHECK_U64(x->reasons.n, y->reasons.n);
        for (size_t k = 0; k < x->reasons.n && k < y->reasons.n; k++)
            CHECK_STR(x->reasons.lines[k], y->reasons.lines[k]);
        CHECK((x->map != NULL) == (y->map != NULL));
        if (x->map && y->map)
            CHECK(memcmp(x->map, y->map, sizeof *x->map) == 0);
    }
}

// Some weights are broken, each in another way.
static void test_same_figures(memory_checkpoint *reference, memory_checkpoint *quantized) {
    static const setting settings[] = {{1, FQ_MIN_BAND_ELEMENTS, NULL},
                                       {1, 4 << 20, NULL},
                                       {3, FQ_MIN_BAND_ELEMENTS, NULL},
                                       {8, FQ_MIN_BAND_ELEMENTS + 1000, NULL}};
    bytes_of(quantized, names[5][0])[128 * 9000 + 8999] ^= 0x40;
    bytes_of(quantized, names[5][0])[5000] = 0x7F;
    bytes_of(quantized, names[7][1])[3] |= 0x80;
    bytes_of(quantized, "norm")[4 * 13] ^= 1;
    fq_verify expected = {0};
    fq_error err = {0};
    CHECK(verify(&expected, quantized, reference, &settings[0], &err) == FQ_OK);
    CHECK_U64(expected.summary.n_failed, 2);
    CHECK_U64(expected.tensors[5].weight.codes_differ.n, 2);
    CHECK_U64(expected.tensors[5].weight.codes_differ.first.col, 5000);
    CHECK_U64(expected.tensors[5].weight.nan_codes.n, 1);
    CHECK_U64(expected.tensors[5].weight.worst_block.row, 1);
    CHECK_U64(expected.tensors[5].weight.worst_block.col, 70);
    CHECK_U64(expected.tensors[7].weight.bad_scales.n, 1);
    CHECK(expected.tensors[7].weight.first_flaw == FQ_SCALE_NEGATIVE);
    CHECK_U64(expected.problems.n, 1);
    CHECK_HAS(expected.problems.lines[0], "norm: 1 byte differs from the reference, at row 2, col");
    for (size_t i = 1; i < sizeof settings / sizeof settings[0]; i++) {
        fq_verify actual = {0};
        CHECK(verify(&actual, quantized, reference, &settings[i], &err) == FQ_OK);
        check_same(&actual, &expected);
        fq_verify_free(&actual);
    }
    fq_verify_free(&expected);
}

// Those that fail come before those with the greater error.
static void test_maps(const memory_checkpoint *reference, const memory_checkpoint *quantized) {
    const setting with = {4, FQ_MIN_BAND_ELEMENTS, NULL};
    fq_verify found = {0};
    fq_error err = {0};
    size_t n = 0;
    double least_kept = 1.0, greatest_left = 0.0;
    CHECK(verify(&found, quantized, reference, &with, &err) == FQ_OK);
    for (size_t i = 0; i < found.n_tensors; i++) {
        const fq_verify_tensor *tensor = &found.tensors[i];
        const double error = tensor->weight.rel_l2;
        n += tensor->map != NULL;
        CHECK(tensor->reasons.n == 0 || tensor->map);
        if (tensor->map && error < least_kept)
            least_kept = error;
        if (!tensor->map && error > greatest_left)
            greatest_left = error;
    }
    CHECK_U64(n, FQ_VERIFY_N_MAPS);
    CHECK(least_kept >= greatest_left);
    const fq_verify_map *wide = found.tensors[5].map;
    CHECK_U64(wide->grid_rows, 2);
    CHECK_U64(wide->grid_cols, 71);
    CHECK_U64(wide->rows, 2);
    CHECK_U64(wide->cols, FQ_VERIFY_MAP_SIZE);
    CHECK(wide->cells[wide->cols + wide->cols - 1] ==
          (float)found.tensors[5].weight.worst_block_rel_l2);
    fq_verify_free(&found);
}

static void test_without_reference(const memory_checkpoint *quantized) {
    const setting with = {2, FQ_MIN_BAND_ELEMENTS, NULL};
    fq_verify found = {0};
    fq_error err = {0};
    CHECK(verify(&found, quantized, NULL, &with, &err) == FQ_OK);
    CHECK_U64(found.summary.n_failed, 2);
    CHECK_U64(found.problems.n, 0);
    CHECK_U64(found.tensors[5].weight.nan_codes.first.col, 5000);
    CHECK(!found.tensors[0].weight.has_errors);
    CHECK(found.tensors[5].map == NULL);
    fq_verify_free(&found);
}

static fq_status fail_to_read(fq_source *source, uint64_t offset, void *out, size_t nbytes,
                              fq_error *err) {
    (void)offset, (void)out, (void)nbytes;
    return fq_fail(err, FQ_IO, "%s: cannot be read", source->name);
}

static void test_failures(memory_checkpoint *reference, memory_checkpoint *quantized) {
    static const int cancelled = 1;
    const setting stopped = {2, FQ_MIN_BAND_ELEMENTS, &cancelled};
    const setting with = {4, FQ_MIN_BAND_ELEMENTS, NULL};
    memory_checkpoint *const both[] = {reference, quantized};
    fq_verify found = {0};
    fq_error err = {0};
    CHECK(verify(&found, quantized, reference, &stopped, &err) == FQ_CANCELLED);
    fq_verify_free(&found);
    for (size_t i = 0; i < 2; i++) {
        both[i]->sources[1].source.read = fail_to_read;
        err = (fq_error){0};
        CHECK(verify(&found, quantized, reference, &with, &err) == FQ_IO);
        CHECK_HAS(err.text, "b.safetensors: cannot be read");
        fq_verify_free(&found);
        both[i]->sources[1].source.read = memory_source_read;
    }
}

int main(void) {
    static memory_checkpoint reference, quantized;
    make_models(&reference, &quantized);
    test_same_figures(&reference, &quantized);
    test_maps(&reference, &quantized);
    test_without_reference(&quantized);
    test_failures(&reference, &quantized);
    memory_checkpoint_free(&reference);
    memory_checkpoint_free(&quantized);
    return check_result();
}
