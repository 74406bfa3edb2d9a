// Says which fusion groups engines will not load as they are: see fusion.h.
#include "fusion.h"

#include "fold.h"

enum { MAX_NAMED = 3 }; // members, which of siblings are all

// Leaves of a group what matters in the end: beside experts that are all FP8 nothing, and beside
// others what is FP8, for engines skip the whole module. False when out of memory.
static bool leave_out_idle(fq_fusion_group *out, const fq_fusion_group *group,
                           const fq_policy_draft *draft, fq_arena *scratch) {
    *out = *group;
    if (group->n_beside == 0)
        return true;
    out->members = fq_arena_array(scratch, group->n, sizeof *out->members);
    if (!out->members)
        return false;
    bool all = true;
    const size_t n_experts = group->n - group->n_beside;
    out->n = out->n_beside = 0;
    for (size_t i = 0; i < group->n; i++) {
        const bool quantize = draft->decisions[group->members[i]].quantize;
        all = all && (quantize || i >= n_experts);
        if (i < n_experts || (quantize && !all))
            out->members[out->n++] = group->members[i];
    }
    return true;
}

static size_t count_quantized(const fq_fusion_group *group, const fq_policy_draft *draft) {
    size_t n = 0;
    for (size_t i = 0; i < group->n; i++)
        n += draft->decisions[group->members[i]].quantize;
    return n;
}

// The n members that are quantized, or those that are not: "q_proj and v_proj", of many only the
// first ones and how many more. NULL when out of memory.
static const char *list_members(const fq_fusion_group *group, const fq_policy_draft *draft,
                                bool quantized, size_t n, fq_arena *scratch) {
    const char *list = "";
    size_t n_met = 0;
    for (size_t i = 0; i < group->n && n_met < MAX_NAMED && list; i++) {
        const fq_decision *decision = &draft->decisions[group->members[i]];
        if (decision->quantize != quantized)
            continue;
        size_t n_name;
        const char *name = fq_fusion_member_name(&n_name, group, decision->tensor);
        const char *before = n_met == 0 ? "" : n_met == n - 1 ? " and " : ", ";
        n_met++;
        list = fq_arena_printf(scratch, "%s%s%.*s", list, before, (int)n_name, name);
    }
    if (!list || n <= MAX_NAMED)
        return list;
    return fq_arena_printf(scratch, "%s and %zu more", list, n - MAX_NAMED);
}

// What engines make of a group as it is in the end; "" if they load it. NULL when out of memory.
static const char *describe_broken(const fq_fusion_group *group, const fq_policy_draft *draft,
                                   fq_arena *scratch) {
    const size_t n = count_quantized(group, draft);
    if (n == 0 || (n == group->n && !group->ragged))
        return "";
    const char *quantized = list_members(group, draft, true, n, scratch);
    const char *kept = list_members(group, draft, false, group->n - n, scratch);
    if (!quantized || !kept)
        return NULL;
    if (n < group->n)
        return fq_arena_printf(scratch, "engines fuse these: quantized are %s, kept are %s; %s",
                               quantized, kept,
                               draft->is_given ? "quantize the model again, and treat them alike"
                                               : "treat them alike with --exclude");
    const char *cure = draft->is_given ? "quantize the model again, and keep them as they are"
                                       : "remove this --include";
    if (n == 1)
        return fq_arena_printf(scratch, "engines refuse %s; %s", group->ragged, cure);
    return fq_arena_printf(scratch, "engines fuse %s, and refuse %s; %s", quantized, group->ragged,
                           cure);
}

fq_status fq_fusion_warn(const fq_fusion_groups *groups, const fq_policy_draft *draft,
                         fq_error *err) {
    fq_arena scratch = {0};
    fq_fold_item *items = fq_arena_array(&scratch, groups->n, sizeof *items);
    size_t n = 0;
    fq_status status = items ? FQ_OK : fq_fail_memory(err);
    for (size_t i = 0; i < groups->n && !status; i++) {
        fq_fusion_group group;
        const char *text = NULL;
        if (leave_out_idle(&group, &groups->groups[i], draft, &scratch))
            text = describe_broken(&group, draft, &scratch);
        if (!text)
            status = fq_fail_memory(err);
        else if (*text)
            items[n++] =
                (fq_fold_item){.name = *group.module ? group.module : "top level", .rest = text};
    }
    if (!status)
        status = fq_fold_messages(draft->warnings, draft->checkpoint->path, items, n, err);
    fq_arena_free(&scratch);
    return status;
}
