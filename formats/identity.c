// Which files are the shards of a checkpoint: by device and inode, so that links cannot hide it.
#include "identity.h"

#include "file.h"

#include <stdlib.h>

static int compare(const void *a_raw, const void *b_raw) {
    const fq_identity *a = a_raw, *b = b_raw;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->inode != b->inode)
        return a->inode < b->inode ? -1 : 1;
    return 0;
}

fq_status fq_identities_of(fq_identities *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                           fq_error *err) {
    out->n = 0;
    out->items = fq_arena_array(arena, checkpoint->n_shards, sizeof *out->items);
    if (!out->items)
        return fq_fail_memory(err);
    for (size_t i = 0; i < checkpoint->n_shards; i++) {
        fq_identity *item = &out->items[out->n];
        if (!checkpoint->shards[i].source)
            continue;
        fq_file_identity(checkpoint->shards[i].source, &item->device, &item->inode);
        item->shard = (uint32_t)i;
        out->n++;
    }
    qsort(out->items, out->n, sizeof *out->items, compare);
    return FQ_OK;
}

const fq_identity *fq_identities_find(const fq_identities *identities, const struct stat *st) {
    const fq_identity key = {.device = st->st_dev, .inode = st->st_ino};
    return bsearch(&key, identities->items, identities->n, sizeof key, compare);
}
