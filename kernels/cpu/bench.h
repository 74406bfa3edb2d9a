// The benchmark of the CPU backend.
#ifndef FQ_KERNELS_CPU_BENCH_H
#define FQ_KERNELS_CPU_BENCH_H

#include "kernels/bench.h"
#include "kernels/bench_gemm.h"

// As fq_bench_measure, in job->n_threads threads, which share each matrix in bands of whole block
// rows as a run does. The copy is memcpy, in as many threads.
fq_status fq_cpu_bench(fq_bench_figures *out, const fq_bench_job *job, fq_error *err);

// As fq_bench_gemm_measure for dense products, in job->n_threads threads, which share the rows of
// B. It is verify's GEMM, which forms the exact product beside the other: both are in the time.
fq_status fq_cpu_bench_gemm(fq_bench_gemm_figures *out, const fq_bench_gemm_job *job,
                            fq_error *err);

#endif
