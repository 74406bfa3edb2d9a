// Which files of a folder without an index are its shards.
#ifndef FQ_FORMATS_SHARD_LIST_H
#define FQ_FORMATS_SHARD_LIST_H

#include "lib/arena.h"

typedef struct fq_names {
    const char **items; // [n], sorted (bytes)
    size_t n;
} fq_names;

// The names in the folder fd, "." and ".." aside. Memory from arena. FQ_IO if it cannot be read.
fq_status fq_folder_list(fq_names *out, fq_arena *arena, int fd, const char *folder, fq_error *err);

// Picks the index in use from the names of a folder: model.safetensors.index.json, or the only
// other *.safetensors.index.json; NULL if there is none. Several others are a fault.
const char *fq_index_choose(const fq_names *names, const char *folder, fq_messages *faults);

// Picks the shards of a folder without an index: model.safetensors alone, or all *.safetensors
// that are no folders and no dot files. None at all, and files missing from a numbered set
// (model-00001-of-00003.safetensors), are faults. Memory from arena.
fq_status fq_shard_list(fq_names *out, fq_arena *arena, const fq_names *names, int fd,
                        const char *folder, fq_messages *faults, fq_error *err);

#endif
