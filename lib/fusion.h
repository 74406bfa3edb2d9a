// Fusion groups: matrices that engines join into one, and that must be quantized all or none.
#ifndef FQ_FUSION_H
#define FQ_FUSION_H

#include "policy_draft.h"

typedef struct fq_fusion_group {
    const char *module; // of messages: "model.layers.0.self_attn", "model.layers.3.mlp.experts"
    size_t *members;    // [n]: positions in by_name, in the order of fusion
    size_t n;
    size_t n_beside;    // the last ones: no experts, but matrices that lie in their module
    bool is_experts;    // all matrices of all experts, fused ones too
    const char *ragged; // why engines cannot load it in blocks, "k_proj: its 192 rows are …": a
                        // border lies inside one; NULL if they can
} fq_fusion_group;

typedef struct fq_fusion_groups {
    fq_fusion_group *groups; // [n]
    size_t n;
} fq_fusion_groups;

// Finds the groups, keeps those whole that are not uniformly eligible or are ragged in a place
// where engines cannot load it, and a down_proj that is as ragged as the gate and up before it.
// Memory from draft->arena. O(n log n). FQ_DEVICE when out of memory.
fq_status fq_fusion_decide(fq_fusion_groups *out, fq_policy_draft *draft, fq_error *err);

// What a message calls a member: "k_proj", "experts.3.w1", "experts.down_proj". *n bytes, borrowed
// from tensor's name.
const char *fq_fusion_member_name(size_t *n, const fq_fusion_group *group, const fq_tensor *tensor);

// Warns of every group that is quantized in part, or though it is ragged: --include or --exclude
// broke it, or whoever made the checkpoint. FQ_DEVICE when out of memory.
fq_status fq_fusion_warn(const fq_fusion_groups *groups, const fq_policy_draft *draft,
                         fq_error *err);

#endif
