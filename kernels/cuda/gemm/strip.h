// What a lane keeps on its GPU while it multiplies a strip of a weight for verify.
#ifndef FQ_KERNELS_CUDA_STRIP_H
#define FQ_KERNELS_CUDA_STRIP_H

#include "lib/gemm.h"

// GPU memory that grows.
typedef struct fq_cuda_room {
    unsigned char *memory;
    size_t nbytes;
} fq_cuda_room;

// Zeroed is an empty one. Arrays lie in GPU memory, in the rooms that stand before them.
typedef struct fq_cuda_strip {
    const fq_gemm_operand *activations;
    const unsigned char *x; // the activations on this GPU
    uint64_t tokens, rows, next_col;
    bool has_reference;

    fq_cuda_room results;
    double *exact, *reference; // [tokens, rows]
    float *product, *part;     // [tokens, rows]; part: of one piece
    fq_gemm_sums *sums;        // [rows]

    fq_cuda_room piece;
    uint8_t *codes;   // [rows, cols]
    void *source;     // [rows, cols]
    float *scales;    // [ceil(rows/128), ceil(cols/128)]
    uint32_t *packed; // [ceil(cols/512), fq_packed_stride(rows)]

    fq_cuda_room blocks; // of fq_cuda_exact
    uint64_t n_blocks;
} fq_cuda_strip;

// Makes room for the results of so many tokens and rows: exact, reference and product, which lie in
// this order from the room's start on, part and sums. *nbytes: out, of the first three.
fq_status fq_cuda_strip_make_results(fq_cuda_strip *strip, size_t *nbytes, uint32_t gpu,
                                     fq_error *err);

// Makes room for a piece of the strip, and for the sums of its blocks.
fq_status fq_cuda_strip_make_piece(fq_cuda_strip *strip, const fq_gemm_piece *piece, uint32_t gpu,
                                   fq_error *err);

// Frees a strip on the heap, and its GPU memory. NULL is taken.
void fq_cuda_strip_close(fq_cuda_strip *strip);

// Places an array of n elements of that size behind *nbytes, which grows by what it takes. False if
// no memory can be so large.
bool fq_cuda_place(size_t *at, size_t *nbytes, uint64_t n, size_t size);

#endif
