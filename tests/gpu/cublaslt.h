// cuBLASLt's own block-scaled product, as a second opinion and a mark to beat: loaded where it is
// installed, never required.
#ifndef FQ_TESTS_CUBLASLT_H
#define FQ_TESTS_CUBLASLT_H

#include "kernels/cuda/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cublaslt cublaslt;

// Loads the library and makes a handle. NULL where there is none, or none that is new enough.
cublaslt *cublaslt_open(void);
void cublaslt_close(cublaslt *lt); // NULL is taken

// A plan for a dense product with BF16 output and FP32 scales. False where cuBLASLt does not take
// the shape (N and K multiples of 128, M of 4). One plan at a time.
bool cublaslt_plan(cublaslt *lt, const fq_cuda_gemm *gemm);

// Enqueues the planned product with these operands. The scales must be laid out as cuBLASLt wants
// them: A's as fq_cuda_gemm's; of B's, lines of K padded to a multiple of 4.
bool cublaslt_enqueue(cublaslt *lt, const fq_cuda_gemm *gemm, struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif

#endif
