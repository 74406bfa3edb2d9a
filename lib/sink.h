// Where shards go: files today, memory and failing ones in tests, compressed files later.
#ifndef FQ_SINK_H
#define FQ_SINK_H

#include "error.h"
#include "tensor.h"

#include <stddef.h>
#include <stdint.h>

typedef struct fq_sink fq_sink;
typedef struct fq_sink_file fq_sink_file;

// Where a write goes: rows of equal length at equal distances. Any run of bytes is one row.
typedef struct fq_sink_rows {
    uint64_t offset;     // of the first row, from the start of the shard's data
    uint64_t stride;     // from the start of a row to that of the next
    uint64_t n_rows;     // at least 1
    uint64_t row_nbytes; // stride at most, if there are several
} fq_sink_rows;

// One row.
static inline fq_sink_rows fq_sink_run(uint64_t offset, uint64_t nbytes) {
    const fq_sink_rows rows = {offset, nbytes, 1, nbytes};
    return rows;
}

// What a committed file is as a whole, header and all.
typedef struct fq_sink_digest {
    uint64_t nbytes;
    uint32_t crc32; // of RFC 1952
} fq_sink_digest;

// An implementation embeds this as its first member. Several files may be open at once, and any
// number of threads may write to one; a file's commit or abort comes after its last write returned.
struct fq_sink {
    // Starts the shard that layout describes (name, metadata, tensors with their offsets;
    // borrowed until commit or abort), in the place of one of that name that was committed before.
    // On error nothing is left to abort.
    fq_status (*begin)(fq_sink *sink, fq_sink_file **out, const fq_shard *layout, fq_error *err);

    // Stores the rows, which lie one behind the other in data. Every byte of the shard's data is
    // written exactly once.
    fq_status (*write)(fq_sink_file *file, const fq_sink_rows *rows, const void *data,
                       fq_error *err);

    // Makes the shard durable and gives it its final name. Ends the file in any case.
    fq_status (*commit)(fq_sink_file *file, fq_sink_digest *out, fq_error *err);

    // Drops the shard without a trace. Ends the file.
    void (*abort)(fq_sink_file *file);
};

#endif
