// For the planners: collects a shard's targets and steps, and lays the targets out.
#ifndef FQ_PLAN_BUILD_H
#define FQ_PLAN_BUILD_H

#include "plan.h"

enum { FQ_NO_TARGET = -1 };

typedef struct fq_draft_target {
    fq_tensor tensor;   // without an offset
    bool with_previous; // the scale of the target before it: to stay right behind it
} fq_draft_target;

typedef struct fq_draft_step {
    fq_step step; // without target and target_scale
    ptrdiff_t target, target_scale;
} fq_draft_step;

// A shard in the making. Zeroed is empty.
typedef struct fq_shard_draft {
    fq_draft_target *targets; // [n_targets]
    size_t n_targets, targets_capacity;
    fq_draft_step *steps; // [n_steps]
    size_t n_steps, steps_capacity;
} fq_shard_draft;

// Adds a target; its index is n_targets - 1 afterwards. tensor is copied, its name and shape are
// borrowed and must live as long as the plan. FQ_DEVICE when out of memory.
fq_status fq_shard_draft_add_target(fq_shard_draft *draft, const fq_tensor *tensor,
                                    bool with_previous, fq_error *err);

// Adds a step that fills the target, and target_scale unless that is FQ_NO_TARGET.
fq_status fq_shard_draft_add_step(fq_shard_draft *draft, const fq_step *step, ptrdiff_t target,
                                  ptrdiff_t target_scale, fq_error *err);

// Adds a target like source and the step that copies it.
fq_status fq_shard_draft_add_copy(fq_shard_draft *draft, const fq_tensor *source,
                                  const char *reason, fq_error *err);

// Turns the draft into the plan's next shard, and empties the draft. plan->shards has room.
// metadata is borrowed.
fq_status fq_shard_draft_finish(fq_shard_draft *draft, fq_plan *plan, const char *shard_name,
                                fq_metadata *metadata, size_t n_metadata, fq_error *err);

void fq_shard_draft_free(fq_shard_draft *draft);

#endif
