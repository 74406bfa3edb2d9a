// Products of block-scaled FP8 matrices on the GPU: D = A · Bᵀ, dense and grouped.
//
//   D[m, n] = Σ over kb of a_scales[kb, m] · scale of B(n / 128, kb) · (A[m, kb·128 ..] · B[n,
//   kb·128 ..])
//
// The sum over each 128 of K is formed by itself, scaled, and added in FP32 (docs/numerics.md).
// All pointers are device memory of the current device and stay the caller's. Calls only enqueue
// work into the stream, allocate nothing and may be captured in a CUDA graph.
#ifndef FQ_CUDA_GEMM_H
#define FQ_CUDA_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "lib/error.h"

struct CUstream_st; // cudaStream_t is a pointer to it

enum { FQ_CUDA_GEMM_BLOCK = 128 }; // of K for A's scales; of N and K for B's

// The implementations, from the plainest to the fastest. All take every shape but for SM90's
// alignment: A, B and the A scales begin at multiples of 16 bytes, and so do their rows.
typedef enum fq_cuda_gemm_rung {
    FQ_CUDA_GEMM_AUTO,   // the fastest that device and operands allow
    FQ_CUDA_GEMM_SIMPLE, // any GPU
    FQ_CUDA_GEMM_MMA,    // mma.sync: compute capability 8.9 and later
    FQ_CUDA_GEMM_SM90,   // TMA and WGMMA: compute capability 9.0
} fq_cuda_gemm_rung;

// Which rows of A meet which of the matrices stacked in B.
typedef enum fq_cuda_gemm_grouping {
    FQ_CUDA_GEMM_DENSE,      // one matrix
    FQ_CUDA_GEMM_CONTIGUOUS, // group g's rows are [group_rows[g - 1], group_rows[g]); no padding
    FQ_CUDA_GEMM_MASKED,     // group g's rows are the first group_rows[g] of slot g
} fq_cuda_gemm_grouping;

typedef struct fq_cuda_gemm {
    uint64_t m, n, k;      // rows of A and D (of all groups), rows of B (of one group), columns
    const uint8_t *a;      // [m, k] E4M3, row-major
    const uint8_t *b;      // [n_groups, n, k] E4M3, row-major
    void *d;               // out: [m, n] BF16 or FP32, row-major
    uint64_t a_stride;     // elements from row to row, at least k
    uint64_t b_stride;     // likewise; a group's matrix begins n rows after the one before
    uint64_t d_stride;     // at least n
    bool d_is_f32;         // else BF16
    bool b_scales_packed;  // else an FP32 grid
    const float *a_scales; // [ceil(k/128), a_scales_stride]: the scales of a 128 of K side by side
    uint64_t a_scales_stride; // at least the rows of A
    // FP32 grid: [n_groups, ceil(n/128), ceil(k/128)].
    // Packed: uint32 [n_groups, ceil(k/512), n rounded up to 4], four UE8M0 exponents in a word,
    // the lowest byte first (docs/formats.md): a checkpoint's `packed` scales as they are.
    const void *b_scales;
    fq_cuda_gemm_grouping grouping;
    uint32_t n_groups;  // 1 for dense
    uint64_t slot_rows; // masked: rows of A and D from group to group; m = n_groups · slot_rows
    bool a_is_shared;   // masked: A is one slot, [slot_rows, k], and all groups multiply its rows
    const uint32_t *group_rows; // [n_groups], read by the kernel; NULL for dense
} fq_cuda_gemm;

// Enqueues the product. Rows of D that belong to no group are not written. FQ_DEVICE where the
// device lacks the rung, or a launch fails; FQ_USAGE where the rung does not take the operands.
fq_status fq_cuda_gemm_enqueue(const fq_cuda_gemm *gemm, fq_cuda_gemm_rung rung,
                               struct CUstream_st *stream, fq_error *err);

// What enqueue would run: "tiles 256×128, pairs share A" and the like, cut to size bytes, NUL
// included. Fails as enqueue does.
fq_status fq_cuda_gemm_describe(char *out, size_t size, const fq_cuda_gemm *gemm,
                                fq_cuda_gemm_rung rung, fq_error *err);

// Activations to quantize by docs/numerics.md in 1×128 blocks.
typedef struct fq_cuda_activations {
    uint64_t m, k;
    const void *source; // [m, k] BF16, row-major
    uint64_t source_stride;
    bool pow2_scales;
    float amax_floor;
    uint8_t *codes; // out: [m, k] E4M3
    uint64_t codes_stride;
    float *scales; // out: [ceil(k/128), scales_stride], as fq_cuda_gemm.a_scales
    uint64_t scales_stride;
} fq_cuda_activations;

// Enqueues the quantization. NaN and Inf in the source give codes without meaning.
fq_status fq_cuda_activations_enqueue(const fq_cuda_activations *activations,
                                      struct CUstream_st *stream, fq_error *err);

#ifdef __cplusplus
}
#endif

#endif
