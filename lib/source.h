// Where bytes come from: a file today, memory in tests, compressed files later.
#ifndef FQ_SOURCE_H
#define FQ_SOURCE_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct fq_source fq_source;

// An implementation embeds this as its first member. Any number of threads may read at once.
struct fq_source {
    // Reads exactly nbytes from offset into out. FQ_IO if that fails or the end comes early,
    // with the file and the offset in the message; out then holds anything.
    fq_status (*read)(fq_source *source, uint64_t offset, void *out, size_t nbytes, fq_error *err);
    const char *name; // for messages
    uint64_t nbytes;  // of the whole source
};

#endif
