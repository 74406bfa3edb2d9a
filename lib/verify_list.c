// Holds the list of modules that stay unquantized against the tensors: what engines will make of
// it. See verify_work.h.
#include "verify_work.h"

#include "module_list.h"
#include "policy_draft.h"

#include <stdlib.h>
#include <string.h>

typedef struct list_check {
    fq_verify *verify;
    const fq_policy *policy;
    fq_module_list list;
    bool is_own;         // fp8q wrote it: every linear module that it kept, by its name
    bool is_exact;       // names stand for themselves alone, and not for what is in them
    fq_fold_item *items; // [n_items]: problems
    size_t n_items;
    fq_arena scratch;
} list_check;

// text: in scratch; NULL when out of memory.
static fq_status add_item(list_check *check, const char *name, size_t n, const char *text,
                          fq_error *err) {
    fq_fold_item *item = &check->items[check->n_items++];
    item->name = fq_arena_strndup(&check->scratch, name, n);
    item->rest = text;
    return item->name && item->rest ? FQ_OK : fq_fail_memory(err);
}

// fp8q lists a module of experts as a whole: "P.experts".
static bool names_experts(const fq_module_list *list, const char *name, size_t n) {
    static const char component[] = "experts";
    for (size_t end = n; end > 0;) {
        const char *dot = memrchr(name, '.', end);
        const size_t start = dot ? (size_t)(dot - name) + 1 : 0;
        if (end - start == strlen(component) && memcmp(name + start, component, end - start) == 0 &&
            fq_module_list_names(list, name, end))
            return true;
        end = dot ? (size_t)(dot - name) : 0;
    }
    return false;
}

static bool is_named(const list_check *check, const char *name, size_t n) {
    const fq_module_list *list = &check->list;
    return fq_module_list_names(list, name, n) || (check->is_own && names_experts(list, name, n)) ||
           (!check->is_exact && fq_module_list_names_part(list, name, n));
}

// FP8 weights that engines would take for codes without scales.
static fq_status find_listed_weights(list_check *check, fq_error *err) {
    static const char cure[] = "and engines take its codes for weights";
    const char *key = check->list.key;
    fq_status status = FQ_OK;
    for (size_t i = 0; i < check->verify->n_tensors && !status; i++) {
        const char *name = check->verify->tensors[i].tensor->name;
        const size_t n = fq_module_length(name);
        const char *pattern = fq_module_list_match(&check->list, name, n), *text;
        if (n == 0 || !(pattern || is_named(check, name, n)))
            continue;
        if (pattern)
            text = fq_arena_printf(&check->scratch,
                                   "is FP8, but \"%s\" in %s takes it in, %s; change that entry",
                                   pattern, key, cure);
        else
            text = fq_arena_printf(&check->scratch,
                                   "is FP8, but %s lists it, %s; remove that entry", key, cure);
        status = add_item(check, name, n, text, err);
    }
    return status;
}

// Engines differ in what a name takes in: one of them may read the list so.
static bool may_be_listed(const list_check *check, const char *module) {
    const size_t n = strlen(module);
    if (check->is_own)
        return fq_module_list_names(&check->list, module, n);
    return fq_module_list_names_part(&check->list, module, n) ||
           fq_module_list_match(&check->list, module, n);
}

// Other makers rely on engines to know what is never FP8.
static bool must_be_listed(const list_check *check, const char *module) {
    return check->is_own ||
           (!fq_policy_rule_for(module, strlen(module)) && strcmp(module, "lm_head") != 0);
}

static fq_status find_unlisted(list_check *check, fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < check->policy->n_modules && !status; i++) {
        const char *module = check->policy->modules_to_not_convert[i];
        if (may_be_listed(check, module) || !must_be_listed(check, module))
            continue;
        const char *text = fq_arena_printf(&check->scratch,
                                           "is not FP8, but %s does not list it, and engines look "
                                           "for its scales; add it",
                                           check->list.key);
        status = add_item(check, module, strlen(module), text, err);
    }
    return status;
}

static int compare_modules(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Entries of fp8q's own list are modules that it kept.
static fq_status find_stale(list_check *check, fq_error *err) {
    const fq_policy *policy = check->policy;
    fq_status status = FQ_OK;
    for (size_t i = 0; i < check->list.n_names && !status; i++) {
        const char *entry = check->list.names[i];
        const size_t n = strlen(entry);
        const bool is_kept = bsearch(&entry, policy->modules_to_not_convert, policy->n_modules,
                                     sizeof entry, compare_modules) != NULL;
        if (is_kept ||
            fq_checkpoint_position_of(check->verify->checkpoint, entry, n, ".weight") != SIZE_MAX)
            continue;
        const char *text = fq_arena_printf(
            &check->scratch, "is no module of the model, but %s lists it; remove the entry",
            check->list.key);
        status = add_item(check, entry, n, text, err);
    }
    return status;
}

static void note_unread(const list_check *check) {
    const fq_module_list *list = &check->list;
    if (list->n_unread > 0)
        fq_messages_add(&check->verify->notes,
                        "%zu of the patterns in %s are of a kind that is not read, the first of "
                        "them \"%.100s\": what they take in, and whether the list is complete, is "
                        "not checked",
                        list->n_unread, list->key, list->first_unread);
}

// Without a list an engine quantizes what it thinks right, and so it does where groups of
// compressed-tensors name their targets.
static bool is_complete(const list_check *check, const fq_quant_config *quant) {
    const bool is_about_all = strstr(quant->method, "fp8") || quant->has_linear_targets;
    return check->is_own || (*quant->list_key && is_about_all && check->list.n_unread == 0);
}

fq_status fq_verify_check_list(fq_verify_draft *draft, bool is_own, const fq_policy *policy,
                               fq_error *err) {
    const fq_quant_config *quant = &draft->model->quant;
    fq_verify *verify = draft->verify;
    list_check check = {.verify = verify,
                        .policy = policy,
                        .is_own = is_own,
                        .is_exact = is_own || strcmp(quant->method, "compressed-tensors") == 0};
    fq_status status = fq_module_list_read(&check.list, &check.scratch, quant, is_own, err);
    if (!status)
        check.items = fq_arena_array(&check.scratch,
                                     verify->n_tensors + policy->n_modules + check.list.n_names,
                                     sizeof *check.items);
    if (!status && !check.items)
        status = fq_fail_memory(err);
    if (!status)
        status = find_listed_weights(&check, err);
    if (!status && is_complete(&check, quant))
        status = find_unlisted(&check, err);
    if (!status && is_own)
        status = find_stale(&check, err);
    if (!status) {
        note_unread(&check);
        status = fq_fold_messages(&verify->problems, verify->checkpoint->path, check.items,
                                  check.n_items, err);
    }
    fq_arena_free(&check.scratch);
    return status;
}
