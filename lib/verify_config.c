// Holds config.json against the tensors: what engines will make of them. See verify_work.h.
#include "verify_work.h"

#include "names.h"
#include "policy_draft.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void add_config_problem(fq_verify *verify, const char *text) {
    fq_messages_add(&verify->problems, "%s/config.json: quantization_config: %s",
                    verify->checkpoint->path, text);
}

// fp8q wrote at least a part of the checkpoint.
static const fq_shard *find_own_shard(const fq_verify *verify) {
    for (size_t s = 0; s < verify->checkpoint->n_shards; s++) {
        const fq_shard *shard = &verify->checkpoint->shards[s];
        if (fq_metadata_find(shard->metadata, shard->n_metadata, "fp8q.version"))
            return shard;
    }
    return NULL;
}

// ---- Keys

// Engines that read block scales want these of quant_method fp8.
static void check_native_keys(fq_verify *verify, const fq_quant_config *quant) {
    if (!*quant->activation_scheme)
        add_config_problem(verify, "has no activation_scheme, and vLLM and SGLang refuse the model "
                                   "without it; add \"dynamic\"");
    else if (strcmp(quant->activation_scheme, "dynamic") != 0)
        add_config_problem(verify, "activation_scheme is not dynamic, and engines refuse any other "
                                   "with block scales; write \"dynamic\"");
    if (!quant->has_block)
        add_config_problem(verify, "has no weight_block_size, and engines take the weights for "
                                   "FP8 with one scale each; add it");
}

static void check_keys(fq_verify *verify, const fq_model *model) {
    const fq_quant_config *quant = &model->quant;
    if (!quant->present)
        fq_messages_add(
            &verify->problems,
            "%s/config.json: has no quantization_config, and engines take the FP8 codes "
            "for weights; add the one that fp8q convert prints",
            verify->checkpoint->path);
    else if (!*quant->method)
        add_config_problem(verify, "has no quant_method; write what the format is, as \"fp8\"");
    else if (strstr(quant->method, "fp8"))
        check_native_keys(verify, quant);
}

// ---- Scale format

// What fp8q says of its scales, in metadata and config, against what they are.
static bool is_format(const fq_pair *pair, const char *format) {
    if (strcmp(format, "packed") == 0)
        return pair->storage == FQ_STORED_PACKED;
    if (pair->storage != FQ_STORED_GRID)
        return false;
    return pair->scale->dtype == (strcmp(format, "e8m0") == 0 ? FQ_F8_E8M0 : FQ_F32);
}

static void check_format(fq_verify *verify, const char *format, const char *who) {
    size_t n = 0;
    const fq_pair *first = NULL;
    for (size_t i = 0; i < verify->pairing.n; i++) {
        if (!is_format(&verify->pairing.pairs[i], format) && n++ == 0)
            first = &verify->pairing.pairs[i];
    }
    if (first)
        fq_messages_add(&verify->problems,
                        "%s: %s: is no scale of format %s, which %s (%zu of %zu scales); convert "
                        "the model again",
                        fq_tensor_file(verify->checkpoint, first->scale), first->scale->name,
                        format, who, n, verify->pairing.n);
}

static void check_formats(fq_verify *verify, const fq_shard *own, const fq_quant_config *quant) {
    const char *said =
        own ? fq_metadata_find(own->metadata, own->n_metadata, "fp8q.scale_format") : NULL;
    if (said)
        check_format(verify, said, "the file's metadata say");
    if (*quant->scale_format && (!said || strcmp(said, quant->scale_format) != 0))
        check_format(verify, quant->scale_format, "config.json says");
    if (quant->present && said && strcmp(said, "f32") != 0 && !quant->ue8m0)
        add_config_problem(verify, "does not say scale_fmt \"ue8m0\", though all scales are powers "
                                   "of two; add it, or engines for Blackwell requantize");
}

// ---- The list of modules

// The entries of the list, sorted.
typedef struct module_list {
    const char **entries; // [n]
    size_t n;
    const char *key;
    bool is_exact;       // as vLLM reads it, and as fp8q writes it
    bool has_patterns;   // entries that this version does not read
    fq_fold_item *items; // [n_items]: problems
    size_t n_items;
    fq_arena scratch;
} module_list;

static int compare_entries(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The first n bytes of name are an entry.
static bool is_entry(const module_list *list, const char *name, size_t n) {
    size_t low = 0, high = list->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const char *entry = list->entries[middle];
        const int order = strncmp(entry, name, n);
        if (order == 0 && entry[n] == '\0')
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

// Like is_entry, for whole components anywhere in the name, as most engines take them.
static bool holds_entry(const module_list *list, const char *name, size_t n) {
    for (size_t start = 0; start < n;) {
        for (size_t end = start; end < n;) {
            const char *dot = memchr(name + end, '.', n - end);
            end = dot ? (size_t)(dot - name) : n;
            if (is_entry(list, name + start, end - start))
                return true;
            end++;
        }
        const char *dot = memchr(name + start, '.', n - start);
        start = dot ? (size_t)(dot - name) + 1 : n;
    }
    return false;
}

// A module of experts is listed as a whole: "P.experts".
static bool is_listed(const module_list *list, const char *name, size_t n) {
    if (!list->is_exact)
        return holds_entry(list, name, n);
    for (size_t end = n; end > 0;) {
        if (is_entry(list, name, end))
            return end == n || fq_has_suffix_n(name, end, "experts");
        const char *dot = memrchr(name, '.', end);
        end = dot ? (size_t)(dot - name) : 0;
    }
    return false;
}

static fq_status open_list(module_list *out, const fq_quant_config *quant, bool is_own,
                           fq_error *err) {
    out->key = *quant->list_key ? quant->list_key : "modules_to_not_convert";
    out->is_exact = is_own;
    out->entries = fq_arena_array(&out->scratch, quant->n_unconverted, sizeof *out->entries);
    if (!out->entries)
        return fq_fail_memory(err);
    for (size_t i = 0; i < quant->n_unconverted; i++) {
        const char *entry = quant->unconverted[i];
        if (!is_own && (strncmp(entry, "re:", 3) == 0 || strchr(entry, '*')))
            out->has_patterns = true;
        else
            out->entries[out->n++] = entry;
    }
    qsort(out->entries, out->n, sizeof *out->entries, compare_entries);
    return FQ_OK;
}

static fq_status add_item(module_list *list, const char *name, const char *before,
                          const char *after, fq_error *err) {
    fq_fold_item *item = &list->items[list->n_items++];
    item->name = name;
    item->rest = fq_arena_printf(&list->scratch, "%s%s%s", before, list->key, after);
    return item->name && item->rest ? FQ_OK : fq_fail_memory(err);
}

// FP8 weights that engines would take for codes without scales.
static fq_status find_listed_weights(module_list *list, const fq_verify *verify, fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < verify->n_tensors && !status; i++) {
        const char *name = verify->tensors[i].tensor->name;
        const size_t n = fq_module_length(name);
        if (n > 0 && is_listed(list, name, n))
            status = add_item(
                list, fq_arena_strndup(&list->scratch, name, n), "is FP8, but ",
                " lists it, and engines take its codes for weights; remove that entry", err);
    }
    return status;
}

// Other makers rely on engines to know what is never FP8.
static bool must_be_listed(const module_list *list, const char *module) {
    return list->is_exact ||
           (!fq_policy_rule_for(module, strlen(module)) && strcmp(module, "lm_head") != 0);
}

static fq_status find_unlisted(module_list *list, const fq_policy *policy, fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < policy->n_modules && !status; i++) {
        const char *module = policy->modules_to_not_convert[i];
        const size_t n = strlen(module);
        const bool found =
            list->is_exact ? is_entry(list, module, n) : holds_entry(list, module, n);
        if (!found && must_be_listed(list, module))
            status = add_item(list, module, "is not FP8, but ",
                              " does not list it, and engines look for its scales; add it", err);
    }
    return status;
}

// Entries of fp8q's own list are modules that it kept.
static fq_status find_stale(module_list *list, const fq_verify *verify, const fq_policy *policy,
                            fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < list->n && !status; i++) {
        const char *entry = list->entries[i];
        const bool is_kept = bsearch(&entry, policy->modules_to_not_convert, policy->n_modules,
                                     sizeof entry, compare_entries) != NULL;
        const size_t weight =
            fq_checkpoint_position_of(verify->checkpoint, entry, strlen(entry), ".weight");
        if (!is_kept && weight == SIZE_MAX)
            status = add_item(list, entry, "is no module of the model, but ",
                              " lists it; remove the entry", err);
    }
    return status;
}

static fq_status check_list(fq_verify *verify, const fq_quant_config *quant, bool is_own,
                            const fq_policy *policy, fq_error *err) {
    module_list list = {.key = ""};
    const bool is_native = strstr(quant->method, "fp8") != NULL;
    fq_status status = open_list(&list, quant, is_own, err);
    if (!status)
        list.items = fq_arena_array(&list.scratch, verify->n_tensors + policy->n_modules + list.n,
                                    sizeof *list.items);
    if (!status && !list.items)
        status = fq_fail_memory(err);
    if (!status)
        status = find_listed_weights(&list, verify, err);
    if (!status && (is_own || (*quant->list_key && is_native && !list.has_patterns)))
        status = find_unlisted(&list, policy, err);
    if (!status && is_own)
        status = find_stale(&list, verify, policy, err);
    if (!status)
        status = fq_fold_messages(&verify->problems, verify->checkpoint->path, list.items,
                                  list.n_items, err);
    fq_arena_free(&list.scratch);
    return status;
}

// ---- The whole

static void check_without_weights(fq_verify *verify, const fq_model *model) {
    fq_messages_add(&verify->problems, "%s: holds no FP8 weight; there is nothing to verify",
                    verify->checkpoint->path);
    if (model->quant.present)
        add_config_problem(verify, "speaks of FP8 weights, but there are none; remove it");
}

static void check_copies(fq_verify *verify) {
    if (!verify->reference)
        fq_messages_add(&verify->notes, "no --reference: the error of weights, and whether codes "
                                        "and other tensors are right, is not checked");
}

fq_status fq_verify_check_config(fq_verify_draft *draft, fq_error *err) {
    fq_verify *verify = draft->verify;
    const fq_quant_config *quant = &draft->model->quant;
    const fq_shard *own = find_own_shard(verify);
    fq_policy policy = {0};
    check_copies(verify);
    if (!draft->model->has_config)
        fq_messages_add(&verify->notes, "no config.json: what it must say is not checked");
    if (verify->n_tensors == 0 && verify->options.n_globs == 0) {
        check_without_weights(verify, draft->model);
        return FQ_OK;
    }
    fq_status status = fq_policy_describe(&policy, &verify->arena, verify->checkpoint, draft->model,
                                          &verify->problems, err);
    if (status)
        return status;
    check_formats(verify, own, quant);
    if (!draft->model->has_config)
        return FQ_OK;
    check_keys(verify, draft->model);
    return quant->present ? check_list(verify, quant, own != NULL, &policy, err) : FQ_OK;
}
