// What the parts of the policy share while they decide: policy.c, experts.c, fusion.c.
#ifndef FQ_POLICY_DRAFT_H
#define FQ_POLICY_DRAFT_H

#include "policy.h"

typedef struct fq_policy_draft {
    const fq_checkpoint *checkpoint;
    const fq_model *model;
    const fq_policy_options *options;
    fq_arena *arena; // for what outlives the draft: reasons
    fq_messages *faults;
    fq_messages *warnings;
    fq_decision *decisions; // [n_tensors]: by the built-in rules first, in the end by --include
                            // and --exclude too
    bool *possible;         // [n_tensors]: --include may choose it
    bool *nonfinite;        // [n_tensors]: refused as it holds NaN or Inf
    bool is_given;          // of a checkpoint that is quantized already: what cures is another one
} fq_policy_draft;

// The built-in rule that keeps a module of that name (n bytes, without ".weight"), or NULL.
const fq_component_rule *fq_policy_rule_for(const char *module, size_t n);

// True if rule is one of those on embeddings: tables that are looked up, not multiplied.
bool fq_policy_rule_is_embedding(const fq_component_rule *rule);

// True if rule is one of those on output heads.
bool fq_policy_rule_is_output_head(const fq_component_rule *rule);

// The bytes of a name without its ".weight"; 0 if it does not end so.
size_t fq_module_length(const char *name);

// Keeps the tensor at that position for that reason, which may be NULL for want of memory: then
// FQ_DEVICE.
fq_status fq_draft_keep(fq_policy_draft *draft, size_t position, const char *reason, fq_error *err);

// Like fq_draft_keep, and no --include can change it.
fq_status fq_draft_refuse(fq_policy_draft *draft, size_t position, const char *reason,
                          fq_error *err);

// Chooses the tensor at that position. rows and cols of the matrices it holds give the note.
// FQ_DEVICE when out of memory.
fq_status fq_draft_choose(fq_policy_draft *draft, size_t position, uint64_t rows, uint64_t cols,
                          fq_error *err);

// Why no matrix of that tensor can be quantized, rank aside: its dtype, or no element. NULL if one
// can.
const char *fq_why_unfit(const fq_tensor *tensor);

// Why a matrix of that size is kept, NULL if it is not: smaller than one block.
const char *fq_why_small(uint64_t rows, uint64_t cols);

#endif
