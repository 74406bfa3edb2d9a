// What a session did, tensor by tensor and in sum: the figures of every report.
#ifndef FQ_CMD_TALLY_H
#define FQ_CMD_TALLY_H

#include "session.h"

// The steps of one source tensor: one, or several where it is cut into experts.
typedef struct fq_row {
    size_t shard;
    size_t first, n; // steps of that shard
} fq_row;

// The row after *row, which is zeroed at first. False when there is none.
bool fq_row_next(fq_row *row, const fq_plan *plan);

// The row's i-th step.
const fq_step *fq_row_step(const fq_row *row, const fq_plan *plan, size_t i);

// What steps i to i + n - 1 of a row met, in sum. Zeroed after a dry run.
fq_step_counts fq_row_counts(const fq_row *row, const fq_session *session, size_t i, size_t n);

typedef struct fq_tally {
    uint64_t n_quantized;               // weights written as FP8, or cast back
    uint64_t n_split, n_split_matrices; // fused expert tensors, and what is cut out of them
    uint64_t n_kept;                    // copied
    uint64_t quantized_nbytes_in, quantized_nbytes_out;
    uint64_t scale_nbytes; // written
    uint64_t kept_nbytes;
    uint64_t n_elements; // of the quantized tensors
    fq_step_counts counts;
    const fq_step *most_flushed; // the step that lost the largest share of its elements to zero
    double most_flushed_share;   // 0..1
} fq_tally;

void fq_tally_session(fq_tally *out, const fq_session *session);

// Adds what of the figures deserves a warning: NaN codes, and nothing to quantize.
void fq_tally_warn(const fq_session *session, fq_messages *warnings);

// Bytes that this run read and wrote per second, in GB/s. The one meaning of the word in fp8q.
double fq_gb_per_s(const fq_session *session);

#endif
