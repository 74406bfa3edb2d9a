// Which kernel, tile and cluster a product gets on Hopper: plain arithmetic on its shape.
#ifndef FQ_CUDA_GEMM_CONFIG_H
#define FQ_CUDA_GEMM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fq_cuda_gemm_kernel {
    FQ_CUDA_GEMM_TILES, // blocks stay and walk over the tiles of D: for many rows of A
    FQ_CUDA_GEMM_ROWS,  // a cluster shares the K of one tile: for few rows, where B is read once
} fq_cuda_gemm_kernel;

// What blocks of a cluster load once for two of them: tiles side by side along N share A, along M
// B.
typedef enum fq_cuda_gemm_share {
    FQ_CUDA_GEMM_SHARE_NONE = 0,                                           // no cluster
    FQ_CUDA_GEMM_SHARE_A = 1,                                              // pairs
    FQ_CUDA_GEMM_SHARE_B = 2,                                              // pairs
    FQ_CUDA_GEMM_SHARE_BOTH = FQ_CUDA_GEMM_SHARE_A | FQ_CUDA_GEMM_SHARE_B, // four, 2×2 tiles
} fq_cuda_gemm_share;

// The instances that are compiled. Tiles: X(rows of a tile / 128, columns, share).
#define FQ_CUDA_GEMM_TILES_INSTANCES(X)                                                            \
    X(2, 128, FQ_CUDA_GEMM_SHARE_NONE)                                                             \
    X(2, 128, FQ_CUDA_GEMM_SHARE_A)                                                                \
    X(2, 128, FQ_CUDA_GEMM_SHARE_B)                                                                \
    X(2, 128, FQ_CUDA_GEMM_SHARE_BOTH)                                                             \
    X(1, 192, FQ_CUDA_GEMM_SHARE_NONE)                                                             \
    X(1, 192, FQ_CUDA_GEMM_SHARE_A)                                                                \
    X(1, 192, FQ_CUDA_GEMM_SHARE_B)                                                                \
    X(1, 192, FQ_CUDA_GEMM_SHARE_BOTH)                                                             \
    X(1, 160, FQ_CUDA_GEMM_SHARE_NONE)                                                             \
    X(1, 160, FQ_CUDA_GEMM_SHARE_B)                                                                \
    X(1, 128, FQ_CUDA_GEMM_SHARE_NONE)                                                             \
    X(1, 128, FQ_CUDA_GEMM_SHARE_A)                                                                \
    X(1, 128, FQ_CUDA_GEMM_SHARE_B)                                                                \
    X(1, 96, FQ_CUDA_GEMM_SHARE_NONE)                                                              \
    X(1, 96, FQ_CUDA_GEMM_SHARE_A)                                                                 \
    X(1, 96, FQ_CUDA_GEMM_SHARE_B)                                                                 \
    X(1, 64, FQ_CUDA_GEMM_SHARE_NONE)                                                              \
    X(1, 64, FQ_CUDA_GEMM_SHARE_A)                                                                 \
    X(1, 64, FQ_CUDA_GEMM_SHARE_B)                                                                 \
    X(1, 64, FQ_CUDA_GEMM_SHARE_BOTH)

// The same with FP32 output, which is for checking more than for speed.
#define FQ_CUDA_GEMM_TILES_F32_INSTANCES(X) X(1, 128, FQ_CUDA_GEMM_SHARE_NONE)

// Rows: X(rows of a tile, columns, blocks of a multiprocessor).
#define FQ_CUDA_GEMM_ROWS_INSTANCES(X)                                                             \
    X(8, 64, 2)                                                                                    \
    X(8, 128, 2)                                                                                   \
    X(16, 64, 2)                                                                                   \
    X(16, 128, 2)                                                                                  \
    X(32, 64, 2)                                                                                   \
    X(32, 128, 2)                                                                                  \
    X(64, 64, 1)                                                                                   \
    X(64, 128, 1)

enum { FQ_CUDA_GEMM_MAX_SPLIT = 8 }; // blocks of a cluster that every Hopper GPU takes

typedef struct fq_cuda_gemm_choice {
    fq_cuda_gemm_kernel kernel;
    uint32_t tile_m, tile_n;  // of D
    fq_cuda_gemm_share share; // tiles: what clusters share
    uint32_t raster;          // tiles: so many units of M are walked together, for L2
    uint32_t split;           // rows: blocks of a cluster, each with its part of K; 1, 2, 4 or 8
} fq_cuda_gemm_choice;

typedef struct fq_cuda_gemm_shape {
    uint64_t m; // rows of A that take part, or an estimate
    uint64_t n, k;
    uint32_t n_groups; // 1: dense
    uint32_t n_sms;    // multiprocessors of the device
    bool d_is_f32;
} fq_cuda_gemm_shape;

// Always one of the instances. m, n and k are at least 1.
fq_cuda_gemm_choice fq_cuda_gemm_sm90_choose(const fq_cuda_gemm_shape *shape);

#ifdef __cplusplus
}
#endif

#endif
