// What a device offers to verify beyond fq_checker: the block-scaled FP8 GEMM, held against
// references.
#ifndef FQ_GEMM_H
#define FQ_GEMM_H

#include "backend.h"

// Activations X, and what quantizing them in 1×128 blocks made of them. Nothing is owned.
typedef struct fq_gemm_activations {
    uint64_t tokens, cols;  // M and K, at least 1
    const uint16_t *values; // [tokens, cols] BF16
    const uint8_t *codes;   // [tokens, cols] E4M3
    const float *scales;    // [tokens, ceil(cols/128)]
} fq_gemm_activations;

// Activations in the form that a device multiplies.
typedef struct fq_gemm_operand fq_gemm_operand;

// Some columns, over all rows, of the strip of a weight that is being multiplied. The pointers are
// host memory, left alone by the caller until wait.
typedef struct fq_gemm_piece {
    uint64_t rows, cols;
    uint64_t col0;          // of the weight: a multiple of 128, and of 512 where packed
    const uint8_t *codes;   // [rows, cols] E4M3
    const float *scales;    // [ceil(rows/128), ceil(cols/128)]: what the codes mean
    const uint32_t *packed; // [ceil(cols/512), packed_stride]: the words as they are stored, that
    uint64_t packed_stride; // of the strip's first row first; or NULL
    const void *source;     // [rows, cols] of source_dtype: the reference; NULL without one
    fq_dtype source_dtype;  // BF16, F16 or F32
} fq_gemm_piece;

// One row of a strip's result [tokens, rows], as sums over the tokens, in FP64. With P(k) for the
// products of one block k of 128 columns, sA the activation's and sB the weight's scale in it:
//     Y      FP32: P(k) is the sum of the products of codes, in FP32; then y = y + P(k)·(sA·sB) for
//            one block after the other, each operation rounded. sB is what the row's packed word
//            holds where there are words. Y is not rounded to BF16, which would hide faults.
//     Yexact FP64: the same formula with sB from scales. P(k) and sA·sB are exact then.
//     Yref   FP64: P(k) is the sum of activation × reference weight; y = y + P(k).
// The CPU adds the products of a block in the order of their columns (the products of codes are
// exact in FP32, those of Yref in FP64), so that its bits are the same for any variant and for any
// cut into strips and pieces. Of devices whose tensor cores add otherwise, Yexact and Yref have
// these bits, and Y stays within the bound of docs/numerics.md.
//
// Left out is a row whose Yexact or Yref has an element that is NaN or beyond 2^100 in magnitude,
// or has none that is 2^-100 at least and some that are not 0: FP32 may have left its range on the
// way. The other elements of such a row would mislead: they are those where products cancel, and
// errors do not.
typedef struct fq_gemm_sums {
    uint64_t n;           // elements: all tokens, or 0 if the row is left out
    double kernel_error2; // Σ (Y − Yexact)²
    double exact2;        // Σ Yexact²
    double error2;        // Σ (Y − Yref)²; 0 without a reference
    double reference2;    // Σ Yref²; likewise
} fq_gemm_sums;

// What comes out of a strip.
typedef struct fq_gemm_result {
    fq_gemm_sums *sums; // out: [rows]
    float *product;     // out: Y, [tokens, rows]; or NULL
} fq_gemm_result;

// Strips that get their Y from one grouped GEMM when all are there, as engines multiply the experts
// of a layer. Yexact and Yref are formed as the pieces come.
typedef struct fq_gemm_group fq_gemm_group;

typedef struct fq_gemm_group_options {
    const fq_gemm_operand *activations; // of all strips
    uint64_t rows;                      // of the largest strip
    uint64_t n_strips;                  // that will come
    bool has_words;                     // all pieces have packed words, or none has
    // Is given the sums [rows] of one launched strip after the other, in the thread that launches;
    // they are gone when it returns. It must not use the group.
    void (*take)(void *taker, const fq_gemm_sums *sums, uint64_t rows);
} fq_gemm_group_options;

typedef struct fq_gemm_strip {
    const fq_gemm_operand *activations;
    uint64_t rows;
    fq_gemm_group *group; // NULL: it is multiplied by itself
    void *taker;          // for the group's take
} fq_gemm_strip;

// The GEMM of one backend, on devices that it opened. A lane multiplies one strip after the other:
// begin, then its pieces in the order of their columns, without a gap, then end; begin anew after
// an error. Every entry is there.
typedef struct fq_gemm {
    double max_error; // of ‖Y − Yexact‖ / ‖Yexact‖ with sound operands: docs/numerics.md
    // Brings activations to the device, for use by all of its lanes. What they point to is the
    // caller's again.
    fq_status (*load)(fq_gemm_operand **out, fq_device *device,
                      const fq_gemm_activations *activations, fq_error *err);
    // Once no strip uses them; NULL is taken.
    void (*unload)(fq_device *device, fq_gemm_operand *activations);
    // Where a strip's group is full, what has ended in it is launched first.
    fq_status (*begin)(fq_device *device, uint32_t lane, const fq_gemm_strip *strip, fq_error *err);
    // A piece's buffers are the caller's again when wait(lane) returned.
    fq_status (*add)(fq_device *device, uint32_t lane, const fq_gemm_piece *piece, fq_error *err);
    // The result is there when wait(lane) returned. A strip of a group has none, but its sums when
    // the group is launched: result is NULL.
    fq_status (*end)(fq_device *device, uint32_t lane, const fq_gemm_result *result, fq_error *err);

    // Takes the device's memory for a group, as much as it can spare up to all strips. *out is NULL
    // where that is too little, or the device gains nothing: its strips are multiplied by
    // themselves then. Opening and closing are done by one thread at a time.
    fq_status (*open_group)(fq_gemm_group **out, fq_device *device,
                            const fq_gemm_group_options *options, fq_error *err);
    // Launches what has ended in the group since the last launch, and waits for it. Takes no lane.
    // In NULL there is nothing.
    fq_status (*launch)(fq_device *device, fq_gemm_group *group, fq_error *err);
    // While no lane uses it; what was not launched is lost. NULL is taken.
    void (*close_group)(fq_device *device, fq_gemm_group *group);
} fq_gemm;

#endif
