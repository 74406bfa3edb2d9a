// The JSON part of a safetensors header, turned into tensors and metadata: used by
// safetensors_read.c alone.
#ifndef FQ_FORMATS_SAFETENSORS_ENTRIES_H
#define FQ_FORMATS_SAFETENSORS_ENTRIES_H

#include "lib/tensor.h"

// In the header's order. The arrays are owned (fq_entries_free), the strings and shapes live in
// the arena. tensor.shard is left zero.
typedef struct fq_entries {
    fq_tensor *tensors; // [n_tensors]; each one's nbytes agrees with its dtype, shape and offsets
    size_t n_tensors, tensors_capacity;
    fq_metadata *metadata; // [n_metadata]
    size_t n_metadata, metadata_capacity;
} fq_entries;

// Checks every rule that one entry can break by itself, unique names included. *out is zeroed
// before; fq_entries_free it after any outcome. file is the name for messages. FQ_BAD_INPUT.
fq_status fq_entries_read(fq_entries *out, fq_arena *arena, const char *json, size_t nbytes,
                          const char *file, fq_error *err);

// FQ_BAD_INPUT, "FILE: TENSOR: what; what to do" for a fault of one tensor's entry. A long name is
// cut, so that what follows it is still seen.
fq_status fq_entries_fail(fq_error *err, const char *file, const char *tensor, const char *what,
                          ...) FQ_PRINTF(4, 5);

void fq_entries_free(fq_entries *entries);

#endif
