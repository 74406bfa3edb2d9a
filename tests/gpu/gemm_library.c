// The GEMM as a shared library that Python can load (tests/bench/deepgemm.py): operands as plain
// arguments, so that no script repeats the layout of a struct.
#include "kernels/cuda/gemm/gemm.h"

#include <stdio.h>

// Enqueues the product of operands in device memory whose rows lie side by side, with B's scales as
// an FP32 grid and D in BF16 (fq_cuda_gemm has the meaning of each). Not 0 if it fails, and the
// reason in `why`, cut to why_size bytes, NUL included.
int fq_test_multiply(uint64_t m, uint64_t n, uint64_t k, const uint8_t *a, const uint8_t *b,
                     void *d_bf16, const float *a_scales, uint64_t a_scales_stride,
                     const float *b_scales, int grouping, uint32_t n_groups, uint64_t slot_rows,
                     const uint32_t *group_rows, struct CUstream_st *stream, char *why,
                     size_t why_size);

int fq_test_multiply(uint64_t m, uint64_t n, uint64_t k, const uint8_t *a, const uint8_t *b,
                     void *d_bf16, const float *a_scales, uint64_t a_scales_stride,
                     const float *b_scales, int grouping, uint32_t n_groups, uint64_t slot_rows,
                     const uint32_t *group_rows, struct CUstream_st *stream, char *why,
                     size_t why_size) {
    const fq_cuda_gemm gemm = {.m = m,
                               .n = n,
                               .k = k,
                               .a = a,
                               .b = b,
                               .d = d_bf16,
                               .a_stride = k,
                               .b_stride = k,
                               .d_stride = n,
                               .a_scales = a_scales,
                               .a_scales_stride = a_scales_stride,
                               .b_scales = b_scales,
                               .grouping = (fq_cuda_gemm_grouping)grouping,
                               .n_groups = n_groups,
                               .slot_rows = slot_rows,
                               .group_rows = group_rows};
    fq_error err = {0};
    const fq_status status = fq_cuda_gemm_enqueue(&gemm, FQ_CUDA_GEMM_AUTO, stream, &err);
    if (status != FQ_OK)
        snprintf(why, why_size, "%s", err.text);
    return (int)status;
}
