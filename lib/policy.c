// Decides which tensors are quantized: the built-in rules tensor by tensor, then groups, then the
// user's rules.
#include "experts.h"
#include "fusion.h"
#include "glob.h"
#include "names.h"
#include "policy_draft.h"

#include <stdlib.h>
#include <string.h>

// The built-in rules on one tensor alone; fused experts are decided by fq_experts_decide.
static fq_status judge(fq_policy_draft *draft, size_t position, fq_error *err) {
    const fq_tensor *tensor = draft->decisions[position].tensor;
    const char *unfit = fq_why_unfit(tensor);
    if (unfit)
        return fq_draft_refuse(draft, position, unfit, err);
    if (tensor->rank != 2)
        return fq_draft_refuse(draft, position, fq_experts_why_not_2d(tensor), err);
    const size_t n = fq_module_length(tensor->name);
    if (n == 0)
        return fq_draft_keep(draft, position,
                             fq_has_suffix(tensor->name, ".weight")
                                 ? "its name is .weight alone, without a module"
                                 : "its name does not end in .weight",
                             err);
    const fq_component_rule *rule = fq_policy_rule_for(tensor->name, n);
    if (rule)
        return fq_draft_keep(draft, position, rule->reason, err);
    const char *small = fq_why_small(tensor->shape[0], tensor->shape[1]);
    if (small)
        return fq_draft_keep(draft, position, small, err);
    return fq_draft_choose(draft, position, tensor->shape[0], tensor->shape[1], err);
}

static fq_status judge_all(fq_policy_draft *draft, fq_error *err) {
    const fq_checkpoint *checkpoint = draft->checkpoint;
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        draft->decisions[i].tensor = checkpoint->by_name[i];
        draft->possible[i] = true;
        const fq_status status = judge(draft, i, err);
        if (status)
            return status;
    }
    fq_status status = fq_experts_decide(draft, err);
    for (size_t i = 0; i < draft->options->n_nonfinite && !status; i++) {
        const size_t position =
            fq_checkpoint_position(checkpoint, draft->options->nonfinite[i]->name);
        draft->nonfinite[position] = true;
        status = fq_draft_refuse(draft, position, "holds NaN or Inf", err);
    }
    return status;
}

// A rule may be the very name of a tensor. What cannot be done to it is a fault, but for NaN and
// Inf: they are found only after the user asked to keep such tensors.
static void check_include(const fq_policy_draft *draft, const fq_name_rule *rule, size_t position) {
    const fq_decision *decision = &draft->decisions[position];
    if (strcmp(rule->glob, decision->tensor->name) == 0 && !draft->nonfinite[position])
        fq_messages_add(draft->faults, "%s: %s: cannot be quantized: %s; remove this --include",
                        fq_tensor_file(draft->checkpoint, decision->tensor), decision->tensor->name,
                        decision->reason);
}

static fq_status apply_rule(fq_policy_draft *draft, const fq_name_rule *rule, size_t position,
                            fq_error *err) {
    fq_decision *decision = &draft->decisions[position];
    if (rule->include == decision->quantize)
        return FQ_OK;
    if (!rule->include)
        return fq_draft_keep(draft, position,
                             fq_arena_printf(draft->arena, "by --exclude %s", rule->glob), err);
    if (!draft->possible[position]) {
        check_include(draft, rule, position);
        return FQ_OK;
    }
    decision->quantize = true;
    decision->reason = fq_arena_printf(draft->arena, "by --include %s", rule->glob);
    return decision->reason ? FQ_OK : fq_fail_memory(err);
}

static void report_unmatched(const fq_policy_draft *draft, const fq_name_rule *rule) {
    const bool is_fault = rule->include && !fq_glob_has_wildcard(rule->glob);
    fq_messages_add(is_fault ? draft->faults : draft->warnings,
                    "%s: %s: no tensor has this name; check --%s (globs match full names)",
                    draft->checkpoint->path, rule->glob, rule->include ? "include" : "exclude");
}

// The user's rules, over what the built-in ones decided.
static fq_status apply_rules(fq_policy_draft *draft, fq_error *err) {
    const fq_policy_options *options = draft->options;
    fq_arena scratch = {0};
    bool *matched = fq_arena_array(&scratch, options->n_rules, sizeof *matched);
    fq_status status = matched ? FQ_OK : fq_fail_memory(err);
    for (size_t i = 0; i < draft->checkpoint->n_tensors && !status; i++) {
        const fq_name_rule *last = NULL;
        for (size_t r = 0; r < options->n_rules; r++) {
            if (fq_glob_match(options->rules[r].glob, draft->decisions[i].tensor->name)) {
                matched[r] = true;
                last = &options->rules[r];
            }
        }
        if (last)
            status = apply_rule(draft, last, i, err);
    }
    for (size_t r = 0; r < options->n_rules && !status; r++) {
        if (!matched[r])
            report_unmatched(draft, &options->rules[r]);
    }
    fq_arena_free(&scratch);
    return status;
}

// Only --include chooses embeddings and output heads. Engines have no FP8 form of their modules.
static void warn_of_embeddings_and_heads(const fq_policy_draft *draft) {
    for (size_t i = 0; i < draft->checkpoint->n_tensors; i++) {
        const fq_decision *decision = &draft->decisions[i];
        const char *name = decision->tensor->name;
        const fq_component_rule *rule =
            decision->quantize ? fq_policy_rule_for(name, fq_module_length(name)) : NULL;
        if (rule && (fq_policy_rule_is_embedding(rule) || fq_policy_rule_is_output_head(rule)))
            fq_messages_add(draft->warnings,
                            "%s: %s: is quantized %s, but engines have no FP8 form of %s: they may "
                            "refuse it, or read it without its scales; remove this --include",
                            draft->checkpoint->path, name, decision->reason,
                            fq_policy_rule_is_embedding(rule) ? "embeddings" : "output heads");
    }
}

// Kept tensors have no layout to split by.
static void clear_kept(fq_policy_draft *draft) {
    for (size_t i = 0; i < draft->checkpoint->n_tensors; i++) {
        fq_decision *decision = &draft->decisions[i];
        if (!decision->quantize) {
            decision->experts = FQ_EXPERTS_NONE;
            decision->transposed = false;
        }
    }
}

// The bytes of the module that engines must be told of: the weight of a linear layer, as far as
// name, dtype and shape tell, or a stack of them, that stays as it is. 0 for other tensors.
static size_t kept_module_length(const fq_checkpoint *checkpoint, const fq_decision *decision) {
    const fq_tensor *tensor = decision->tensor;
    if (decision->quantize || fq_experts_is_scale(checkpoint, tensor->name))
        return 0;
    if (tensor->rank != 2 || !(fq_dtype_is_source(tensor->dtype) || tensor->dtype == FQ_F64))
        return fq_experts_stack_length(tensor);
    const size_t n = fq_module_length(tensor->name);
    const fq_component_rule *rule = fq_policy_rule_for(tensor->name, n);
    return rule && fq_policy_rule_is_embedding(rule) ? 0 : n;
}

// Engines look for the module of all experts, not for the matrices in it: listed where a fused
// tensor of it stays, or everything.
static bool is_kept_experts(const fq_policy_draft *draft, const fq_fusion_group *group) {
    bool any_quantized = false;
    for (size_t i = 0; i < group->n - group->n_beside; i++) {
        const fq_decision *decision = &draft->decisions[group->members[i]];
        if (!decision->quantize && fq_experts_module_length(decision->tensor->name))
            return true;
        any_quantized = any_quantized || decision->quantize;
    }
    return group->is_experts && !any_quantized;
}

static bool is_quantized_lm_head(const fq_decision *decision) {
    static const char head[] = "lm_head";
    const char *name = decision->tensor->name;
    const size_t n = fq_module_length(name), n_head = sizeof head - 1;
    return decision->quantize && fq_has_suffix_n(name, n, head) &&
           (n == n_head || name[n - n_head - 1] == '.');
}

static int compare_strings(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static size_t remove_duplicates(const char **sorted, size_t n) {
    size_t n_unique = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_unique == 0 || strcmp(sorted[n_unique - 1], sorted[i]) != 0)
            sorted[n_unique++] = sorted[i];
    }
    return n_unique;
}

static fq_status list_modules(fq_policy *out, const fq_policy_draft *draft,
                              const fq_fusion_groups *groups, fq_error *err) {
    const size_t n_tensors = draft->checkpoint->n_tensors;
    const char **modules = fq_arena_array(draft->arena, n_tensors + groups->n + 1, sizeof *modules);
    if (!modules)
        return fq_fail_memory(err);
    size_t n = 0;
    bool is_head_quantized = false;
    for (size_t i = 0; i < n_tensors; i++) {
        is_head_quantized |= is_quantized_lm_head(&draft->decisions[i]);
        const size_t n_module = kept_module_length(draft->checkpoint, &draft->decisions[i]);
        if (n_module == 0)
            continue;
        modules[n] = fq_arena_strndup(draft->arena, draft->decisions[i].tensor->name, n_module);
        if (!modules[n++])
            return fq_fail_memory(err);
    }
    for (size_t i = 0; i < groups->n; i++) {
        if (is_kept_experts(draft, &groups->groups[i]))
            modules[n++] = groups->groups[i].module;
    }
    // Tied or absent too: transformers has a default of its own only where there is no list at all.
    if (!is_head_quantized)
        modules[n++] = "lm_head";
    qsort(modules, n, sizeof *modules, compare_strings);
    out->modules_to_not_convert = modules;
    out->n_modules = remove_duplicates(modules, n);
    return FQ_OK;
}

static fq_status start_draft(fq_policy_draft *draft, fq_error *err) {
    const size_t n = draft->checkpoint->n_tensors;
    draft->decisions = fq_arena_array(draft->arena, n, sizeof *draft->decisions);
    draft->possible = fq_arena_array(draft->arena, n, sizeof *draft->possible);
    draft->nonfinite = fq_arena_array(draft->arena, n, sizeof *draft->nonfinite);
    return draft->decisions && draft->possible && draft->nonfinite ? FQ_OK : fq_fail_memory(err);
}

fq_status fq_policy_decide(fq_policy *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                           const fq_model *model, const fq_policy_options *options,
                           fq_messages *faults, fq_messages *warnings, fq_error *err) {
    fq_policy_draft draft = {
        .checkpoint = checkpoint,
        .model = model,
        .options = options,
        .arena = arena,
        .faults = faults,
        .warnings = warnings,
    };
    fq_fusion_groups groups = {0};
    fq_status status = start_draft(&draft, err);
    *out = (fq_policy){.decisions = draft.decisions};
    if (!status)
        status = judge_all(&draft, err);
    if (!status)
        status = fq_fusion_decide(&groups, &draft, err);
    if (!status)
        status = apply_rules(&draft, err);
    if (!status)
        status = fq_fusion_warn(&groups, &draft, err);
    if (!status)
        status = fq_experts_warn(&draft, err);
    if (status)
        return status;
    warn_of_embeddings_and_heads(&draft);
    clear_kept(&draft);
    return list_modules(out, &draft, &groups, err);
}

static void take_dtypes(fq_policy_draft *draft) {
    for (size_t i = 0; i < draft->checkpoint->n_tensors; i++) {
        const fq_tensor *tensor = draft->checkpoint->by_name[i];
        draft->decisions[i] =
            (fq_decision){.tensor = tensor, .quantize = tensor->dtype == FQ_F8_E4M3, .reason = ""};
    }
}

fq_status fq_policy_describe(fq_policy *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                             const fq_model *model, fq_messages *broken, fq_error *err) {
    static const fq_policy_options no_options = {0};
    fq_policy_draft draft = {.checkpoint = checkpoint,
                             .model = model,
                             .options = &no_options,
                             .arena = arena,
                             .warnings = broken,
                             .is_given = true};
    fq_fusion_groups groups = {0};
    fq_status status = start_draft(&draft, err);
    if (status)
        return status;
    *out = (fq_policy){.decisions = draft.decisions};
    take_dtypes(&draft);
    status = fq_fusion_decide(&groups, &draft, err);
    take_dtypes(&draft); // deciding keeps the whole of a group that it would not have chosen
    if (!status)
        status = fq_fusion_warn(&groups, &draft, err);
    return status ? status : list_modules(out, &draft, &groups, err);
}
