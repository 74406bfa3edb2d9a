// Plans dequant: every FP8 weight cast back, its scale gone, everything else copied.
#include "band.h"
#include "glob.h"
#include "pairing.h"
#include "plan.h"
#include "plan_build.h"

#include <inttypes.h>

typedef struct dequantize_planner {
    fq_plan *plan;
    const fq_checkpoint *checkpoint;
    const fq_dequantize_options *options;
    fq_pairing pairing;
    fq_shard_draft draft;
    fq_messages *faults, *warnings;
} dequantize_planner;

static bool is_chosen(const dequantize_planner *p, const fq_tensor *tensor) {
    const fq_dequantize_options *options = p->options;
    return fq_glob_chooses(options->globs, options->n_globs, tensor->name);
}

static void check_block(const dequantize_planner *p, const fq_pair *pair) {
    if (!fq_band_holds(pair->block))
        fq_messages_add(p->faults,
                        "%s: %s: blocks of %" PRIu64 " x %" PRIu64
                        " are larger than this version reads; it takes blocks such as 128 x 128",
                        fq_tensor_file(p->checkpoint, pair->weight), pair->weight->name,
                        pair->block.rows, pair->block.cols);
}

// A weight is one matrix, or a stack of them with a scale grid each.
static fq_status add_weight(dequantize_planner *p, const fq_pair *pair, fq_error *err) {
    const fq_tensor *weight = pair->weight;
    const uint64_t n_matrices = weight->rank == 3 ? weight->shape[0] : 1;
    const uint64_t rows = weight->shape[weight->rank - 2];
    const uint64_t cols = weight->shape[weight->rank - 1];
    fq_tensor target = *weight;
    target.dtype = p->options->dtype;
    if (!fq_tensor_nbytes(&target.nbytes, target.dtype, target.shape, target.rank)) {
        fq_messages_add(p->faults, "%s: %s: too large to be cast back",
                        fq_tensor_file(p->checkpoint, weight), weight->name);
        return FQ_OK;
    }
    check_block(p, pair);
    fq_status status = fq_shard_draft_add_target(&p->draft, &target, false, err);
    for (uint64_t i = 0; i < n_matrices && !status; i++) {
        const fq_step step = {
            .action = FQ_DEQUANTIZE,
            .source = weight,
            .source_matrix = {.rows = rows, .cols = cols, .element0 = i * rows * cols},
            .target_element0 = i * rows * cols,
            .reason = "",
            .source_scale = pair->scale,
            .scale_storage = pair->storage,
            .matrix = i,
            .block = pair->block,
        };
        status = fq_shard_draft_add_step(&p->draft, &step, (ptrdiff_t)p->draft.n_targets - 1,
                                         FQ_NO_TARGET, err);
    }
    return status;
}

static fq_status add_tensor(dequantize_planner *p, const fq_tensor *tensor, fq_error *err) {
    const size_t position = fq_checkpoint_position(p->checkpoint, tensor->name);
    const fq_pair *pair = p->pairing.pair_of[position];
    if (pair && pair->weight == tensor)
        return is_chosen(p, tensor) ? add_weight(p, pair, err) : FQ_OK;
    if (pair || p->options->n_globs > 0)
        return FQ_OK;
    if (fq_is_runtime_scale(tensor->name)) {
        p->plan->dropped[p->plan->n_dropped++] = tensor->name;
        return FQ_OK;
    }
    return fq_shard_draft_add_copy(&p->draft, tensor, "", err);
}

// The source's metadata without what convert added to them.
static fq_status make_metadata(dequantize_planner *p, const fq_shard *source, fq_metadata **out,
                               size_t *n, fq_error *err) {
    *out = fq_arena_array(&p->plan->arena, source->n_metadata, sizeof **out);
    if (!*out)
        return fq_fail_memory(err);
    *n = fq_metadata_without_fp8q(*out, source->metadata, source->n_metadata);
    return FQ_OK;
}

// A shard that held nothing but scales has no successor.
static bool is_left_empty(const dequantize_planner *p, const fq_shard *source) {
    return p->draft.n_targets == 0 && source->n_tensors > 0;
}

static fq_status add_shard(dequantize_planner *p, const fq_shard *source, fq_error *err) {
    fq_metadata *metadata = NULL;
    size_t n_metadata = 0;
    fq_status status = make_metadata(p, source, &metadata, &n_metadata, err);
    for (size_t i = 0; i < source->n_tensors && !status; i++)
        status = add_tensor(p, &source->tensors[i], err);
    if (status || is_left_empty(p, source))
        return status;
    return fq_shard_draft_finish(&p->draft, p->plan, source->name, metadata, n_metadata, err);
}

static bool matches_any_weight(const dequantize_planner *p, const char *glob) {
    for (size_t i = 0; i < p->pairing.n; i++) {
        if (fq_glob_match(glob, p->pairing.pairs[i].weight->name))
            return true;
    }
    return false;
}

// The least that a run of dequant must find: something to cast back.
static void check_not_empty(const dequantize_planner *p) {
    const fq_dequantize_options *options = p->options;
    bool any_chosen = false;
    for (size_t i = 0; i < p->pairing.n && !any_chosen; i++)
        any_chosen = is_chosen(p, p->pairing.pairs[i].weight);
    for (size_t i = 0; i < options->n_globs; i++) {
        if (!matches_any_weight(p, options->globs[i]))
            fq_messages_add(any_chosen ? p->warnings : p->faults,
                            "%s: no FP8 weight matches --tensor %s", p->checkpoint->path,
                            options->globs[i]);
    }
    if (!any_chosen && options->n_globs == 0)
        fq_messages_add(p->faults, "%s: holds no FP8 weight; there is nothing to cast back",
                        p->checkpoint->path);
}

fq_status fq_plan_dequantize(fq_plan *out, const fq_checkpoint *checkpoint, const fq_model *model,
                             const fq_dequantize_options *options, fq_messages *faults,
                             fq_messages *warnings, fq_error *err) {
    dequantize_planner planner = {.plan = out,
                                  .checkpoint = checkpoint,
                                  .options = options,
                                  .faults = faults,
                                  .warnings = warnings};
    out->checkpoint = checkpoint;
    out->shards = fq_arena_array(&out->arena, checkpoint->n_shards, sizeof *out->shards);
    out->dropped = fq_arena_array(&out->arena, checkpoint->n_tensors, sizeof *out->dropped);
    if (!out->shards || !out->dropped)
        return fq_fail_memory(err);
    fq_status status =
        fq_pair_scales(&planner.pairing, &out->arena, checkpoint, &model->quant, faults, err);
    if (status || faults->n > 0)
        return status;
    check_not_empty(&planner);
    for (size_t i = 0; i < checkpoint->n_shards && !status; i++)
        status = add_shard(&planner, &checkpoint->shards[i], err);
    fq_shard_draft_free(&planner.draft);
    return status;
}
