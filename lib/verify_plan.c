// Lays out what verify will do: the weights, their rules, and the steps that read them. See
// verify.h.
#include "fp8.h"
#include "glob.h"
#include "names.h"
#include "verify_work.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_chosen(const fq_verify *verify, const fq_tensor *tensor) {
    return fq_glob_chooses(verify->options.globs, verify->options.n_globs, tensor->name);
}

// ---- Weights

static bool is_digits(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
    }
    return n > 0;
}

// The start of the component that ends at end.
static size_t component_start(const char *name, size_t end) {
    const char *dot = end > 0 ? memrchr(name, '.', end) : NULL;
    return dot ? (size_t)(dot - name) + 1 : 0;
}

// "q_proj" of "model.layers.0.self_attn.q_proj.weight"; what experts have, with "experts." before
// it, shared ones too.
static const char *kind_of(fq_arena *arena, const char *name) {
    const size_t n_module = fq_has_suffix(name, ".weight") ? strlen(name) - 7 : strlen(name);
    const size_t start = component_start(name, n_module);
    size_t end = start > 0 ? start - 1 : 0; // of the component before
    size_t before = component_start(name, end);
    if (is_digits(name + before, end - before) && before > 0) {
        end = before - 1;
        before = component_start(name, end);
    }
    const int n_kind = (int)(n_module - start), n_before = (int)(end - before);
    const bool is_expert = strncmp(name + before, "experts", 7) == 0 && n_before == 7;
    const bool is_shared = strncmp(name + before, "shared_expert", 13) == 0;
    if (is_expert || is_shared)
        return fq_arena_printf(arena, "%.*s.%.*s", n_before, name + before, n_kind, name + start);
    return fq_arena_strndup(arena, name + start, (size_t)n_kind);
}

// What fp8q wrote of itself; NULL in files of other makers.
static const char *own_metadata(const fq_verify *verify, const fq_tensor *tensor, const char *key) {
    const fq_shard *shard = &verify->checkpoint->shards[tensor->shard];
    return fq_metadata_find(shard->metadata, shard->n_metadata, key);
}

static bool is_exponent(const fq_pair *pair) {
    return pair->storage != FQ_STORED_GRID || pair->scale->dtype == FQ_F8_E8M0;
}

// What the scales are expected to be: by fp8q's own metadata, else by the config and the dtype.
static void expect_scales(const fq_verify_draft *draft, fq_verify_tensor *tensor) {
    const fq_verify *verify = draft->verify;
    const char *format = own_metadata(verify, tensor->tensor, "fp8q.scale_format");
    const char *floor = own_metadata(verify, tensor->tensor, "fp8q.amax_floor");
    const bool said = format ? strcmp(format, "f32") != 0 : draft->model->quant.ue8m0;
    tensor->must_be_pow2 = said || draft->model->quant.ue8m0;
    tensor->is_said_f32 = !tensor->must_be_pow2 && (format || draft->model->quant.present);
    tensor->pow2_scales = said || (!format && is_exponent(tensor->pair));
    tensor->amax_floor = floor ? strtof(floor, NULL) : FQ_DEFAULT_AMAX_FLOOR;
    // Before the values are known, F32 scales that nobody speaks of are called after their dtype.
    tensor->scale_format = fq_pair_format(tensor->pair, tensor->must_be_pow2 ? "pow2" : "f32");
}

static fq_status add_tensor(fq_verify_draft *draft, size_t position, fq_error *err) {
    fq_verify *verify = draft->verify;
    fq_verify_tensor *tensor = &verify->tensors[verify->n_tensors++];
    tensor->tensor = verify->checkpoint->by_name[position];
    tensor->pair = verify->pairing.pair_of[position];
    tensor->kind = kind_of(&verify->arena, tensor->tensor->name);
    if (!tensor->kind)
        return fq_fail_memory(err);
    if (tensor->pair)
        expect_scales(draft, tensor);
    else
        fq_messages_add(&tensor->reasons, "has no scale that fits it; see the problems");
    return FQ_OK;
}

static bool is_weight(const fq_tensor *tensor) {
    return tensor->dtype == FQ_F8_E4M3 && !fq_is_scale_name(tensor->name);
}

static fq_status add_tensors(fq_verify_draft *draft, fq_error *err) {
    fq_verify *verify = draft->verify;
    const fq_checkpoint *checkpoint = verify->checkpoint;
    verify->tensors =
        fq_arena_array(&verify->arena, checkpoint->n_tensors, sizeof *verify->tensors);
    if (!verify->tensors)
        return fq_fail_memory(err);
    fq_status status = FQ_OK;
    for (size_t i = 0; i < checkpoint->n_tensors && !status; i++) {
        const fq_tensor *tensor = checkpoint->by_name[i];
        if (is_weight(tensor) && is_chosen(verify, tensor))
            status = add_tensor(draft, i, err);
    }
    return status;
}

// ---- Steps

static int compare_name(const void *name, const void *tensor) {
    return strcmp(name, ((const fq_verify_tensor *)tensor)->tensor->name);
}

static void add_step(fq_verify_work *work, size_t shard, const fq_step *step, size_t tensor) {
    fq_plan_shard *to = &work->plan.shards[shard];
    work->steps[shard][to->n_steps].tensor = tensor;
    to->steps[to->n_steps++] = *step;
    work->nbytes += step->action == FQ_COPY ? step->source->nbytes
                                            : step->source_matrix.rows * step->source_matrix.cols;
}

static void add_matrices(fq_verify_draft *draft, size_t shard, size_t number) {
    fq_verify_tensor *tensor = &draft->verify->tensors[number];
    const fq_pair *pair = tensor->pair;
    if (!pair)
        return;
    if (!fq_band_holds(pair->block)) {
        fq_messages_add(&tensor->reasons,
                        "has blocks of %" PRIu64 " x %" PRIu64
                        ", which are larger than this version reads",
                        pair->block.rows, pair->block.cols);
        return;
    }
    const uint64_t *shape = pair->weight->shape + pair->weight->rank - 2;
    const uint64_t n_matrices = pair->weight->rank == 3 ? pair->weight->shape[0] : 1;
    tensor->has_weight = true;
    for (uint64_t i = 0; i < n_matrices; i++) {
        const fq_step step = {
            .action = FQ_DEQUANTIZE,
            .source = pair->weight,
            .source_matrix = {.rows = shape[0],
                              .cols = shape[1],
                              .element0 = i * shape[0] * shape[1]},
            .matrix = i,
            .source_scale = pair->scale,
            .scale_storage = pair->storage,
            .block = pair->block,
        };
        add_step(draft->work, shard, &step, number);
    }
}

// Tensors that are neither weights nor scales of weights are compared byte for byte.
static bool is_copy(const fq_verify *verify, const fq_tensor *tensor) {
    const size_t position = fq_checkpoint_position(verify->checkpoint, tensor->name);
    return verify->reference && !is_weight(tensor) && !verify->pairing.pair_of[position] &&
           !fq_is_scale_name(tensor->name) && is_chosen(verify, tensor);
}

static void add_shard_steps(fq_verify_draft *draft, size_t shard) {
    fq_verify *verify = draft->verify;
    const fq_shard *from = &verify->checkpoint->shards[shard];
    for (size_t i = 0; i < from->n_tensors; i++) {
        const fq_tensor *tensor = &from->tensors[i];
        const fq_verify_tensor *weight = bsearch(tensor->name, verify->tensors, verify->n_tensors,
                                                 sizeof *verify->tensors, compare_name);
        const fq_step copy = {.action = FQ_COPY, .source = tensor};
        if (weight)
            add_matrices(draft, shard, (size_t)(weight - verify->tensors));
        else if (is_copy(verify, tensor))
            add_step(draft->work, shard, &copy, SIZE_MAX);
    }
}

// At most so many.
static size_t count_steps(const fq_verify *verify, const fq_shard *shard) {
    size_t n = 0;
    for (size_t i = 0; i < shard->n_tensors; i++) {
        const fq_tensor *tensor = &shard->tensors[i];
        const size_t position = fq_checkpoint_position(verify->checkpoint, tensor->name);
        const bool is_stack = verify->pairing.pair_of[position] && tensor->rank == 3;
        n += is_stack ? (size_t)tensor->shape[0] : 1;
    }
    return n;
}

static fq_status lay_out_steps(fq_verify_draft *draft, fq_error *err) {
    fq_verify_work *work = draft->work;
    const fq_checkpoint *checkpoint = draft->verify->checkpoint;
    fq_arena *arena = &work->plan.arena;
    work->plan.checkpoint = checkpoint;
    work->plan.shards = fq_arena_array(arena, checkpoint->n_shards, sizeof *work->plan.shards);
    work->steps = fq_arena_array(arena, checkpoint->n_shards, sizeof *work->steps);
    if (!work->plan.shards || !work->steps)
        return fq_fail_memory(err);
    for (size_t s = 0; s < checkpoint->n_shards; s++) {
        const size_t n = count_steps(draft->verify, &checkpoint->shards[s]);
        work->plan.shards[s].steps = fq_arena_array(arena, n, sizeof(fq_step));
        work->steps[s] = fq_arena_array(arena, n, sizeof **work->steps);
        if (!work->plan.shards[s].steps || !work->steps[s])
            return fq_fail_memory(err);
        work->plan.n_shards++;
        add_shard_steps(draft, s);
    }
    return FQ_OK;
}

// ---- The whole

// A glob that chooses nothing is a slip: everything would pass.
static fq_status check_globs(const fq_verify *verify, fq_error *err) {
    const fq_checkpoint *checkpoint = verify->checkpoint;
    for (size_t g = 0; g < verify->options.n_globs; g++) {
        const char *glob = verify->options.globs[g];
        bool any = false;
        for (size_t i = 0; i < checkpoint->n_tensors && !any; i++)
            any = fq_glob_match(glob, checkpoint->by_name[i]->name);
        if (!any)
            return fq_fail(err, FQ_USAGE,
                           "%s: no tensor matches --tensor %s; globs match full names",
                           checkpoint->path, glob);
    }
    return FQ_OK;
}

fq_status fq_verify_plan(fq_verify *out, const fq_checkpoint *checkpoint, const fq_model *model,
                         const fq_checkpoint *reference, const fq_model *reference_model,
                         const fq_verify_options *options, fq_error *err) {
    out->checkpoint = checkpoint;
    out->reference = reference;
    out->options = *options;
    out->work = fq_arena_alloc(&out->arena, sizeof *out->work);
    if (!out->work)
        return fq_fail_memory(err);
    fq_verify_draft draft = {
        .verify = out, .work = out->work, .model = model, .reference_model = reference_model};
    fq_status status = check_globs(out, err);
    if (!status)
        status = fq_pair_scales(&out->pairing, &out->arena, checkpoint, &model->quant,
                                &out->problems, err);
    if (!status)
        status = add_tensors(&draft, err);
    if (!status)
        status = lay_out_steps(&draft, err);
    if (!status && reference)
        status = fq_verify_match(&draft, err);
    else if (!status && checkpoint->is_folder)
        status = fq_verify_check_gaps(out, err);
    if (!status)
        status = fq_verify_check_config(&draft, err);
    if (!status && options->tensor_parallel > 0)
        status = fq_verify_check_parallel(&draft, err);
    return status;
}

uint64_t fq_verify_nbytes(const fq_verify *verify) { return verify->work->nbytes; }

void fq_verify_free(fq_verify *verify) {
    for (size_t i = 0; i < verify->n_tensors; i++)
        fq_messages_free(&verify->tensors[i].reasons);
    if (verify->work) {
        fq_plan_free(&verify->work->plan);
        fq_plan_free(&verify->work->reference_plan);
    }
    fq_messages_free(&verify->problems);
    fq_messages_free(&verify->notes);
    fq_arena_free(&verify->arena);
    memset(verify, 0, sizeof *verify);
}
