// Any names, dtypes and shapes, up to the greatest, through the policy and both planners: no fault
// of memory, no overflow, every source tensor has its place, and the plan's files can be written.
//
// Words of the first line: a scale format, keep (fused experts), +GLOB and -GLOB for rules, =GLOB
// for weights to be cast back.
//
// Under test: lib/policy.c lib/policy_draft.c lib/policy_rules.c lib/experts.c lib/fusion.c
// Under test: lib/foreign.c lib/fold.c lib/glob.c lib/plan_quantize.c lib/plan_dequantize.c
// Under test: lib/plan_build.c
#include "lib/fold.h"
#include "lib/plan.h"

#include "fuzz.h"
#include "model_checkpoint.h"

// Of a shard. Stacks of more matrices than that would only take memory.
static const uint64_t max_nbytes = UINT64_C(1) << 62;
enum { MAX_MATRICES = 1000 };

static bool is_too_deep(const fq_checkpoint *checkpoint) {
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        const fq_tensor *tensor = checkpoint->by_name[i];
        if (tensor->rank == 3 && tensor->shape[0] > MAX_MATRICES)
            return true;
    }
    return false;
}

// Targets tile the file, are aligned, and bear names of their own; the file's header says so.
static void check_layout(const fq_plan *plan, size_t number) {
    const fq_shard *layout = &plan->shards[number].layout;
    fq_shard again = {.name = layout->name};
    fq_arena arena = {0};
    fq_error err = {0};
    char *header = NULL;
    size_t n = 0;
    uint64_t at = 0;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const fq_tensor *tensor = &layout->tensors[i];
        uint64_t nbytes = 0;
        DEMAND(fq_tensor_nbytes(&nbytes, tensor->dtype, tensor->shape, tensor->rank));
        DEMAND(tensor->nbytes == nbytes && tensor->offset == at && tensor->shard == number);
        DEMAND(at % fq_dtype_alignment(tensor->dtype) == 0);
        at += nbytes;
    }
    DEMAND(layout->data_nbytes == at);
    DEMAND(fq_safetensors_header(&header, &n, layout, &err) == FQ_OK);
    memory_source source = memory_source_of(layout->name, header, n + at);
    DEMAND(fq_safetensors_read(&again, &arena, &source.source, 0, &err) == FQ_OK);
    DEMAND(again.n_tensors == layout->n_tensors && again.data_nbytes == at);
    fq_arena_free(&arena);
    free(header);
}

// The steps of a source take all of its elements, each once, in whatever order.
static void check_steps(const fq_plan *plan, const fq_tensor *source, bool may_be_absent) {
    uint64_t n_elements = 0, n_taken = 0;
    bool is_copied = false;
    DEMAND(fq_shape_volume(&n_elements, source->shape, source->rank));
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            if (step->source != source)
                continue;
            DEMAND(!is_copied);
            is_copied = step->action == FQ_COPY;
            DEMAND(!is_copied || n_taken == 0);
            n_taken += step->source_matrix.rows * step->source_matrix.cols;
        }
    }
    DEMAND(is_copied || n_taken == n_elements || (may_be_absent && n_taken == 0));
}

static void check_plan(const fq_plan *plan, bool may_be_absent) {
    fq_checkpoint targets = {.n_shards = plan->n_shards};
    const fq_tensor *duplicate = NULL;
    fq_arena arena = {0};
    fq_error err = {0};
    uint64_t bytes_out = 0;
    targets.shards = fq_arena_array(&arena, plan->n_shards, sizeof *targets.shards);
    DEMAND(targets.shards);
    for (size_t s = 0; s < plan->n_shards; s++) {
        check_layout(plan, s);
        targets.shards[s] = plan->shards[s].layout;
        bytes_out += targets.shards[s].data_nbytes;
    }
    DEMAND(plan->bytes_out == bytes_out);
    DEMAND(fq_checkpoint_index(&targets, &arena, &duplicate, &err) == FQ_OK && !duplicate);
    for (size_t i = 0; i < plan->checkpoint->n_tensors; i++)
        check_steps(plan, plan->checkpoint->by_name[i], may_be_absent);
    for (size_t i = 1; i < plan->n_modules; i++)
        DEMAND(strcmp(plan->modules_to_not_convert[i - 1], plan->modules_to_not_convert[i]) < 0);
    fq_arena_free(&arena);
}

// Names fold into lines, none of them lost.
static void check_fold(const fq_checkpoint *checkpoint) {
    fq_arena arena = {0};
    fq_fold_line *lines = NULL;
    size_t n_lines = 0;
    uint64_t n = 0;
    fq_error err = {0};
    fq_fold_item *items = fq_arena_array(&arena, checkpoint->n_tensors, sizeof *items);
    DEMAND(items);
    for (size_t i = 0; i < checkpoint->n_tensors; i++)
        items[i] = (fq_fold_item){.name = checkpoint->by_name[i]->name, .rest = ""};
    DEMAND(fq_fold(&lines, &n_lines, &arena, items, checkpoint->n_tensors, &err) == FQ_OK);
    for (size_t i = 0; i < n_lines; i++)
        n += lines[i].n;
    DEMAND(n == checkpoint->n_tensors);
    fq_arena_free(&arena);
}

static void plan_quantize(const model_checkpoint *memory, const model_text *model) {
    fq_name_rule rules[MODEL_MAX_WORDS];
    fq_quantize_options options = {
        .arch = "sm90",
        .version = "0",
        .policy = {.rules = rules, .keep_fused_experts = model_says(model, "keep")}};
    for (size_t i = 0; i < model->n_words; i++) {
        const char *word = model->words[i];
        if (*word == '+' || *word == '-')
            rules[options.policy.n_rules++] = (fq_name_rule){word + 1, *word == '+'};
    }
    for (int i = 0; i < FQ_SCALE_FORMAT_COUNT; i++) {
        if (model_says(model, fq_scale_format_name((fq_scale_format)i)))
            options.scale_format = (fq_scale_format)i;
    }
    fq_plan plan = {0};
    fq_messages faults = {0}, warnings = {0};
    fq_error err = {0};
    DEMAND(fq_plan_quantize(&plan, &memory->checkpoint, &memory->model, &options, &faults,
                            &warnings, &err) == FQ_OK);
    check_messages(&faults);
    if (faults.n == 0)
        check_plan(&plan, false);
    fq_messages_free(&faults);
    fq_messages_free(&warnings);
    fq_plan_free(&plan);
}

static void plan_dequantize(const model_checkpoint *memory, const model_text *model) {
    const char *globs[MODEL_MAX_WORDS];
    fq_dequantize_options options = {.dtype = FQ_F32, .globs = globs};
    for (size_t i = 0; i < model->n_words; i++) {
        if (*model->words[i] == '=')
            globs[options.n_globs++] = model->words[i] + 1;
    }
    fq_plan plan = {0};
    fq_messages faults = {0}, warnings = {0};
    fq_error err = {0};
    DEMAND(fq_plan_dequantize(&plan, &memory->checkpoint, &memory->model, &options, &faults,
                              &warnings, &err) == FQ_OK);
    check_messages(&faults);
    check_messages(&warnings);
    if (faults.n == 0)
        check_plan(&plan, true);
    fq_messages_free(&faults);
    fq_messages_free(&warnings);
    fq_plan_free(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_text model;
    model_checkpoint memory;
    model_text_read(&model, data, size);
    if (model_checkpoint_make(&memory, &model, max_nbytes, false) &&
        !is_too_deep(&memory.checkpoint)) {
        check_fold(&memory.checkpoint);
        plan_quantize(&memory, &model);
        plan_dequantize(&memory, &model);
    }
    model_checkpoint_free(&memory);
    fq_arena_free(&model.arena);
    return 0;
}
