// The experts of a layer in the GEMM check: which weights get their products from one grouped GEMM,
// and when all of their strips are there.
#ifndef FQ_VERIFY_EXPERTS_H
#define FQ_VERIFY_EXPERTS_H

#include "activation_sets.h"
#include "verify_gemm.h"

typedef struct fq_verify_experts fq_verify_experts;

// What groups are made of and opened with. All is borrowed until the end.
typedef struct fq_verify_experts_options {
    const fq_verify *verify;
    const fq_verify_run_options *run;
    const fq_activations_key *keys; // [verify->n_tensors]; cols 0: not multiplied
    fq_activation_sets *sets;
    uint64_t max_results; // as for fq_verify_strip_rows
    void (*take)(void *taker, const fq_gemm_sums *sums, uint64_t rows); // as fq_gemm_group_options
} fq_verify_experts_options;

// Rows of a band that are multiplied as one strip, the last one aside. Where the band has all
// columns these may be a few: whole rows of blocks, one at least, with no more than max_results
// elements of the product.
uint64_t fq_verify_strip_rows(uint64_t band_rows, bool has_all_cols, uint64_t tokens,
                              uint64_t max_results);

// Finds the groups: weights that differ in the number of the expert alone, "P.experts.N.rest", or
// lie stacked in one tensor, and are multiplied with the same activations; at least two matrices.
fq_status fq_verify_experts_open(fq_verify_experts **out, const fq_verify_experts_options *options,
                                 fq_error *err);

// The group that a strip of the tensor belongs to, for the GEMM; NULL for one that is multiplied by
// itself. The first strip opens it, in the lane of place.
fq_status fq_verify_experts_enter(fq_gemm_group **out, fq_verify_experts *experts, size_t tensor,
                                  const fq_activations_place *place, fq_error *err);

// So many rows of the tensor are in the group, or were multiplied by themselves. The last rows of a
// group launch it, in the calling thread.
fq_status fq_verify_experts_leave(fq_verify_experts *experts, size_t tensor, uint64_t rows,
                                  fq_error *err);

// Of a tensor of which all strips are done, told once, by one thread at a time: which tensors have
// their products now. It alone; or all of its group, once the last of them is done; or none.
fq_verify_numbers fq_verify_experts_done(fq_verify_experts *experts, const size_t *tensor);

// NULL is taken.
void fq_verify_experts_close(fq_verify_experts *experts);

#endif
