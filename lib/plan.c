// Plans measured, compared and freed; plan_quantize.c and plan_dequantize.c make them.
#include "plan.h"

#include <string.h>

static bool same_metadata(const fq_shard *a, const fq_shard *b) {
    if (a->n_metadata != b->n_metadata)
        return false;
    for (size_t i = 0; i < a->n_metadata; i++) {
        if (strcmp(a->metadata[i].key, b->metadata[i].key) != 0 ||
            strcmp(a->metadata[i].value, b->metadata[i].value) != 0)
            return false;
    }
    return true;
}

// Sources of one checkpoint are compared by address; what a step makes of its source follows from
// its action and targets.
static bool same_step(const fq_step *a, const fq_step *b) {
    return a->action == b->action && a->source == b->source && a->split == b->split &&
           a->target->offset == b->target->offset && a->target->dtype == b->target->dtype &&
           strcmp(a->target->name, b->target->name) == 0;
}

bool fq_plan_shard_equal(const fq_plan_shard *a, const fq_plan_shard *b) {
    if (strcmp(a->layout.name, b->layout.name) != 0 || a->n_steps != b->n_steps ||
        !same_metadata(&a->layout, &b->layout))
        return false;
    for (size_t i = 0; i < a->n_steps; i++) {
        if (!same_step(&a->steps[i], &b->steps[i]))
            return false;
    }
    return true;
}

uint64_t fq_plan_arithmetic_nbytes(const fq_plan *plan) {
    uint64_t nbytes = 0;
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            const fq_matrix *matrix = &step->source_matrix;
            if (step->action != FQ_COPY)
                nbytes += matrix->rows * matrix->cols *
                          (fq_dtype_size(step->source->dtype) + fq_dtype_size(step->target->dtype));
        }
    }
    return nbytes;
}

uint64_t fq_plan_shard_nbytes_in(const fq_plan_shard *shard) {
    uint64_t sum = 0;
    for (size_t i = 0; i < shard->n_steps; i++) {
        const fq_step *step = &shard->steps[i];
        const fq_matrix *matrix = &step->source_matrix;
        sum += step->action == FQ_COPY
                   ? step->source->nbytes
                   : matrix->rows * matrix->cols * fq_dtype_size(step->source->dtype);
    }
    return sum;
}

void fq_plan_free(fq_plan *plan) {
    fq_arena_free(&plan->arena);
    memset(plan, 0, sizeof *plan);
}
