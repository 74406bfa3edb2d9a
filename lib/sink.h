// Where shards go: files today, memory and failing ones in tests, compressed files later.
#ifndef FQ_SINK_H
#define FQ_SINK_H

#include "error.h"
#include "tensor.h"

typedef struct fq_sink fq_sink;
typedef struct fq_sink_file fq_sink_file;

// An implementation embeds this as its first member. Several files may be open at once, and any
// number of threads may write to one; a file's commit or abort comes after its last write returned.
struct fq_sink {
    // Starts the shard that layout describes (name, metadata, tensors with their offsets;
    // borrowed until commit or abort), in the place of one of that name that was committed before.
    // On error nothing is left to abort.
    fq_status (*begin)(fq_sink *sink, fq_sink_file **out, const fq_shard *layout, fq_error *err);

    // Stores nbytes at offset, counted from the start of the shard's data. Every byte of the data
    // is written exactly once.
    fq_status (*write)(fq_sink_file *file, uint64_t offset, const void *data, size_t nbytes,
                       fq_error *err);

    // Makes the shard durable and gives it its final name. Ends the file in any case.
    fq_status (*commit)(fq_sink_file *file, fq_error *err);

    // Drops the shard without a trace. Ends the file.
    void (*abort)(fq_sink_file *file);
};

#endif
