// How fast a device multiplies block-scaled FP8 matrices that lie in its memory, and how exactly.
#ifndef FQ_KERNELS_BENCH_GEMM_H
#define FQ_KERNELS_BENCH_GEMM_H

#include "lib/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum fq_bench_grouping {
    FQ_BENCH_DENSE,
    FQ_BENCH_CONTIGUOUS, // groups' rows end to end
    FQ_BENCH_MASKED,     // in slots of their own, which hold more: 4096 rows at least
} fq_bench_grouping;

// D[m, n] = A[m, k] · B[n, k]ᵀ, once or in each of some groups: A normal activations in 1×128
// blocks, B normal weights in 128×128 blocks.
typedef struct fq_bench_gemm_job {
    fq_bench_grouping grouping; // on GPUs; the CPU's is dense
    uint32_t n_groups;          // 1 where it is dense
    uint64_t m, n, k;           // at least 1; m: rows of each group
    bool pow2_scales;
    uint32_t n_threads; // of the CPU, where that does the work
    uint32_t n_repeats; // at least 1
} fq_bench_gemm_job;

// Medians over the repeats. NaN is what was not measured.
typedef struct fq_bench_gemm_figures {
    double seconds;          // of one product, back to back; on a GPU in a CUDA graph
    double single_seconds;   // on a GPU: of one product alone, nothing of it in the cache
    double cublaslt_seconds; // like seconds, of cuBLASLt's own; NaN where it does not take the job
    double flop, nbytes;     // of one product: 2·m·n·k; codes read and results written
    double rel_l2;           // ‖D−Y‖ / ‖Y‖, Y the exact product of the codes and scales;
    double calc_diff; // 1 − 2⟨D,Y⟩ / (⟨D,D⟩ + ⟨Y,Y⟩): on a GPU of the first 16 rows
    double unquantized_rel_l2; // against the product of what was quantized
    char kernel[64];           // what ran: "tiles 256×128, pairs share A", "AVX-512"
    const char *backend;       // "cpu"; static
    char device[256];
} fq_bench_gemm_figures;

// Measures on the device that --device names, as fq_bench_measure does; FQ_USAGE for groups on the
// CPU.
fq_status fq_bench_gemm_measure(fq_bench_gemm_figures *out, const char *device,
                                const fq_bench_gemm_job *job, fq_error *err);

// FP8 operations in a second that the device reaches without block scales: 8192³ by cuBLASLt, one
// scale a tensor. NaN where there is no cuBLASLt.
fq_status fq_bench_gemm_peak(double *out, const char *device, fq_error *err);

#endif
