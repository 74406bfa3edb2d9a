// Fused 3-D experts: which layout `P.experts.gate_up_proj` and `P.experts.down_proj` have.
#ifndef FQ_EXPERTS_H
#define FQ_EXPERTS_H

#include "policy_draft.h"

// If name is a fused expert parameter, the bytes of "P.experts"; 0 if not.
size_t fq_experts_module_length(const char *name);

// The bytes of a name up to its last component `experts`, with it; 0 without one.
size_t fq_experts_length(const char *name);

// Likewise up to its first component `experts`.
size_t fq_experts_first_length(const char *name);

// Like fq_experts_module_length, for other stacks of matrices (3-D, of a floating dtype), which are
// never split: "P.experts" of "P.experts.w13_weight"; "P.moe.input_linear" of
// "P.moe.input_linear.weight", unless a built-in rule keeps it: those are convolutions.
size_t fq_experts_stack_length(const fq_tensor *tensor);

// True for the scales of a parameter that the checkpoint holds, "P_scale_inv" or "P_scale": those
// of a stack that is FP8 look like a stack themselves.
bool fq_experts_is_scale(const fq_checkpoint *checkpoint, const char *name);

// Why a tensor that is not 2-D cannot be quantized.
const char *fq_experts_why_not_2d(const fq_tensor *tensor);

// Decides for all fused expert parameters by the built-in rules: split where the pair of tensors
// makes the layout certain, kept with a reason elsewhere. A layout that is not certain cannot be
// included. FQ_DEVICE when out of memory.
fq_status fq_experts_decide(fq_policy_draft *draft, fq_error *err);

// Warns of every module of fused experts that stays as it is; after all decisions are made.
// FQ_DEVICE when out of memory.
fq_status fq_experts_warn(const fq_policy_draft *draft, fq_error *err);

#endif
