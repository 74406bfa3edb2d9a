// The CPU backend.
#ifndef FQ_KERNELS_CPU_BACKEND_H
#define FQ_KERNELS_CPU_BACKEND_H

#include "lib/checker.h"
#include "lib/gemm.h"

// Computes in the thread that calls, so lanes are as parallel as their callers; once open, nothing
// but a lack of memory for the GEMM fails. The environment variable FP8Q_CPU names a variant to use
// instead of the fastest: "plain", "avx2", "avx512", "neon"; FQ_USAGE from open if this machine
// does not run it.
extern const fq_backend fq_cpu_backend;
extern const fq_checker fq_cpu_checker;
extern const fq_gemm fq_cpu_gemm;

#endif
