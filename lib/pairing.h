// Which scale tensor belongs to which FP8 weight, and how it is to be read.
#ifndef FQ_PAIRING_H
#define FQ_PAIRING_H

#include "model.h"
#include "scale.h"
#include "tensor.h"

typedef struct fq_pair {
    const fq_tensor *weight; // F8_E4M3, rank 2, or 3 for stacked experts
    const fq_tensor *scale;
    fq_scale_storage storage;
    fq_block block;
} fq_pair;

typedef struct fq_pairing {
    fq_pair *pairs; // [n], sorted by the weight's name
    size_t n;
    // [checkpoint->n_tensors] in by_name's order: the pair that a tensor is weight or scale of, or
    // NULL.
    const fq_pair **pair_of;
} fq_pairing;

// Pairs every F8_E4M3 weight of the checkpoint with its scale, in whatever shard, by the names,
// dtypes and shapes of docs/formats.md ("Reading scales"). Memory from arena. One line per fault
// (missing or orphan scale, a grid that does not fit, refused dtypes) goes to faults; FQ_OK all the
// same, so that all faults are listed together. Of one kind the first 20 are listed, and the rest
// counted in one line. FQ_DEVICE when out of memory.
fq_status fq_pair_scales(fq_pairing *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                         const fq_quant_config *quant, fq_messages *faults, fq_error *err);

// For a checkpoint without FP8 weights, lists as fq_pair_scales does what must not be in it:
// scales, which have nothing to scale, and tensors of formats that are not read. FQ_DEVICE when out
// of memory.
fq_status fq_pair_nothing(const fq_checkpoint *checkpoint, fq_messages *faults, fq_error *err);

// What reports call the way in which a pair's scales are stored: "packed", "u8", "bf16", "f16",
// "e8m0"; f32_format where they are FP32, whose values tell "f32" from "pow2".
const char *fq_pair_format(const fq_pair *pair, const char *f32_format);

// True for names that only scales of weights have: `…weight_scale_inv`, `…weight_scale`.
bool fq_is_scale_name(const char *name);

// True for tensors that only serve FP8 inference and go when weights are cast back:
// `k_scale`, `v_scale`, `input_scale`.
bool fq_is_runtime_scale(const char *name);

#endif
