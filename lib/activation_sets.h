// Activations on a device, made when they are first asked for and shared by all lanes.
#ifndef FQ_ACTIVATION_SETS_H
#define FQ_ACTIVATION_SETS_H

#include "activations.h"

typedef struct fq_activation_set {
    fq_gemm_operand *operand;
    uint64_t tokens;
} fq_activation_set;

typedef struct fq_activation_sets fq_activation_sets;

// Borrowed are all three, until the end. max_nbytes: sets that nobody uses are dropped beyond that.
fq_status fq_activation_sets_open(fq_activation_sets **out, const fq_gemm *gemm,
                                  const fq_activations_options *options, size_t max_nbytes,
                                  fq_error *err);

// The set of a key, in use until it is given back. Making one takes the lane of place. Any number
// of threads may ask at once: each set is made by one of them.
fq_status fq_activation_sets_take(const fq_activation_set **out, fq_activation_sets *sets,
                                  const fq_activations_key *key, const fq_activations_place *place,
                                  fq_error *err);

void fq_activation_sets_give_back(fq_activation_sets *sets, const fq_activation_set *set);

// Drops all sets, from the device that they were made on. NULL is taken.
void fq_activation_sets_close(fq_activation_sets *sets, fq_device *device);

#endif
