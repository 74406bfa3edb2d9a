// The safetensors format: a file's header read into a shard, and a shard's header written.
#ifndef FQ_FORMATS_SAFETENSORS_H
#define FQ_FORMATS_SAFETENSORS_H

#include "lib/tensor.h"

enum {
    FQ_SAFETENSORS_MAX_HEADER = 100000000, // the reference implementation's limit
    FQ_SAFETENSORS_MAX_NAME = 65535,       // bytes of a tensor's name
};

// Reads and validates the header of source by every rule of docs/formats.md ("Reading
// safetensors"); nothing of *out is set unless all hold. Fills data_start, data_nbytes, metadata
// and tensors (sorted by offset; tensor.shard = shard_index); name and source are the caller's to
// set. Memory from arena, also where it fails. A Git LFS pointer and well-known foreign formats are
// named as such. FQ_BAD_INPUT names the file, the tensor and the rule.
// A NUL in a metadata value is held as the bytes C0 80, and written as \u0000 again.
fq_status fq_safetensors_read(fq_shard *out, fq_arena *arena, fq_source *source,
                              uint32_t shard_index, fq_error *err);

// Makes the bytes that come before the data: the length, the JSON header and its padding with
// spaces to a multiple of 8. `format: pt` is added where the metadata lack it; entries come in
// the layout's order, which is that of the offsets. *out is owned by the caller (free).
// FQ_BAD_INPUT if the header is too large.
fq_status fq_safetensors_header(char **out, size_t *nbytes, const fq_shard *layout, fq_error *err);

#endif
