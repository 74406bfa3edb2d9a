// What the values of a tensor are: range, zeros, NaN and Inf; and the range of a weight's scales.
#ifndef FQ_STATS_H
#define FQ_STATS_H

#include "pairing.h"
#include "tensor.h"

typedef struct fq_stats {
    uint64_t n_elements;
    uint64_t n_zeros, n_nans, n_infs;
    uint64_t n_finite;
    double min, max;  // of the finite elements; 0 where there are none
    uint32_t n_codes; // different codes met, of dtypes of one byte; 0 for others
} fq_stats;

// True for the dtypes that fq_stats_read takes: F64, F32, BF16, F16, F8_E5M2, F8_E4M3, F8_E8M0.
bool fq_stats_covers(fq_dtype dtype);

// Reads the whole tensor, of a dtype that is covered, through buffer (nbytes a multiple of 8).
// *bytes_read, if not NULL, is added to atomically. FQ_CANCELLED soon after *cancelled (read
// atomically; or NULL) is not 0.
fq_status fq_stats_read(fq_stats *out, const fq_checkpoint *checkpoint, const fq_tensor *tensor,
                        void *buffer, size_t nbytes, uint64_t *bytes_read, const int *cancelled,
                        fq_error *err);

typedef struct fq_scale_stats {
    float min, max;
    bool all_pow2; // every scale is a power of two, or zero
} fq_scale_stats;

// Reads all scales of a pair. FQ_BAD_INPUT, naming the block, at the first that is NaN, infinite or
// negative.
fq_status fq_stats_read_scales(fq_scale_stats *out, const fq_checkpoint *checkpoint,
                               const fq_pair *pair, fq_error *err);

#endif
