// The index of a model folder held against its shards.
#ifndef FQ_FORMATS_INDEX_CHECK_H
#define FQ_FORMATS_INDEX_CHECK_H

#include "index_read.h"
#include "lib/tensor.h"

// Compares the index with the shards, whose numbers are those of index->shard_names; shards without
// a source could not be read and were reported. Faults: tensors that no shard holds, or another
// than the index says. Warnings: tensors that the index does not name, and a total_size that is
// not the sum of its tensors; none while there are faults. file is the index, for messages.
void fq_index_check(const fq_index *index, const fq_checkpoint *checkpoint, const char *file,
                    fq_messages *faults, fq_messages *warnings);

#endif
