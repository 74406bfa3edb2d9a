// Groups of experts, and the count of their rows: see verify_experts.h.
#include "verify_experts.h"

#include "band.h"
#include "experts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// A weight that may have others beside it. Its name is that of all of them but for a number
// between the two parts; that of a stack has no second part.
typedef struct expert {
    size_t number; // of the tensor
    const fq_verify_tensor *tensor;
    const fq_activations_key *key;
    size_t n_module;  // bytes of the name's first part: "P.experts"
    const char *rest; // the second one: ".gate_proj.weight"
    uint64_t n_matrices, rows;
} expert;

typedef struct expert_group {
    const expert *first; // of tensors.n that lie side by side
    fq_verify_numbers tensors;
    size_t n_done;
    // With the lock held:
    uint64_t n_missing; // rows
    bool was_opened;
    bool is_joint; // the GEMM has a group for it, or had
    fq_gemm_group *gemm_group;
    const fq_activation_set *set; // while it is open
} expert_group;

struct fq_verify_experts {
    fq_verify_experts_options options;
    expert *experts; // [n_experts], those of a group side by side
    size_t *numbers; // [n_experts], of these
    size_t n_experts;
    expert_group *groups; // [n_groups]
    size_t n_groups;
    expert_group **group_of; // [verify->n_tensors]; NULL: multiplied by itself
    pthread_mutex_t lock;
};

// ---- Which weights belong together

// False for a weight that is no expert.
static bool split_name(expert *e) {
    const char *name = e->tensor->tensor->name;
    e->n_module = fq_experts_length(name);
    e->rest = "";
    if (e->n_module == 0)
        return false;
    if (e->tensor->tensor->rank == 3) {
        e->n_module = strlen(name);
        return true;
    }
    const char *after = name + e->n_module;
    const size_t n_digits = *after == '.' ? strspn(after + 1, "0123456789") : 0;
    e->rest = after + 1 + n_digits;
    return n_digits > 0 && *e->rest == '.';
}

static int compare_u64(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

// 0 for two of a group.
static int compare_kinds(const expert *a, const expert *b) {
    int order = compare_u64(a->n_module, b->n_module);
    if (order == 0)
        order = strncmp(a->tensor->tensor->name, b->tensor->tensor->name, a->n_module);
    if (order == 0)
        order = strcmp(a->rest, b->rest);
    if (order == 0)
        order = compare_u64(a->rows, b->rows);
    if (order == 0)
        order = compare_u64(a->key->cols, b->key->cols);
    if (order == 0)
        order = compare_u64((uintptr_t)a->key->tensor, (uintptr_t)b->key->tensor);
    if (order == 0)
        order = compare_u64(a->key->pow2_scales, b->key->pow2_scales);
    if (order == 0)
        order = compare_u64(a->tensor->pair->storage, b->tensor->pair->storage);
    return order;
}

static int compare_experts(const void *left, const void *right) {
    const expert *a = left, *b = right;
    const int order = compare_kinds(a, b);
    return order ? order : compare_u64(a->number, b->number);
}

static void find_experts(fq_verify_experts *experts) {
    const fq_verify *verify = experts->options.verify;
    for (size_t i = 0; i < verify->n_tensors; i++) {
        const fq_verify_tensor *tensor = &verify->tensors[i];
        const fq_activations_key *key = &experts->options.keys[i];
        expert e = {.number = i, .tensor = tensor, .key = key};
        if (key->cols == 0 || !split_name(&e))
            continue;
        const uint64_t *shape = tensor->tensor->shape;
        e.n_matrices = tensor->tensor->rank == 3 ? shape[0] : 1;
        e.rows = shape[tensor->tensor->rank - 2];
        if (e.rows > 0)
            experts->experts[experts->n_experts++] = e;
    }
    qsort(experts->experts, experts->n_experts, sizeof *experts->experts, compare_experts);
    for (size_t i = 0; i < experts->n_experts; i++)
        experts->numbers[i] = experts->experts[i].number;
}

static void find_groups(fq_verify_experts *experts) {
    for (size_t i = 0, end; i < experts->n_experts; i = end) {
        const expert *first = &experts->experts[i];
        uint64_t n_matrices = 0;
        for (end = i; end < experts->n_experts && compare_kinds(first, first + (end - i)) == 0;)
            n_matrices += experts->experts[end++].n_matrices;
        if (n_matrices < 2)
            continue;
        expert_group *group = &experts->groups[experts->n_groups++];
        *group = (expert_group){.first = first,
                                .tensors = {&experts->numbers[i], end - i},
                                .n_missing = n_matrices * first->rows};
        for (size_t k = i; k < end; k++)
            experts->group_of[experts->numbers[k]] = group;
    }
}

fq_status fq_verify_experts_open(fq_verify_experts **out, const fq_verify_experts_options *options,
                                 fq_error *err) {
    const size_t n = options->verify->n_tensors + 1;
    fq_verify_experts *experts = calloc(1, sizeof *experts);
    if (!experts)
        return fq_fail_memory(err);
    *out = experts;
    experts->options = *options;
    pthread_mutex_init(&experts->lock, NULL);
    experts->experts = calloc(n, sizeof *experts->experts);
    experts->numbers = calloc(n, sizeof *experts->numbers);
    experts->groups = calloc(n, sizeof *experts->groups);
    experts->group_of = calloc(n, sizeof *experts->group_of);
    if (!experts->experts || !experts->numbers || !experts->groups || !experts->group_of)
        return fq_fail_memory(err);
    find_experts(experts);
    find_groups(experts);
    return FQ_OK;
}

// ---- Opening, launching and closing

uint64_t fq_verify_strip_rows(uint64_t band_rows, bool has_all_cols, uint64_t tokens,
                              uint64_t max_results) {
    if (!has_all_cols)
        return band_rows;
    const uint64_t n_blocks = max_results / tokens / FQ_BLOCK_SIZE;
    const uint64_t most = n_blocks > 0 ? n_blocks * FQ_BLOCK_SIZE : FQ_BLOCK_SIZE;
    return band_rows < most ? band_rows : most;
}

// Strips that the rows of all matrices of a group are cut into, and the rows of the largest.
static void count_strips(fq_gemm_group_options *out, const expert_group *group,
                         const fq_verify_experts_options *options) {
    const uint64_t rows = group->first->rows, n_matrices = group->n_missing / rows;
    const fq_pair *pair = group->first->tensor->pair;
    const fq_step step = {.action = FQ_DEQUANTIZE,
                          .source = pair->weight,
                          .source_matrix = {.rows = rows, .cols = group->first->key->cols},
                          .block = pair->block};
    uint64_t band_rows, band_cols;
    fq_band_size(&band_rows, &band_cols, &step, options->run->band_elements);
    if (band_rows > rows)
        band_rows = rows;
    const uint64_t most = fq_verify_strip_rows(band_rows, band_cols >= step.source_matrix.cols,
                                               group->set->tokens, options->max_results);
    out->rows = most;
    out->n_strips = n_matrices * (rows / band_rows * fq_ceil_div(band_rows, most) +
                                  fq_ceil_div(rows % band_rows, most));
}

// With the lock held.
static void close_group(fq_verify_experts *experts, expert_group *group) {
    const fq_verify_run_options *run = experts->options.run;
    run->gemm->close_group(run->device, group->gemm_group);
    group->gemm_group = NULL;
    if (group->set)
        fq_activation_sets_give_back(experts->options.sets, group->set);
    group->set = NULL;
}

// Likewise.
static fq_status open_group(fq_verify_experts *experts, expert_group *group,
                            const fq_activations_place *place, fq_error *err) {
    const fq_verify_experts_options *options = &experts->options;
    fq_gemm_group_options of_gemm = {
        .has_words = group->first->tensor->pair->storage == FQ_STORED_PACKED,
        .take = options->take,
    };
    fq_status status =
        fq_activation_sets_take(&group->set, options->sets, group->first->key, place, err);
    if (status)
        return status;
    of_gemm.activations = group->set->operand;
    count_strips(&of_gemm, group, options);
    status = options->run->gemm->open_group(&group->gemm_group, place->device, &of_gemm, err);
    group->was_opened = true;
    group->is_joint = group->gemm_group != NULL;
    if (!group->is_joint)
        close_group(experts, group);
    return status;
}

fq_status fq_verify_experts_enter(fq_gemm_group **out, fq_verify_experts *experts, size_t tensor,
                                  const fq_activations_place *place, fq_error *err) {
    expert_group *group = experts->group_of[tensor];
    fq_status status = FQ_OK;
    *out = NULL;
    if (!group)
        return FQ_OK;
    pthread_mutex_lock(&experts->lock);
    if (!group->was_opened)
        status = open_group(experts, group, place, err);
    *out = group->gemm_group;
    pthread_mutex_unlock(&experts->lock);
    return status;
}

fq_status fq_verify_experts_leave(fq_verify_experts *experts, size_t tensor, uint64_t rows,
                                  fq_error *err) {
    const fq_verify_run_options *run = experts->options.run;
    expert_group *group = experts->group_of[tensor];
    if (!group)
        return FQ_OK;
    pthread_mutex_lock(&experts->lock);
    group->n_missing -= rows;
    const bool is_whole = group->n_missing == 0;
    pthread_mutex_unlock(&experts->lock);
    if (!is_whole)
        return FQ_OK;
    const fq_status status = run->gemm->launch(run->device, group->gemm_group, err);
    pthread_mutex_lock(&experts->lock);
    close_group(experts, group);
    pthread_mutex_unlock(&experts->lock);
    return status;
}

fq_verify_numbers fq_verify_experts_done(fq_verify_experts *experts, const size_t *tensor) {
    expert_group *group = experts->group_of[*tensor];
    if (!group || !group->is_joint)
        return (fq_verify_numbers){.all = tensor, .n = 1};
    group->n_done++;
    if (group->n_done < group->tensors.n)
        return (fq_verify_numbers){.n = 0};
    return group->tensors;
}

void fq_verify_experts_close(fq_verify_experts *experts) {
    if (!experts)
        return;
    for (size_t i = 0; i < experts->n_groups; i++)
        close_group(experts, &experts->groups[i]);
    pthread_mutex_destroy(&experts->lock);
    free(experts->experts);
    free(experts->numbers);
    free(experts->groups);
    free(experts->group_of);
    free(experts);
}
