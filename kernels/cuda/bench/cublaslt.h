// cuBLASLt's own FP8 products, as a mark to beat: loaded where the library is installed, never
// required.
#ifndef FQ_KERNELS_CUDA_CUBLASLT_H
#define FQ_KERNELS_CUDA_CUBLASLT_H

#include "kernels/cuda/gemm/gemm.h"

typedef struct fq_cublaslt fq_cublaslt;

// Loads the library and makes a handle on the current GPU. NULL where there is none, or none that
// is new enough.
fq_cublaslt *fq_cublaslt_open(void);
void fq_cublaslt_close(fq_cublaslt *lt); // NULL is taken

// A plan for a dense product with BF16 output and FP32 scales: of blocks, or one for all of A and
// one for all of B. False where cuBLASLt does not take the shape (blocks: N and K multiples of 128,
// M of 4) or the GPU. One plan at a time.
bool fq_cublaslt_plan(fq_cublaslt *lt, const fq_cuda_gemm *gemm, bool block_scaled);

// Enqueues the planned product with these operands. A's scales are as fq_cuda_gemm's; of B's, lines
// of K are padded to a multiple of 4. Without blocks each is a single number.
bool fq_cublaslt_enqueue(fq_cublaslt *lt, const fq_cuda_gemm *gemm, struct CUstream_st *stream);

#endif
