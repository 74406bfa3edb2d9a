// What a device offers to verify beyond fq_checker: the block-scaled FP8 GEMM, held against
// references.
#ifndef FQ_GEMM_H
#define FQ_GEMM_H

#include "backend.h"

// Activations X, and what quantizing them in 1×128 blocks made of them. Nothing is owned.
typedef struct fq_gemm_activations {
    uint64_t tokens, cols;  // M and K
    const uint16_t *values; // [tokens, cols] BF16
    const uint8_t *codes;   // [tokens, cols] E4M3
    const float *scales;    // [tokens, ceil(cols/128)]
} fq_gemm_activations;

// Some columns, over all rows, of the strip of a weight that is being multiplied. The pointers are
// host memory, left alone by the caller until wait.
typedef struct fq_gemm_piece {
    uint64_t rows, cols;
    uint64_t col0;          // of the weight: a multiple of 128, and of 512 where packed
    const uint8_t *codes;   // [rows, cols] E4M3
    const float *scales;    // [ceil(rows/128), ceil(cols/128)]; or NULL:
    const uint32_t *packed; // [ceil(cols/512), packed_stride]: the words as they are stored, that
    uint64_t packed_stride; // of the strip's first row first; multiplied from these
    const void *source;     // [rows, cols] of source_dtype: the reference; NULL without one
    fq_dtype source_dtype;
} fq_gemm_piece;

// Sums over all elements of a strip's result, which is [tokens, rows]. In FP64; backends agree to
// rounding.
//     Y      the FP8 GEMM: for each block of 128 columns, in order, FP32 partial sum of products of
//            codes, times (activation scale × weight scale), added to an FP32 accumulator
//     Yref   X·Wᵀ with the reference weights, in FP64
//     Yexact the dequantized operands' product in FP64
typedef struct fq_gemm_sums {
    double error2;        // Σ (Y − Yref)², void without a reference
    double reference2;    // Σ Yref²
    double kernel_error2; // Σ (Y − Yexact)²
    double exact2;        // Σ Yexact²
} fq_gemm_sums;

// The GEMM of one backend, on devices that it opened. A lane multiplies one strip after the other:
// begin, then its pieces in the order of their columns, without a gap, then end. Every entry is
// there.
typedef struct fq_gemm {
    // activations stay untouched until the end of the strip.
    fq_status (*begin)(fq_device *device, uint32_t lane, const fq_gemm_activations *activations,
                       uint64_t rows, fq_error *err);
    // A piece's buffers are the caller's again when wait(lane) returned.
    fq_status (*add)(fq_device *device, uint32_t lane, const fq_gemm_piece *piece, fq_error *err);
    // *sums are there when wait(lane) returned.
    fq_status (*end)(fq_device *device, uint32_t lane, fq_gemm_sums *sums, fq_error *err);
} fq_gemm;

#endif
