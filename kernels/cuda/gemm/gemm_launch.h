// The launchers behind fq_cuda_gemm_enqueue, one a rung.
#ifndef FQ_CUDA_GEMM_LAUNCH_H
#define FQ_CUDA_GEMM_LAUNCH_H

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_config.h"

#ifdef __cplusplus
extern "C" {
#endif

// gemm is valid and not empty. FQ_DEVICE if the launch fails.
fq_status fq_cuda_gemm_simple_launch(const fq_cuda_gemm *gemm, struct CUstream_st *stream,
                                     fq_error *err);
fq_status fq_cuda_gemm_mma_launch(const fq_cuda_gemm *gemm, struct CUstream_st *stream,
                                  fq_error *err);

// Like these, but with a choice among the instances (gemm_config.h). FQ_USAGE if there is none
// such.
fq_status fq_cuda_gemm_sm90_launch(const fq_cuda_gemm *gemm, const fq_cuda_gemm_choice *choice,
                                   struct CUstream_st *stream, fq_error *err);
fq_status fq_cuda_gemm_sm90_tiles_launch(const fq_cuda_gemm *gemm,
                                         const fq_cuda_gemm_choice *choice,
                                         struct CUstream_st *stream, fq_error *err);
fq_status fq_cuda_gemm_sm90_rows_launch(const fq_cuda_gemm *gemm, const fq_cuda_gemm_choice *choice,
                                        struct CUstream_st *stream, fq_error *err);

#ifdef __cplusplus
}
#endif

#endif
