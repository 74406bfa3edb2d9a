// A kernel that does nothing but read and write: the yardstick of the benchmarks.
#ifndef FQ_KERNELS_CUDA_BENCH_COPY_H
#define FQ_KERNELS_CUDA_BENCH_COPY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; // cudaStream_t points to it

enum { FQ_CUDA_COPY_UNIT = 4096 }; // bytes

// Copies n units: for each it reads n_read times FQ_CUDA_COPY_UNIT bytes and writes n_written
// times as many, as quantizing and casting back do. One of the two is 1, the other 1, 2 or 4.
// in and out: device memory, 16-byte aligned. Returns a cudaError_t at once.
unsigned fq_cuda_bench_copy(void *out, const void *in, uint64_t n, uint32_t n_read,
                            uint32_t n_written, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
