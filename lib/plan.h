// Everything a run will do, computed from headers before a byte of data is read.
#ifndef FQ_PLAN_H
#define FQ_PLAN_H

#include "policy.h"
#include "scale.h"
#include "tensor.h"

typedef enum fq_action {
    FQ_COPY,       // bytes as they are
    FQ_QUANTIZE,   // a matrix to codes and scales
    FQ_DEQUANTIZE, // codes and scales to a matrix
} fq_action;

// A matrix inside a tensor. Element [r, c] is number element0 + r·cols + c of the tensor; or, where
// transposed, element0 + c·stride + r.
typedef struct fq_matrix {
    uint64_t rows, cols;
    uint64_t element0;
    bool transposed;
    uint64_t stride; // elements from one stored row to the next; transposed only
} fq_matrix;

// One piece of work: reads one source tensor (or a matrix of it), fills one target (or a matrix
// of it). Copies have no matrix.
typedef struct fq_step {
    fq_action action;
    const fq_tensor *source;
    const fq_tensor *target; // in the layout of the step's shard
    fq_matrix source_matrix;
    uint64_t matrix;          // its number in source; 0 unless that is a stack (experts)
    uint64_t target_element0; // of the matrix in target; rows × cols, row-major
    bool split;               // cut out of a fused expert tensor
    const char *reason;       // see fq_decision; "" if there is nothing to say

    const fq_tensor *target_scale; // FQ_QUANTIZE

    const fq_tensor *source_scale; // FQ_DEQUANTIZE
    fq_scale_storage scale_storage;
    fq_block block; // 128×128 when quantizing
} fq_step;

typedef struct fq_plan_shard {
    fq_shard layout; // of the file to be written
    fq_step *steps;  // [n_steps], in the order that reads the source from front to back
    size_t n_steps;
} fq_plan_shard;

typedef struct fq_plan {
    fq_arena arena; // owns everything below
    const fq_checkpoint *checkpoint;
    fq_plan_shard *shards; // [n_shards], one per source shard that keeps a tensor, sorted by name
    size_t n_shards;
    uint64_t bytes_in;    // of tensor data that will be read
    uint64_t bytes_out;   // of tensor data that will be written
    const char **dropped; // [n_dropped]: source tensors without a target, other than paired scales
    size_t n_dropped;

    // Quantizing only.
    fq_scale_format scale_format;
    float amax_floor;
    const char *const *modules_to_not_convert; // [n_modules]
    size_t n_modules;
} fq_plan;

typedef struct fq_quantize_options {
    fq_scale_format scale_format;
    float amax_floor;
    const char *arch;    // "sm90" or "sm100": for the metadata
    const char *version; // of fp8q: for the metadata
    fq_policy_options policy;
} fq_quantize_options;

// Plans convert. checkpoint is borrowed and must outlive the plan. Zeroed *out before; after any
// outcome fq_plan_free it. An already quantized checkpoint (FP8 weights) is a fault. FQ_OK with
// faults listed means: do not run it.
fq_status fq_plan_quantize(fq_plan *out, const fq_checkpoint *checkpoint, const fq_model *model,
                           const fq_quantize_options *options, fq_messages *faults,
                           fq_messages *warnings, fq_error *err);

typedef struct fq_dequantize_options {
    fq_dtype dtype;           // BF16, F16 or F32
    const char *const *globs; // [n_globs]: only weights of these names, and nothing else
    size_t n_globs;           // 0: all tensors
} fq_dequantize_options;

// Like fq_plan_quantize, for dequant: every FP8 weight cast back, scales gone, the rest copied. A
// glob that matches nothing is a warning; a fault if none matches.
fq_status fq_plan_dequantize(fq_plan *out, const fq_checkpoint *checkpoint, const fq_model *model,
                             const fq_dequantize_options *options, fq_messages *faults,
                             fq_messages *warnings, fq_error *err);

// Bytes that are read and written by quantizing and casting back, not by copying.
uint64_t fq_plan_arithmetic_nbytes(const fq_plan *plan);

// Bytes of tensor data that the steps of a shard read, scales aside.
uint64_t fq_plan_shard_nbytes_in(const fq_plan_shard *shard);

// True if both plans, of the same checkpoint, make the same file of these shards.
bool fq_plan_shard_equal(const fq_plan_shard *a, const fq_plan_shard *b);

// Frees what the plan owns and zeroes it.
void fq_plan_free(fq_plan *plan);

#endif
