// The GPU memory of a strip: see strip.h.
#include "kernels/cuda/gemm/strip.h"

#include "kernels/cuda/gpu.h"
#include "lib/scale.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

enum {
    ALIGNMENT = 256, // of arrays in GPU memory
    // Sums of blocks that the kernels in FP64 keep: 32 blocks of 128 tokens by 512 rows, which is
    // a band, and enough work for any GPU.
    BLOCKS_NBYTES = 16 << 20,
};

bool fq_cuda_place(size_t *at, size_t *nbytes, uint64_t n, size_t size) {
    size_t taken;
    *at = *nbytes;
    if (__builtin_mul_overflow(n, size, &taken) || taken > SIZE_MAX / 2 - *nbytes)
        return false;
    *nbytes += fq_ceil_div(taken, ALIGNMENT) * ALIGNMENT;
    return true;
}

static fq_status make_room(fq_cuda_room *out, size_t nbytes, uint32_t gpu, fq_error *err) {
    if (nbytes <= out->nbytes)
        return FQ_OK;
    fq_status status = fq_gpu_check(gpu, "cudaFree", cudaFree(out->memory), err);
    *out = (fq_cuda_room){.memory = NULL};
    if (!status)
        status = fq_gpu_check(gpu, "cudaMalloc", cudaMalloc((void **)&out->memory, nbytes), err);
    if (!status)
        out->nbytes = nbytes;
    return status;
}

fq_status fq_cuda_strip_make_results(fq_cuda_strip *strip, size_t *nbytes, uint32_t gpu,
                                     fq_error *err) {
    const uint64_t n = strip->tokens * strip->rows;
    size_t exact, reference, product, part, sums, all = 0;
    if (strip->rows > SIZE_MAX / strip->tokens ||
        !fq_cuda_place(&exact, &all, n, sizeof *strip->exact) ||
        !fq_cuda_place(&reference, &all, n, sizeof *strip->reference) ||
        !fq_cuda_place(&product, &all, n, sizeof *strip->product) ||
        !fq_cuda_place(&part, &all, n, sizeof *strip->part) ||
        !fq_cuda_place(&sums, &all, strip->rows, sizeof *strip->sums))
        return fq_fail_memory(err);
    const fq_status status = make_room(&strip->results, all, gpu, err);
    if (status)
        return status;
    unsigned char *memory = strip->results.memory;
    strip->exact = (void *)(memory + exact);
    strip->reference = (void *)(memory + reference);
    strip->product = (void *)(memory + product);
    strip->part = (void *)(memory + part);
    strip->sums = (void *)(memory + sums);
    strip->sums_stride = strip->rows;
    *nbytes = part;
    return FQ_OK;
}

static fq_status make_blocks(fq_cuda_strip *strip, uint64_t cols, uint32_t gpu, fq_error *err) {
    const uint64_t n_blocks = fq_ceil_div(cols, FQ_BLOCK_SIZE);
    const size_t nbytes = strip->tokens * strip->rows * sizeof *strip->exact; // of a block
    strip->n_blocks = BLOCKS_NBYTES / nbytes;
    strip->n_blocks = strip->n_blocks < 1          ? 1
                      : strip->n_blocks > n_blocks ? n_blocks
                                                   : strip->n_blocks;
    return make_room(&strip->blocks, strip->n_blocks * nbytes, gpu, err);
}

// The source comes first, and is all that a strip with a place needs room for.
fq_status fq_cuda_strip_make_piece(fq_cuda_strip *strip, const fq_gemm_piece *piece, uint32_t gpu,
                                   fq_error *err) {
    const uint64_t n = piece->rows * piece->cols;
    const uint64_t n_blocks = fq_ceil_div(piece->cols, FQ_BLOCK_SIZE);
    const uint64_t n_scales = fq_ceil_div(piece->rows, FQ_BLOCK_SIZE) * n_blocks;
    const uint64_t line = fq_packed_stride(piece->rows);
    const uint64_t n_words = fq_ceil_div(piece->cols, FQ_PACKED_COLS) * line;
    const size_t source_size = piece->source ? fq_dtype_size(piece->source_dtype) : 0;
    size_t codes, source, scales, packed, all = 0;
    if (!fq_cuda_place(&source, &all, n, source_size) ||
        (!strip->places && (!fq_cuda_place(&codes, &all, n, sizeof *strip->codes) ||
                            !fq_cuda_place(&scales, &all, n_scales, sizeof *strip->scales) ||
                            !fq_cuda_place(&packed, &all, n_words, sizeof *strip->packed))))
        return fq_fail_memory(err);
    fq_status status = make_room(&strip->piece, all, gpu, err);
    if (!status)
        status = make_blocks(strip, piece->cols, gpu, err);
    if (status)
        return status;
    strip->source = strip->piece.memory;
    if (strip->places)
        return FQ_OK;
    strip->codes = strip->piece.memory + codes;
    strip->codes_stride = piece->cols;
    strip->scales = (void *)(strip->piece.memory + scales);
    strip->scales_stride = n_blocks;
    strip->packed = (void *)(strip->piece.memory + packed);
    strip->packed_stride = line;
    return FQ_OK;
}

// Errors do not matter any more: what cannot be freed goes with the process.
void fq_cuda_strip_close(fq_cuda_strip *strip) {
    if (!strip)
        return;
    (void)cudaFree(strip->results.memory);
    (void)cudaFree(strip->piece.memory);
    (void)cudaFree(strip->blocks.memory);
    free(strip);
}
