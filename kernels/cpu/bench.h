// The benchmark of the CPU backend.
#ifndef FQ_KERNELS_CPU_BENCH_H
#define FQ_KERNELS_CPU_BENCH_H

#include "kernels/bench.h"

// As fq_bench_measure, in job->n_threads threads, which share each matrix in bands of whole block
// rows as a run does. The copy is memcpy, in as many threads.
fq_status fq_cpu_bench(fq_bench_figures *out, const fq_bench_job *job, fq_error *err);

#endif
