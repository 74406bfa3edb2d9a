// The inner products of the GEMM: what its variants (plain C, AVX2, AVX-512, NEON) bring.
//
// Tokens lie side by side in the registers and weights are broadcast, so that each sum runs through
// the columns in their order in every variant. With the products exact, as they are for codes in
// FP32 and for what lib/gemm.h multiplies in FP64, fusing them with the sum changes no bit: all
// variants give the same.
#ifndef FQ_KERNELS_CPU_MULTIPLY_H
#define FQ_KERNELS_CPU_MULTIPLY_H

#include <stddef.h>

enum {
    FQ_CPU_DEPTH = 128,                                     // columns of a block
    FQ_CPU_PANEL_NBYTES = 128,                              // of one column of a panel of tokens
    FQ_CPU_PANEL_F32 = FQ_CPU_PANEL_NBYTES / sizeof(float), // tokens of a panel
    FQ_CPU_PANEL_F64 = FQ_CPU_PANEL_NBYTES / sizeof(double),
};

// For every row and token:
//     sums[row][token] += (Σ_k tokens[k][token] · weights[row][k]) · (token_scale · row_scale)
// All arrays are of the function's type. Nothing is owned.
typedef struct fq_cpu_product {
    const void *tokens;       // [n_panels][depth][tokens of a panel]
    const void *weights;      // [n_rows][FQ_CPU_DEPTH], of which depth count
    const void *token_scales; // [n_panels · tokens of a panel]
    const void *row_scales;   // [n_rows]
    void *sums;               // [n_rows][n_panels · tokens of a panel]
    size_t depth;             // 1 to FQ_CPU_DEPTH
    size_t n_panels, n_rows;
} fq_cpu_product;

typedef void fq_cpu_multiply_fn(const fq_cpu_product *product);

// float and double
fq_cpu_multiply_fn fq_cpu_multiply_f32_plain, fq_cpu_multiply_f64_plain;
fq_cpu_multiply_fn fq_cpu_multiply_f32_avx2, fq_cpu_multiply_f64_avx2;
fq_cpu_multiply_fn fq_cpu_multiply_f32_avx512, fq_cpu_multiply_f64_avx512;
fq_cpu_multiply_fn fq_cpu_multiply_f32_neon, fq_cpu_multiply_f64_neon;

#endif
