// Tensor maps: what TMA needs to know of a matrix.
#ifndef FQ_CUDA_TENSOR_MAP_H
#define FQ_CUDA_TENSOR_MAP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "lib/error.h"

// CUDA's CUtensorMap, for a kernel's parameters.
typedef struct fq_cuda_tensor_map {
    uint64_t opaque[16];
} __attribute__((aligned(64))) fq_cuda_tensor_map;

typedef enum fq_cuda_element { FQ_CUDA_U8, FQ_CUDA_BF16, FQ_CUDA_F32 } fq_cuda_element;

// A row-major matrix in device memory, and the box of it that one copy moves.
typedef struct fq_cuda_matrix {
    const void *first; // at a multiple of 16 bytes
    fq_cuda_element type;
    uint64_t rows, cols, stride; // elements; stride in bytes is a multiple of 16
    uint32_t box_rows, box_cols; // at most 256 each
    uint32_t swizzle_bytes;      // of the box in shared memory: 128, 64 or 0
} fq_cuda_matrix;

// FQ_DEVICE if the driver is too old or refuses the matrix.
fq_status fq_cuda_tensor_map_make(fq_cuda_tensor_map *out, const fq_cuda_matrix *matrix,
                                  fq_error *err);

#ifdef __cplusplus
}
#endif

#endif
