// Which files are the shards of a checkpoint: by device and inode, so that links cannot hide it.
#ifndef FQ_FORMATS_IDENTITY_H
#define FQ_FORMATS_IDENTITY_H

#include "lib/tensor.h"

#include <sys/stat.h>

typedef struct fq_identity {
    dev_t device;
    ino_t inode;
    uint32_t shard;
} fq_identity;

typedef struct fq_identities {
    fq_identity *items; // [n], sorted
    size_t n;
} fq_identities;

// The identities of all open shards, whose sources fq_file_open made. Memory from arena. FQ_DEVICE
// when out of memory.
fq_status fq_identities_of(fq_identities *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                           fq_error *err);

// The shard that st is of, or NULL.
const fq_identity *fq_identities_find(const fq_identities *identities, const struct stat *st);

#endif
