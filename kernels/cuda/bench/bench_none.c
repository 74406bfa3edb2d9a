// Stands in for the benchmark where there is no CUDA toolkit to build it with.
#include "kernels/cuda/bench/bench.h"

static fq_status fail(fq_error *err) {
    return fq_fail(err, FQ_DEVICE, "this build has no benchmark for GPUs; use --device cpu");
}

fq_status fq_cuda_bench(fq_bench_figures *out, uint32_t gpu, const fq_bench_job *job,
                        fq_error *err) {
    (void)out, (void)gpu, (void)job;
    return fail(err);
}

fq_status fq_cuda_bench_gemm(fq_bench_gemm_figures *out, uint32_t gpu, const fq_bench_gemm_job *job,
                             fq_error *err) {
    (void)out, (void)gpu, (void)job;
    return fail(err);
}

fq_status fq_cuda_bench_gemm_peak(double *out, uint32_t gpu, fq_error *err) {
    (void)out, (void)gpu;
    return fail(err);
}
