// Which tensors are quantized, and why the others are not.
#ifndef FQ_POLICY_H
#define FQ_POLICY_H

#include "model.h"
#include "tensor.h"

// One --include or --exclude, in the order of the command line: the last match wins.
typedef struct fq_name_rule {
    const char *glob; // on the full tensor name: * and ? match any characters, [...] a set
    bool include;
} fq_name_rule;

typedef struct fq_policy_options {
    const fq_name_rule *rules;
    size_t n_rules;
    bool keep_fused_experts;           // --experts keep
    const fq_tensor *const *nonfinite; // found to hold NaN or Inf, to be kept
    size_t n_nonfinite;
} fq_policy_options;

// The layout of a fused 3-D expert tensor.
typedef enum fq_experts {
    FQ_EXPERTS_NONE,    // not one, or to be left fused
    FQ_EXPERTS_GATE_UP, // [E, 2I, H]: gate rows, then up rows
    FQ_EXPERTS_DOWN,    // [E, H, I]
} fq_experts;

typedef struct fq_decision {
    const fq_tensor *tensor;
    bool quantize;
    fq_experts experts; // other than NONE only with quantize: split into per-expert matrices
    bool transposed;    // experts: the last two dimensions are swapped
    const char *reason; // kept: why. quantized: a note, or "". One short phrase without a name.
} fq_decision;

typedef struct fq_policy {
    fq_decision *decisions;              // [checkpoint->n_tensors], in by_name's order
    const char **modules_to_not_convert; // [n_modules]: full module names, sorted by bytes, unique
    size_t n_modules;
} fq_policy;

// Decides for every tensor of a checkpoint without FP8 weights. Memory from arena; names are
// borrowed from the checkpoint. Faults: an --include that is the name of a tensor which cannot
// be quantized, or none at all. Warnings: fusion groups that rules broke, layouts left fused,
// embeddings and output heads that rules chose, rules that match nothing. FQ_OK even with faults;
// FQ_DEVICE when out of memory.
fq_status fq_policy_decide(fq_policy *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                           const fq_model *model, const fq_policy_options *options,
                           fq_messages *faults, fq_messages *warnings, fq_error *err);

// Like fq_policy_decide, of a checkpoint that is quantized already: chosen are its FP8 weights, and
// the modules are those that must be listed then. Broken: fusion groups that engines do not load.
fq_status fq_policy_describe(fq_policy *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                             const fq_model *model, fq_messages *broken, fq_error *err);

// One built-in rule, for --list-rules.
typedef struct fq_component_rule {
    const char *glob;  // on one whole dotted component of the name
    const char *where; // "", or a condition on the other components, in words
    const char *reason;
} fq_component_rule;

// The built-in rules on names; static, *n of them.
const fq_component_rule *fq_policy_rules(size_t *n);

#endif
