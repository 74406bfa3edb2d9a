// Random numbers for the benchmarks, made where they are needed.
#ifndef FQ_KERNELS_CUDA_BENCH_FILL_H
#define FQ_KERNELS_CUDA_BENCH_FILL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; // cudaStream_t points to it

// Fills n BF16 with numbers of the standard normal distribution, the same for the same seed. out:
// device memory. Returns a cudaError_t at once.
unsigned fq_cuda_bench_fill(void *out, uint64_t n, uint64_t seed, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
