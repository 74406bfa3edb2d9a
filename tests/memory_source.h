// Bytes in memory as a source: for tests of the readers.
#ifndef FQ_TESTS_MEMORY_SOURCE_H
#define FQ_TESTS_MEMORY_SOURCE_H

#include "lib/source.h"

#include <string.h>

typedef struct memory_source {
    fq_source source; // first: the two are cast into each other
    const void *bytes;
} memory_source;

static inline fq_status memory_source_read(fq_source *source, uint64_t offset, void *out,
                                           size_t nbytes, fq_error *err) {
    const memory_source *memory = (const memory_source *)source;
    if (offset > source->nbytes || nbytes > source->nbytes - offset)
        return fq_fail(err, FQ_IO, "%s: the end comes early", source->name);
    if (nbytes > 0)
        memcpy(out, (const char *)memory->bytes + offset, nbytes);
    return FQ_OK;
}

// bytes are borrowed.
static inline memory_source memory_source_of(const char *name, const void *bytes, uint64_t nbytes) {
    memory_source memory;
    memory.source.read = memory_source_read;
    memory.source.name = name;
    memory.source.nbytes = nbytes;
    memory.bytes = bytes;
    return memory;
}

#endif
