// Finds which matrix of the reference stands behind which weight. A plan that quantizes all of the
// reference that can be says what each of its matrices would be called. See verify_work.h.
#include "glob.h"
#include "verify_work.h"

#include <stdlib.h>
#include <string.h>

// A matrix of the reference, under the name that it would have as a weight.
typedef struct candidate {
    const fq_step *step;
    bool used;
} candidate;

typedef struct matcher {
    fq_verify_draft *draft;
    candidate *candidates; // [n_candidates], sorted by name
    size_t n_candidates;
    bool *used;          // [reference->n_tensors]: what something was compared with
    fq_fold_item *items; // [n_items]: what has no counterpart
    size_t n_items;
    fq_arena scratch;
} matcher;

static int compare_candidates(const void *a, const void *b) {
    return strcmp(((const candidate *)a)->step->target->name,
                  ((const candidate *)b)->step->target->name);
}

static int compare_with_name(const void *name, const void *item) {
    return strcmp(name, ((const candidate *)item)->step->target->name);
}

// ---- The reference's plan

static fq_status fail_reference(const fq_verify *verify, const fq_messages *faults, fq_error *err) {
    return fq_fail(
        err, FQ_USAGE,
        "%s: --reference takes the unquantized checkpoint that the FP8 weights were made "
        "from: %s",
        verify->reference->path, faults->n > 0 ? faults->lines[0] : "this is none");
}

// config.json's quantization_config may be stale: what the tensors are decides.
static fq_status plan_reference(fq_verify_draft *draft, fq_error *err) {
    const fq_name_rule everything = {.glob = "*", .include = true};
    const fq_quantize_options options = {
        .arch = "", .version = "", .policy = {.rules = &everything, .n_rules = 1}};
    fq_model model = *draft->reference_model;
    model.quant = fq_model_unknown().quant;
    fq_messages faults = {0}, warnings = {0};
    fq_status status = fq_plan_quantize(&draft->work->reference_plan, draft->verify->reference,
                                        &model, &options, &faults, &warnings, err);
    if (!status && faults.n + faults.n_lost > 0)
        status = fail_reference(draft->verify, &faults, err);
    fq_messages_free(&faults);
    fq_messages_free(&warnings);
    return status;
}

static fq_status list_candidates(matcher *m, fq_error *err) {
    const fq_plan *plan = &m->draft->work->reference_plan;
    size_t n = 0;
    for (size_t s = 0; s < plan->n_shards; s++)
        n += plan->shards[s].n_steps;
    m->candidates = fq_arena_array(&m->scratch, n, sizeof *m->candidates);
    if (!m->candidates)
        return fq_fail_memory(err);
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            if (step->action == FQ_QUANTIZE)
                m->candidates[m->n_candidates++].step = step;
        }
    }
    qsort(m->candidates, m->n_candidates, sizeof *m->candidates, compare_candidates);
    return FQ_OK;
}

// ---- Weights

static bool same_shape(const fq_tensor *a, const fq_tensor *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static void mark_used(matcher *m, const fq_tensor *tensor) {
    m->used[fq_checkpoint_position(m->draft->verify->reference, tensor->name)] = true;
}

// A tensor of the same name and shape: matrix i of the one is matrix i of the other.
static void match_same(fq_step *out, const fq_step *step, const fq_tensor *reference) {
    *out = *step;
    out->source = reference;
}

// Sets reference to what the step's matrix is in the reference; its source stays NULL, and the
// tensor gets a reason, if there is nothing.
static void match_weight(matcher *m, const fq_step *step, fq_verify_step *beside) {
    fq_verify_tensor *tensor = &m->draft->verify->tensors[beside->tensor];
    const fq_tensor *weight = step->source;
    const fq_tensor *same = fq_checkpoint_find(m->draft->verify->reference, weight->name);
    if (same && fq_dtype_is_source(same->dtype) && same_shape(same, weight)) {
        match_same(&beside->reference, step, same);
    } else {
        candidate *found = bsearch(weight->name, m->candidates, m->n_candidates,
                                   sizeof *m->candidates, compare_with_name);
        if (found && found->step->source_matrix.rows == step->source_matrix.rows &&
            found->step->source_matrix.cols == step->source_matrix.cols && weight->rank == 2) {
            found->used = true;
            beside->reference = *found->step;
            beside->reference.block = step->block;
        }
    }
    if (beside->reference.source) {
        tensor->reference = beside->reference.source;
        mark_used(m, tensor->reference);
    } else if (same) {
        char shape[FQ_SHAPE_TEXT];
        mark_used(m, same);
        fq_messages_add(&tensor->reasons, "is %s %s in the reference: another tensor",
                        fq_dtype_name(same->dtype),
                        fq_shape_format(shape, sizeof shape, same->shape, same->rank));
    } else if (tensor->reasons.n == 0) { // once for a stack
        fq_messages_add(&tensor->reasons, "has no counterpart in the reference");
    }
}

// ---- Other tensors

static fq_status add_item(matcher *m, const char *name, const char *rest, fq_error *err) {
    m->items[m->n_items++] = (fq_fold_item){.name = name, .rest = rest};
    return rest ? FQ_OK : fq_fail_memory(err);
}

static fq_status match_copy(matcher *m, const fq_step *step, fq_verify_step *beside,
                            fq_error *err) {
    const fq_tensor *tensor = step->source;
    const fq_tensor *same = fq_checkpoint_find(m->draft->verify->reference, tensor->name);
    char is[FQ_SHAPE_TEXT], was[FQ_SHAPE_TEXT];
    if (!same && fq_is_runtime_scale(tensor->name)) // of a KV cache or of activations
        return FQ_OK;
    if (!same)
        return add_item(m, tensor->name,
                        "is not in the reference; remove it, or name the right "
                        "reference",
                        err);
    mark_used(m, same);
    if (same->dtype == tensor->dtype && same_shape(same, tensor)) {
        beside->reference = (fq_step){.action = FQ_COPY, .source = same};
        return FQ_OK;
    }
    return add_item(m, tensor->name,
                    fq_arena_printf(&m->scratch,
                                    "is %s %s, but %s %s in the reference; copy that tensor anew",
                                    fq_dtype_name(tensor->dtype),
                                    fq_shape_format(is, sizeof is, tensor->shape, tensor->rank),
                                    fq_dtype_name(same->dtype),
                                    fq_shape_format(was, sizeof was, same->shape, same->rank)),
                    err);
}

// ---- What was dropped

// Output heads that are tied need not be stored, and tables of rotary angles are computed.
static bool may_be_absent(const matcher *m, const char *name) {
    static const char angles[] = "rotary_emb.inv_freq";
    const size_t n = strlen(name), n_angles = sizeof angles - 1;
    if (m->draft->reference_model->tie_word_embeddings && strcmp(name, "lm_head.weight") == 0)
        return true;
    return n >= n_angles && strcmp(name + n - n_angles, angles) == 0;
}

static bool is_chosen(const matcher *m, const char *name) {
    const fq_verify_options *options = &m->draft->verify->options;
    return fq_glob_chooses(options->globs, options->n_globs, name);
}

static fq_status list_dropped(matcher *m, fq_error *err) {
    static const char text[] = "is in the reference, but not here; convert it again";
    const fq_verify *verify = m->draft->verify;
    fq_status status = FQ_OK;
    for (size_t i = 0; i < verify->reference->n_tensors && !status; i++) {
        const char *name = verify->reference->by_name[i]->name;
        if (!m->used[i] && !may_be_absent(m, name) && is_chosen(m, name))
            status = add_item(m, name, text, err);
    }
    // Of a fused tensor, experts may be missing one by one.
    for (size_t i = 0; i < m->n_candidates && !status; i++) {
        const fq_step *step = m->candidates[i].step;
        const size_t source = fq_checkpoint_position(verify->reference, step->source->name);
        const char *name = step->target->name;
        const bool is_whole = fq_checkpoint_find(verify->checkpoint, step->source->name) != NULL;
        if (step->split && !m->candidates[i].used && m->used[source] && !is_whole &&
            is_chosen(m, name))
            status = add_item(m, name, text, err);
    }
    return status;
}

static uint64_t reference_nbytes(const fq_step *step, const fq_step *reference) {
    if (!reference->source || step->action == FQ_COPY)
        return reference->source ? reference->source->nbytes : 0;
    return step->source_matrix.rows * step->source_matrix.cols *
           fq_dtype_size(reference->source->dtype);
}

// What is not read is matched by its name alone.
static void match_unread(matcher *m) {
    const fq_verify *verify = m->draft->verify;
    for (size_t i = 0; i < verify->n_tensors; i++) {
        const char *name = verify->tensors[i].tensor->name;
        const fq_tensor *same = fq_checkpoint_find(verify->reference, name);
        candidate *found =
            bsearch(name, m->candidates, m->n_candidates, sizeof *m->candidates, compare_with_name);
        if (verify->tensors[i].has_weight)
            continue;
        if (same)
            mark_used(m, same);
        if (found) {
            found->used = true;
            mark_used(m, found->step->source);
        }
    }
}

static fq_status match_all(matcher *m, fq_error *err) {
    fq_verify_work *work = m->draft->work;
    match_unread(m);
    for (size_t s = 0; s < work->plan.n_shards; s++) {
        for (size_t i = 0; i < work->plan.shards[s].n_steps; i++) {
            const fq_step *step = &work->plan.shards[s].steps[i];
            fq_verify_step *beside = &work->steps[s][i];
            if (beside->tensor != SIZE_MAX)
                match_weight(m, step, beside);
            else if (match_copy(m, step, beside, err))
                return err->status;
            work->nbytes += reference_nbytes(step, &beside->reference);
        }
    }
    return FQ_OK;
}

// ---- Rules

// True if the list "BF16,F32" names the dtype.
static bool is_listed(const char *list, fq_dtype dtype) {
    const char *name = fq_dtype_name(dtype);
    const size_t n = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

// Every code is known only where fp8q made it of weights of the reference's dtype.
static fq_verify_rule rule_of(const fq_verify *verify, const fq_verify_tensor *tensor) {
    const fq_shard *shard = &verify->checkpoint->shards[tensor->tensor->shard];
    const char *version = fq_metadata_find(shard->metadata, shard->n_metadata, "fp8q.version");
    const char *sources = fq_metadata_find(shard->metadata, shard->n_metadata, "fp8q.source_dtype");
    if (!tensor->reference)
        return FQ_RULE_NONE;
    if (!version || !sources)
        return FQ_RULE_BOUND;
    if (is_listed(sources, FQ_F8_E4M3))
        return FQ_RULE_REQUANTIZED;
    return is_listed(sources, tensor->reference->dtype) ? FQ_RULE_EXACT : FQ_RULE_BOUND;
}

fq_status fq_verify_match(fq_verify_draft *draft, fq_error *err) {
    fq_verify *verify = draft->verify;
    matcher m = {.draft = draft};
    const size_t n_reference = verify->reference->n_tensors;
    fq_status status = plan_reference(draft, err);
    if (!status)
        status = list_candidates(&m, err);
    m.used = fq_arena_array(&m.scratch, n_reference, sizeof *m.used);
    m.items = fq_arena_array(
        &m.scratch, n_reference + verify->checkpoint->n_tensors + m.n_candidates, sizeof *m.items);
    if (!status && (!m.used || !m.items))
        status = fq_fail_memory(err);
    if (!status)
        status = match_all(&m, err);
    if (!status)
        status = list_dropped(&m, err);
    if (!status)
        status =
            fq_fold_messages(&verify->problems, verify->checkpoint->path, m.items, m.n_items, err);
    for (size_t i = 0; i < verify->n_tensors && !status; i++)
        verify->tensors[i].rule = rule_of(verify, &verify->tensors[i]);
    fq_arena_free(&m.scratch);
    return status;
}
