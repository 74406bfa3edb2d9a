// Plans convert: policy's decisions turned into targets and steps, shard by shard.
#include "fp8.h"
#include "pairing.h"
#include "plan.h"
#include "plan_build.h"

#include <inttypes.h>
#include <string.h>

typedef struct quantize_planner {
    fq_plan *plan;
    const fq_checkpoint *checkpoint;
    const fq_quantize_options *options;
    fq_policy policy;
    fq_shard_draft draft;
    const char *source_dtypes; // of the weights to quantize, for the metadata
    const char *amax_floor;    // for the metadata; NULL if it is the default
} quantize_planner;

static bool is_float8(fq_dtype dtype) {
    return dtype == FQ_F8_E4M3 || dtype == FQ_F8_E5M2 || dtype == FQ_F8_E8M0 ||
           dtype == FQ_F8_E4M3FNUZ || dtype == FQ_F8_E5M2FNUZ;
}

// What is FP8 already is not quantized again: one fault for the config, one for the tensors. A
// config alone may have stayed behind when the weights were cast back.
static void refuse_quantized(const fq_checkpoint *checkpoint, const fq_model *model,
                             fq_messages *faults) {
    const fq_tensor *first = NULL;
    size_t n = 0;
    bool is_e4m3 = false; // which dequant reads, of all these
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        const fq_tensor *tensor = checkpoint->by_name[i];
        if (is_float8(tensor->dtype) && n++ == 0)
            first = tensor;
        is_e4m3 = is_e4m3 || tensor->dtype == FQ_F8_E4M3;
    }
    const char *cast_back = is_e4m3 ? ", or cast it back with fp8q dequant" : "";
    if (model->quant.present && checkpoint->is_folder) // a lone file's own goes with its weights
        fq_messages_add(faults,
                        "config.json: quantization_config: the model is quantized already%s%s; "
                        "start from the unquantized model%s",
                        *model->quant.method ? ": " : "", model->quant.method,
                        first ? cast_back : ", or remove this key if its weights were cast back");
    if (n == 1)
        fq_messages_add(faults, "%s: %s: is %s already; start from the unquantized model%s",
                        fq_tensor_file(checkpoint, first), first->name, fq_dtype_name(first->dtype),
                        cast_back);
    else if (first)
        fq_messages_add(faults,
                        "%s: %s: is %s already, and so are %zu tensors in all; start from the "
                        "unquantized model%s",
                        fq_tensor_file(checkpoint, first), first->name, fq_dtype_name(first->dtype),
                        n, cast_back);
}

// Adds the FP8 weight of that name, its scale, and the step that fills both. step lacks the
// targets.
static fq_status add_weight(quantize_planner *p, const char *name, const fq_step *step,
                            fq_error *err) {
    fq_arena *arena = &p->plan->arena;
    uint64_t *shapes = fq_arena_array(arena, 4, sizeof *shapes);
    const char *scale_name = fq_arena_printf(arena, "%s_scale_inv", name);
    if (!shapes || !scale_name)
        return fq_fail_memory(err);
    const fq_matrix *matrix = &step->source_matrix;
    shapes[0] = matrix->rows;
    shapes[1] = matrix->cols;
    fq_tensor weight = {.name = name, .dtype = FQ_F8_E4M3, .rank = 2, .shape = shapes};
    fq_tensor scale = {.name = scale_name, .rank = 2, .shape = shapes + 2};
    fq_scale_tensor_shape(p->options->scale_format, matrix->rows, matrix->cols, &scale.dtype,
                          shapes + 2);
    // Neither overflows: both are smaller than the source, but for the packed padding of one row.
    fq_tensor_nbytes(&weight.nbytes, weight.dtype, weight.shape, weight.rank);
    fq_tensor_nbytes(&scale.nbytes, scale.dtype, scale.shape, scale.rank);
    fq_status status = fq_shard_draft_add_target(&p->draft, &weight, false, err);
    if (!status)
        status = fq_shard_draft_add_target(&p->draft, &scale, true, err);
    if (status)
        return status;
    const ptrdiff_t last = (ptrdiff_t)p->draft.n_targets - 1;
    return fq_shard_draft_add_step(&p->draft, step, last - 1, last, err);
}

static fq_step quantize_step(const fq_decision *decision, uint64_t rows, uint64_t cols) {
    return (fq_step){
        .action = FQ_QUANTIZE,
        .source = decision->tensor,
        .source_matrix = {.rows = rows, .cols = cols},
        .split = decision->experts != FQ_EXPERTS_NONE,
        .reason = decision->reason,
        .block = {FQ_BLOCK_SIZE, FQ_BLOCK_SIZE},
    };
}

// One matrix of one expert: `part` of `n_parts` that lie side by side in the fused tensor.
static fq_status add_expert(quantize_planner *p, const fq_decision *decision, uint64_t expert,
                            const char *projection, uint64_t part, uint64_t n_parts,
                            fq_error *err) {
    const uint64_t *shape = decision->tensor->shape; // [E, stored rows, stored columns]
    const uint64_t rows = (decision->transposed ? shape[2] : shape[1]) / n_parts;
    const uint64_t cols = decision->transposed ? shape[1] : shape[2];
    fq_step step = quantize_step(decision, rows, cols);
    step.matrix = expert;
    step.source_matrix.transposed = decision->transposed;
    step.source_matrix.stride = decision->transposed ? shape[2] : 0;
    step.source_matrix.element0 =
        expert * shape[1] * shape[2] + part * rows * (decision->transposed ? 1 : cols);
    const char *fused = decision->tensor->name;
    const char *name =
        fq_arena_printf(&p->plan->arena, "%.*s.%" PRIu64 ".%s.weight",
                        (int)(strrchr(fused, '.') - fused), fused, expert, projection);
    return name ? add_weight(p, name, &step, err) : fq_fail_memory(err);
}

static fq_status add_experts(quantize_planner *p, const fq_decision *decision, fq_error *err) {
    const bool gate_up = decision->experts == FQ_EXPERTS_GATE_UP;
    for (uint64_t expert = 0; expert < decision->tensor->shape[0]; expert++) {
        fq_status status = gate_up ? add_expert(p, decision, expert, "gate_proj", 0, 2, err)
                                   : add_expert(p, decision, expert, "down_proj", 0, 1, err);
        if (!status && gate_up)
            status = add_expert(p, decision, expert, "up_proj", 1, 2, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

static fq_status add_tensor(quantize_planner *p, const fq_tensor *tensor, fq_error *err) {
    const size_t position = fq_checkpoint_position(p->checkpoint, tensor->name);
    const fq_decision *decision = &p->policy.decisions[position];
    if (!decision->quantize)
        return fq_shard_draft_add_copy(&p->draft, tensor, decision->reason, err);
    if (decision->experts != FQ_EXPERTS_NONE)
        return add_experts(p, decision, err);
    const fq_step step = quantize_step(decision, tensor->shape[0], tensor->shape[1]);
    return add_weight(p, tensor->name, &step, err);
}

// "BF16", or several joined by commas where the model mixes them.
static fq_status name_source_dtypes(quantize_planner *p, fq_error *err) {
    static const fq_dtype sources[] = {FQ_BF16, FQ_F16, FQ_F32};
    p->source_dtypes = "";
    for (size_t k = 0; k < sizeof sources / sizeof sources[0] && p->source_dtypes; k++) {
        bool met = false;
        for (size_t i = 0; i < p->checkpoint->n_tensors && !met; i++)
            met = p->policy.decisions[i].quantize &&
                  p->policy.decisions[i].tensor->dtype == sources[k];
        if (met)
            p->source_dtypes =
                fq_arena_printf(&p->plan->arena, "%s%s%s", p->source_dtypes,
                                *p->source_dtypes ? "," : "", fq_dtype_name(sources[k]));
    }
    return p->source_dtypes ? FQ_OK : fq_fail_memory(err);
}

// Whoever computes the scales anew needs it. Nine digits give the same FP32 value back.
static fq_status name_amax_floor(quantize_planner *p, fq_error *err) {
    const float floor = p->options->amax_floor;
    if (floor == FQ_DEFAULT_AMAX_FLOOR)
        return FQ_OK;
    p->amax_floor = fq_arena_printf(&p->plan->arena, "%.9g", (double)floor);
    return p->amax_floor ? FQ_OK : fq_fail_memory(err);
}

// The source's metadata, with what fp8q adds in the place of older entries of its own.
static fq_status make_metadata(quantize_planner *p, const fq_shard *source, fq_metadata **out,
                               size_t *n, fq_error *err) {
    const fq_metadata added[] = {
        {"fp8q.arch", p->options->arch},
        {"fp8q.scale_format", fq_scale_format_name(p->options->scale_format)},
        {"fp8q.source_dtype", p->source_dtypes},
        {"fp8q.version", p->options->version},
        {"fp8q.amax_floor", p->amax_floor},
    };
    const size_t n_added = sizeof added / sizeof added[0] - (p->amax_floor == NULL);
    *out = fq_arena_array(&p->plan->arena, source->n_metadata + n_added, sizeof **out);
    if (!*out)
        return fq_fail_memory(err);
    *n = fq_metadata_without_fp8q(*out, source->metadata, source->n_metadata);
    memcpy(*out + *n, added, n_added * sizeof *added);
    *n += n_added;
    fq_metadata_sort(*out, *n);
    return FQ_OK;
}

static fq_status add_shard(quantize_planner *p, const fq_shard *source, fq_error *err) {
    fq_metadata *metadata = NULL;
    size_t n_metadata = 0;
    fq_status status = make_metadata(p, source, &metadata, &n_metadata, err);
    for (size_t i = 0; i < source->n_tensors && !status; i++)
        status = add_tensor(p, &source->tensors[i], err);
    if (status)
        return status;
    return fq_shard_draft_finish(&p->draft, p->plan, source->name, metadata, n_metadata, err);
}

fq_status fq_plan_quantize(fq_plan *out, const fq_checkpoint *checkpoint, const fq_model *model,
                           const fq_quantize_options *options, fq_messages *faults,
                           fq_messages *warnings, fq_error *err) {
    quantize_planner planner = {.plan = out, .checkpoint = checkpoint, .options = options};
    out->checkpoint = checkpoint;
    out->scale_format = options->scale_format;
    out->amax_floor = options->amax_floor;
    refuse_quantized(checkpoint, model, faults);
    if (faults->n > 0)
        return FQ_OK;
    out->shards = fq_arena_array(&out->arena, checkpoint->n_shards, sizeof *out->shards);
    if (!out->shards)
        return fq_fail_memory(err);
    fq_status status = fq_pair_nothing(checkpoint, faults, err);
    if (!status)
        status = fq_policy_decide(&planner.policy, &out->arena, checkpoint, model, &options->policy,
                                  faults, warnings, err);
    if (!status)
        status = name_source_dtypes(&planner, err);
    if (!status)
        status = name_amax_floor(&planner, err);
    for (size_t i = 0; i < checkpoint->n_shards && !status; i++)
        status = add_shard(&planner, &checkpoint->shards[i], err);
    out->modules_to_not_convert = planner.policy.modules_to_not_convert;
    out->n_modules = planner.policy.n_modules;
    fq_shard_draft_free(&planner.draft);
    return status;
}
