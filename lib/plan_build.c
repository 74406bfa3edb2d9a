// Lays out the shards of a plan: no holes, every tensor aligned, a scale right behind its weight.
#include "plan_build.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static fq_status grow(void **items, size_t n, size_t *capacity, size_t item_size, fq_error *err) {
    if (n < *capacity)
        return FQ_OK;
    const size_t larger = *capacity ? 2 * *capacity : 64;
    void *moved = realloc(*items, larger * item_size);
    if (!moved)
        return fq_fail_memory(err);
    *items = moved;
    *capacity = larger;
    return FQ_OK;
}

fq_status fq_shard_draft_add_target(fq_shard_draft *draft, const fq_tensor *tensor,
                                    bool with_previous, fq_error *err) {
    void *items = draft->targets;
    const fq_status status =
        grow(&items, draft->n_targets, &draft->targets_capacity, sizeof *draft->targets, err);
    draft->targets = items;
    if (status)
        return status;
    draft->targets[draft->n_targets++] =
        (fq_draft_target){.tensor = *tensor, .with_previous = with_previous};
    return FQ_OK;
}

fq_status fq_shard_draft_add_step(fq_shard_draft *draft, const fq_step *step, ptrdiff_t target,
                                  ptrdiff_t target_scale, fq_error *err) {
    void *items = draft->steps;
    const fq_status status =
        grow(&items, draft->n_steps, &draft->steps_capacity, sizeof *draft->steps, err);
    draft->steps = items;
    if (status)
        return status;
    draft->steps[draft->n_steps++] =
        (fq_draft_step){.step = *step, .target = target, .target_scale = target_scale};
    return FQ_OK;
}

fq_status fq_shard_draft_add_copy(fq_shard_draft *draft, const fq_tensor *source,
                                  const char *reason, fq_error *err) {
    const fq_status status = fq_shard_draft_add_target(draft, source, false, err);
    if (status)
        return status;
    const fq_step step = {.action = FQ_COPY, .source = source, .reason = reason};
    return fq_shard_draft_add_step(draft, &step, (ptrdiff_t)draft->n_targets - 1, FQ_NO_TARGET,
                                   err);
}

// The largest of 8, 4, 2 and 1 that divides nbytes.
static uint32_t size_class(uint64_t nbytes) {
    uint32_t class = 8;
    while (nbytes % class != 0)
        class /= 2;
    return class;
}

// A weight and its scale stay together where both are aligned if they are placed by the size class
// of the two. (The scale then is: its size is a multiple of its alignment, and so is the weight's.)
static bool stay_together(const fq_tensor *weight, const fq_tensor *scale) {
    const uint32_t class = size_class(weight->nbytes + scale->nbytes);
    return class >= fq_dtype_alignment(weight->dtype) && class >= fq_dtype_alignment(scale->dtype);
}

// Gives every target its offset and fills order with the indices in that order. Units (a tensor, or
// a weight with its scale) are placed by falling size class, else in the order they came: whatever
// lies before a unit of class c is a multiple of c, and no tensor's alignment exceeds its class.
// Sizes are multiples of 8 in practice, so that order is the source's.
static uint64_t arrange(fq_draft_target *targets, size_t n, size_t *order) {
    uint64_t offset = 0;
    size_t n_placed = 0;
    for (uint32_t class = 8; class >= 1; class /= 2) {
        for (size_t i = 0, n_unit; i < n; i += n_unit) {
            const bool pair = i + 1 < n && targets[i + 1].with_previous &&
                              stay_together(&targets[i].tensor, &targets[i + 1].tensor);
            n_unit = pair ? 2 : 1;
            uint64_t nbytes = targets[i].tensor.nbytes;
            if (pair)
                nbytes += targets[i + 1].tensor.nbytes;
            if (size_class(nbytes) != class)
                continue;
            for (size_t k = i; k < i + n_unit; k++) {
                targets[k].tensor.offset = offset;
                offset += targets[k].tensor.nbytes;
                order[n_placed++] = k;
            }
        }
    }
    assert(n_placed == n);
    return offset;
}

static fq_status lay_out(fq_plan_shard *out, fq_plan *plan, fq_shard_draft *draft, size_t *place_of,
                         fq_error *err) {
    const size_t n = draft->n_targets;
    size_t *order = malloc((n + 1) * sizeof *order);
    out->layout.tensors = fq_arena_array(&plan->arena, n, sizeof(fq_tensor));
    if (!order || !out->layout.tensors) {
        free(order);
        return fq_fail_memory(err);
    }
    out->layout.data_nbytes = arrange(draft->targets, n, order);
    out->layout.n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        out->layout.tensors[i] = draft->targets[order[i]].tensor;
        out->layout.tensors[i].shard = (uint32_t)plan->n_shards;
        place_of[order[i]] = i;
    }
    free(order);
    return FQ_OK;
}

fq_status fq_shard_draft_finish(fq_shard_draft *draft, fq_plan *plan, const char *shard_name,
                                fq_metadata *metadata, size_t n_metadata, fq_error *err) {
    fq_plan_shard shard = {
        .layout = {.name = shard_name, .metadata = metadata, .n_metadata = n_metadata},
        .n_steps = draft->n_steps,
    };
    size_t *place_of = malloc((draft->n_targets + 1) * sizeof *place_of);
    shard.steps = fq_arena_array(&plan->arena, draft->n_steps, sizeof(fq_step));
    fq_status status =
        place_of && shard.steps ? lay_out(&shard, plan, draft, place_of, err) : fq_fail_memory(err);
    for (size_t i = 0; i < draft->n_steps && !status; i++) {
        const fq_draft_step *from = &draft->steps[i];
        fq_step *step = &shard.steps[i];
        *step = from->step;
        step->target = &shard.layout.tensors[place_of[from->target]];
        if (from->target_scale != FQ_NO_TARGET)
            step->target_scale = &shard.layout.tensors[place_of[from->target_scale]];
    }
    free(place_of);
    draft->n_targets = draft->n_steps = 0;
    if (status)
        return status;
    plan->bytes_in += fq_plan_shard_nbytes_in(&shard);
    plan->bytes_out += shard.layout.data_nbytes;
    plan->shards[plan->n_shards++] = shard;
    return FQ_OK;
}

void fq_shard_draft_free(fq_shard_draft *draft) {
    free(draft->targets);
    free(draft->steps);
    memset(draft, 0, sizeof *draft);
}
