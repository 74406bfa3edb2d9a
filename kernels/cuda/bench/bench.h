// The benchmark of the CUDA backend.
#ifndef FQ_KERNELS_CUDA_BENCH_H
#define FQ_KERNELS_CUDA_BENCH_H

#include "kernels/bench.h"
#include "kernels/bench_gemm.h"

// As fq_bench_measure, on that GPU. The copy is a kernel that reads and writes in the proportion of
// the operation, two bytes for one or one for two; the GPU's own copy reads as much as it writes.
fq_status fq_cuda_bench(fq_bench_figures *out, uint32_t gpu, const fq_bench_job *job,
                        fq_error *err);

// Like those of bench_gemm.h, on that GPU.
fq_status fq_cuda_bench_gemm(fq_bench_gemm_figures *out, uint32_t gpu, const fq_bench_gemm_job *job,
                             fq_error *err);
fq_status fq_cuda_bench_gemm_peak(double *out, uint32_t gpu, fq_error *err);

#endif
