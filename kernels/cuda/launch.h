// Starts the CUDA kernels: plain C over device memory and a stream.
//
// Every function returns at once, with a cudaError_t: 0 is success. Results are there when the
// stream has come so far. The arithmetic is that of docs/numerics.md, bit for bit.
#ifndef FQ_KERNELS_CUDA_LAUNCH_H
#define FQ_KERNELS_CUDA_LAUNCH_H

#include "lib/checker.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; // cudaStream_t points to it

// Like fq_quantize_counts, but that the first non-finite element is told by one number, so that
// threads can agree on it: ~(row × cols + col), of which the greatest is the first element's.
typedef struct fq_cuda_quantize_counts {
    uint64_t saturated;
    uint64_t flushed_to_zero;
    uint64_t zero_blocks;
    uint64_t floored_blocks;
    uint64_t nonfinite;
    uint64_t first_nonfinite; // 0 where there is none
} fq_cuda_quantize_counts;

// Loads the kernels onto the current GPU: cudaErrorNoKernelImageForDevice if there are none for it.
unsigned fq_cuda_load(void);

// The pointers of the job are device memory; job->counts is not looked at. counts: in device
// memory, zeroed before, added to. Blocks of 128×128 and 1×128 are read once, others twice.
unsigned fq_cuda_quantize(const fq_quantize_job *job, fq_cuda_quantize_counts *counts,
                          struct CUstream_st *stream);

// Like fq_cuda_quantize.
unsigned fq_cuda_dequantize(const fq_dequantize_job *job, fq_dequantize_counts *counts,
                            struct CUstream_st *stream);

// Like fq_finding: first is ~(row × cols + col), 0 where n is 0.
typedef struct fq_cuda_finding {
    uint64_t n, first;
} fq_cuda_finding;

// Like fq_compare_counts.
typedef struct fq_cuda_compare_counts {
    uint64_t saturated;
    uint64_t flushed_to_zero;
    fq_cuda_finding nan_codes, codes_differ, out_of_bound, nonfinite;
} fq_cuda_compare_counts;

// Like fq_cuda_quantize. All is read once, whatever the blocks.
unsigned fq_cuda_compare(const fq_compare_job *job, fq_cuda_compare_counts *counts,
                         struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
