// Snapshots of a Hugging Face cache: models--ORG--REPO/snapshots/REVISION, whose files are links
// into models--ORG--REPO/blobs.
#ifndef FQ_FORMATS_HUB_SNAPSHOT_H
#define FQ_FORMATS_HUB_SNAPSHOT_H

#include "lib/arena.h"

#include <stdbool.h>

typedef struct fq_hub_snapshot {
    const char *repo;   // REPO; NULL if the folder is in no snapshot
    const char *folder; // path of models--ORG--REPO; NULL with repo
    const char *blobs;  // resolved path of the cache's blobs; NULL if there are none
} fq_hub_snapshot;

// Tells by its path whether folder (resolved) is a snapshot, or a sub-folder of one. Memory from
// arena. FQ_DEVICE when out of memory, FQ_IO if the blobs cannot be looked up.
fq_status fq_hub_snapshot_find(fq_hub_snapshot *out, fq_arena *arena, const char *folder,
                               fq_error *err);

// Tells by its path whether folder (resolved) is a repository: models--ORG--REPO itself.
bool fq_is_hub_repository(const char *folder);

#endif
