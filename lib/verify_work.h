// What the parts of verify share: the work that fq_verify_plan lays out and fq_verify_run does.
#ifndef FQ_VERIFY_WORK_H
#define FQ_VERIFY_WORK_H

#include "band.h"
#include "fold.h"
#include "policy.h"
#include "sum.h"
#include "verify.h"
#include "verify_gemm.h"

// What stands beside a step of the checkpoint.
typedef struct fq_verify_step {
    size_t tensor;     // whose matrix it is, in fq_verify.tensors; SIZE_MAX: bytes to be compared
    fq_step reference; // the same matrix, or bytes, in the reference; source NULL: none
    uint64_t n_bytes_differ;     // of bytes that were compared,
    uint64_t first_byte_differs; // void where n_bytes_differ is 0
} fq_verify_step;

typedef struct fq_verify_work {
    fq_plan plan; // steps on the checkpoint's shards, without layouts: FQ_DEQUANTIZE, and FQ_COPY
    fq_verify_step **steps; // [n_shards][n_steps]
    fq_plan reference_plan; // every matrix of the reference that may have been quantized
    uint64_t nbytes;        // to be read
} fq_verify_work;

// The model of the checkpoint and what was asked for, while fq_verify_plan lasts.
typedef struct fq_verify_draft {
    fq_verify *verify;
    fq_verify_work *work;
    const fq_model *model, *reference_model;
} fq_verify_draft;

// Finds what every tensor is to be compared with, and lists in problems what has no counterpart.
// steps are laid out already.
fq_status fq_verify_match(fq_verify_draft *draft, fq_error *err);

// Lists experts that are missing between others, of a whole model folder without a reference.
fq_status fq_verify_check_gaps(fq_verify *verify, fq_error *err);

// Holds config.json, or the quantization_config in the metadata of a lone file, against the
// tensors: the keys that engines need, the list of modules, groups that engines fuse.
fq_status fq_verify_check_config(fq_verify_draft *draft, fq_error *err);

// The part of it that holds the list against the tensors. is_own: fp8q made the checkpoint, and so
// the list. policy: of the checkpoint as it is, by fq_policy_describe.
fq_status fq_verify_check_list(fq_verify_draft *draft, bool is_own, const fq_policy *policy,
                               fq_error *err);

// Lists what does not load in --tp pieces.
fq_status fq_verify_check_parallel(fq_verify_draft *draft, fq_error *err);

// A tensor whose bands are under way.
typedef struct fq_verify_open {
    fq_sum error2, weight2;
    fq_sum judged_error2, judged_weight2;
    fq_verify_products products;
    fq_verify_map map;
    bool all_pow2;        // every sound scale so far
    uint64_t n_in_flight; // strips
    bool all_taken;
} fq_verify_open;

// Maps of the worst tensors so far, the worst first.
typedef struct fq_verify_maps {
    struct {
        fq_verify_map *map;
        fq_verify_tensor *tensor; // NULL from n on
    } kept[FQ_VERIFY_N_MAPS];
    size_t n;
} fq_verify_maps;

// Room for the maps, from arena, which outlives *out. FQ_DEVICE when out of memory.
fq_status fq_verify_maps_open(fq_verify_maps *out, fq_arena *arena, fq_error *err);

// Gives a zeroed map the size that suits the pair's grid.
void fq_verify_map_begin(fq_verify_map *out, const fq_pair *pair);

// Keeps a copy of the finished tensor's map if it is among the worst so far, as tensor->map, and
// takes that of another one away for it.
void fq_verify_maps_keep(fq_verify_maps *maps, fq_verify_tensor *tensor, const fq_verify_map *map);

// A band that was looked at. Nothing is owned.
typedef struct fq_verify_band {
    const fq_band *band;
    const float *scales; // of its blocks; 0 where they have a flaw
    fq_scale_flaws flaws;
    fq_finding nan_codes;          // in the band
    const fq_block_errors *blocks; // NULL without a reference
    const fq_compare_counts *counts;
} fq_verify_band;

// Adds a band to a tensor and to the summary's distributions. The same in any order.
void fq_verify_add_band(fq_verify *verify, fq_verify_tensor *tensor, fq_verify_open *open,
                        const fq_verify_band *found);

// Works out the tensor's figures when its last band was added.
void fq_verify_finish_tensor(fq_verify_tensor *tensor, const fq_verify_open *open);

// Says why the tensor fails, if it does.
void fq_verify_judge(const fq_verify *verify, fq_verify_tensor *tensor);

// Counts and sums over all tensors, after the last one.
void fq_verify_sum_up(fq_verify *verify);

#endif
