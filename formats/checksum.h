// Checksums of copied tensors: of the source's bytes, in the metadata of the shard that they are
// copied to, and compared with what is on disk in the end.
#ifndef FQ_FORMATS_CHECKSUM_H
#define FQ_FORMATS_CHECKSUM_H

#include "output.h"

// The metadata's key is this and the tensor's name, its value the XXH3-128 in hexadecimal digits,
// as xxhsum -H2 prints it.
#define FQ_CHECKSUM_KEY "fp8q.xxh3_128."

enum { FQ_CHECKSUM_DIGITS = 32 };

typedef struct fq_checksum {
    char digits[FQ_CHECKSUM_DIGITS + 1]; // zeros as long as it is not known
    bool is_known;
} fq_checksum;

// Of a checkpoint's tensors. Zeroed is empty.
typedef struct fq_checksums {
    const fq_checkpoint *checkpoint;
    fq_checksum *items; // [checkpoint->n_tensors], in the order of its names; owned
} fq_checksums;

// checkpoint is borrowed. After any outcome fq_checksums_finish it.
fq_status fq_checksums_init(fq_checksums *out, const fq_checkpoint *checkpoint, fq_error *err);

void fq_checksums_finish(fq_checksums *checksums);

// Puts the entries of all tensors that a shard copies into its metadata; their values are filled in
// when they become known, and live as long as checksums. FQ_BAD_INPUT if a header gets too large.
fq_status fq_checksums_plan(const fq_checksums *checksums, fq_plan *plan, fq_error *err);

// Reads the tensors that the plan copies and whose checksums are not known yet, and makes them
// known.
fq_status fq_checksums_read(fq_checksums *checksums, const fq_plan *plan,
                            const fq_check_options *options, fq_error *err);

// Reads the copies in the output's finished shards back, from the disk where the system lets go of
// what it holds in memory. The first that differs is FQ_IO, naming file and tensor; its shard is
// then removed, and finished[i] cleared.
fq_status fq_checksums_verify(const fq_checksums *checksums, const fq_plan *plan,
                              const fq_output *output, bool *finished,
                              const fq_check_options *options, fq_error *err);

// The digits of a tensor's checksum; NULL if it is not known.
const char *fq_checksums_find(const fq_checksums *checksums, const fq_tensor *tensor);

#endif
