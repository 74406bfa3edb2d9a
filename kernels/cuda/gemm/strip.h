// What a lane keeps on its GPU while it multiplies a strip of a weight for verify.
#ifndef FQ_KERNELS_CUDA_STRIP_H
#define FQ_KERNELS_CUDA_STRIP_H

#include "lib/gemm.h"

// Activations on every GPU.
struct fq_gemm_operand {
    uint64_t tokens, cols;
    uint64_t codes_stride, scales_stride;
    size_t values_at, scales_at; // in memory, which begins with the codes
    uint32_t n_gpus;
    unsigned char *memory[]; // [n_gpus]
};

// Where strips of a group lie on one GPU: see group.h.
typedef struct fq_cuda_places fq_cuda_places;

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
    fq_cuda_places *places; // of the group; NULL: it is multiplied by itself
    uint32_t place;         // in these

    fq_cuda_room results;
    double *exact, *reference; // [tokens, sums_stride]
    uint64_t sums_stride;
    float *product, *part; // [tokens, rows]; part: of one piece. Not of a group's strip
    fq_gemm_sums *sums;    // [rows]; likewise

    // The piece at work; all but its source lies in the strip's place, where there is one. Strides
    // are elements.
    fq_cuda_room piece;
    void *source;     // [rows, cols]
    uint8_t *codes;   // [rows, codes_stride]
    float *scales;    // [ceil(rows/128), scales_stride]
    uint32_t *packed; // [ceil(cols/512), packed_stride]
    uint64_t codes_stride, scales_stride, packed_stride;

    fq_cuda_room blocks; // of fq_cuda_exact
    uint64_t n_blocks;
} fq_cuda_strip;

// Makes room for the results of so many tokens and rows: exact, reference and product, which lie in
// this order from the room's start on, part and sums. *nbytes: out, of the first three.
fq_status fq_cuda_strip_make_results(fq_cuda_strip *strip, size_t *nbytes, uint32_t gpu,
                                     fq_error *err);

// Makes room for a piece of the strip, and for the sums of its blocks. Of a strip with a place, for
// its source alone: the rest lies there.
fq_status fq_cuda_strip_make_piece(fq_cuda_strip *strip, const fq_gemm_piece *piece, uint32_t gpu,
                                   fq_error *err);

// Frees a strip on the heap, and its GPU memory. NULL is taken.
void fq_cuda_strip_close(fq_cuda_strip *strip);

// Places an array of n elements of that size behind *nbytes, which grows by what it takes. False if
// no memory can be so large.
bool fq_cuda_place(size_t *at, size_t *nbytes, uint64_t n, size_t size);

#endif
