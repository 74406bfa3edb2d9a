// What the GEMM is held against: products in FP64, to the bit those of lib/gemm.h, and the sums of
// how far the GEMM is off them.
//
// All pointers are device memory of the current device. Calls only enqueue work into the stream,
// and return a cudaError_t at once: 0 is success.
#ifndef FQ_KERNELS_CUDA_GEMM_EXACT_H
#define FQ_KERNELS_CUDA_GEMM_EXACT_H

#include "kernels/cuda/gemm/gemm.h"
#include "lib/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

// One piece of a strip. Of tokens × weights the sum of each block of 128 columns is formed by
// itself, in the order of the columns.
typedef struct fq_cuda_exact {
    uint64_t tokens, rows, cols;
    const void *x; // [tokens, x_stride] BF16; E4M3 codes where the weights are such
    uint64_t x_stride;
    const float *x_scales; // [ceil(cols/128), x_scales_stride]; NULL: no scales
    uint64_t x_scales_stride;
    const void *w; // [rows, w_stride] of w_dtype
    uint64_t w_stride;
    fq_dtype w_dtype;
    const float *w_scales; // [ceil(rows/128), w_scales_stride]; of use where x_scales is not NULL
    uint64_t w_scales_stride;
    double *blocks;    // [n_blocks, tokens, rows], for the kernels' own use
    uint64_t n_blocks; // at least 1; the more, the more of the GPU is at work at a time
    double *sums;      // [tokens, sums_stride]: added to, block after block
    uint64_t sums_stride;
} fq_cuda_exact;

// sums += x · wᵀ
unsigned fq_cuda_exact_add(const fq_cuda_exact *job, struct CUstream_st *stream);

// sums[i] += product[i] for n elements.
unsigned fq_cuda_product_add(float *sums, const float *product, uint64_t n,
                             struct CUstream_st *stream);

// The GEMM reads one packed word for 128 rows of B. This multiplies the rows anew whose word is
// another than that of the first of their 128, each with its own: as the engines that read every
// row's word do. Rows like their first, which all are in a sound file, are left as they are. For
// products with packed scales and FP32 output.
unsigned fq_cuda_product_mend(const fq_cuda_gemm *gemm, struct CUstream_st *stream);

// Products of strips, [n_strips, tokens, rows].
typedef struct fq_cuda_products {
    uint64_t tokens, rows;
    uint32_t n_strips;
    const uint32_t *group_rows; // [n_strips]: strips of which it is 0 are left out; NULL: none is
    const float *product;
    const double *exact;
    const double *reference; // NULL: none
} fq_cuda_products;

// sums: out, [n_strips, rows], as lib/gemm.h says.
unsigned fq_cuda_products_sum_up(const fq_cuda_products *products, fq_gemm_sums *sums,
                                 struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
