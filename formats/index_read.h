// model.safetensors.index.json: which shard holds which tensor.
#ifndef FQ_FORMATS_INDEX_READ_H
#define FQ_FORMATS_INDEX_READ_H

#include "lib/arena.h"

#include <stdint.h>

enum { FQ_INDEX_MAX_NBYTES = 64 << 20 };

// One entry of weight_map.
typedef struct fq_index_entry {
    const char *tensor;
    const char *shard_name;
    uint32_t shard; // index into shard_names
} fq_index_entry;

// An entry of the index's metadata: value is its JSON text, as it stands in the file.
typedef struct fq_index_metadata {
    const char *key;
    const char *value;
} fq_index_metadata;

typedef struct fq_index {
    fq_index_entry *entries; // [n_entries], sorted by tensor name (bytes)
    size_t n_entries;
    const char **shard_names; // [n_shard_names], distinct, sorted
    size_t n_shard_names;
    fq_index_metadata *metadata; // [n_metadata], total_size aside
    size_t n_metadata;
    const char *total_size; // its JSON text; NULL if absent
} fq_index;

// Reads the nbytes of text. Memory from arena. Entries that name no file of the folder (see
// fq_shard_name_problem) go to faults, and out holds the others. FQ_BAD_INPUT if text is no index
// at all. file is the name for messages.
fq_status fq_index_read(fq_index *out, fq_arena *arena, const char *text, size_t nbytes,
                        const char *file, fq_messages *faults, fq_error *err);

// NULL if name is the path of a .safetensors file inside the folder: plain components, without
// control characters. Otherwise what is wrong, as a phrase after "which".
const char *fq_shard_name_problem(const char *name);

#endif
