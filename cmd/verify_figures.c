// Orders and sums of verify's result that its reports share: see verify_report.h.
#include "verify_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

fq_verify_columns fq_verify_find_columns(const fq_verify *verify) {
    fq_verify_columns found = {0};
    for (size_t i = 0; i < verify->n_tensors; i++) {
        const fq_verify_tensor *tensor = &verify->tensors[i];
        found.errors |= tensor->weight.has_errors;
        found.products |= tensor->has_gemm && !isnan(tensor->gemm.rel_l2);
        found.gemm |= tensor->has_gemm;
    }
    return found;
}

static int compare_badness(const void *a, const void *b) {
    const fq_verify_tensor *x = *(const fq_verify_tensor *const *)a;
    const fq_verify_tensor *y = *(const fq_verify_tensor *const *)b;
    return fq_verify_is_worse(x, y) ? -1 : fq_verify_is_worse(y, x);
}

const fq_verify_tensor **fq_verify_worst_first(fq_arena *arena, const fq_verify *verify) {
    const fq_verify_tensor **sorted = fq_arena_array(arena, verify->n_tensors, sizeof *sorted);
    for (size_t i = 0; sorted && i < verify->n_tensors; i++)
        sorted[i] = &verify->tensors[i];
    if (sorted)
        qsort(sorted, verify->n_tensors, sizeof *sorted, compare_badness);
    return sorted;
}

static int compare_kinds(const void *a, const void *b) {
    const fq_verify_tensor *x = *(const fq_verify_tensor *const *)a;
    const fq_verify_tensor *y = *(const fq_verify_tensor *const *)b;
    const int order = strcmp(x->kind, y->kind);
    return order ? order : strcmp(x->tensor->name, y->tensor->name);
}

// The sums over tensors[n], all of one kind.
static fq_verify_kind sum_kind(const fq_verify_tensor *const *tensors, size_t n) {
    fq_verify_kind kind = {.kind = tensors[0]->kind, .n = n, .rel_l2 = NAN};
    double error2 = 0, weight2 = 0;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const fq_verify_weight *weight = &tensors[i]->weight;
        kind.n_failed += tensors[i]->reasons.n > 0;
        if (!weight->has_errors)
            continue;
        any = true;
        error2 += weight->error2;
        weight2 += weight->weight2;
        kind.worst_rel_l2 = fmax(kind.worst_rel_l2, weight->rel_l2);
        kind.worst_block_rel_l2 = fmax(kind.worst_block_rel_l2, weight->worst_block_rel_l2);
    }
    if (any)
        kind.rel_l2 = error2 == 0 ? 0.0 : sqrt(error2 / weight2);
    return kind;
}

fq_verify_kind *fq_verify_kinds(fq_arena *arena, size_t *n, const fq_verify *verify) {
    const fq_verify_tensor **sorted = fq_verify_worst_first(arena, verify);
    fq_verify_kind *kinds = fq_arena_array(arena, verify->n_tensors, sizeof *kinds);
    *n = 0;
    if (!sorted || !kinds)
        return NULL;
    qsort(sorted, verify->n_tensors, sizeof *sorted, compare_kinds);
    for (size_t start = 0, end; start < verify->n_tensors; start = end) {
        end = start + 1;
        while (end < verify->n_tensors && strcmp(sorted[end]->kind, sorted[start]->kind) == 0)
            end++;
        kinds[(*n)++] = sum_kind(sorted + start, end - start);
    }
    return kinds;
}
