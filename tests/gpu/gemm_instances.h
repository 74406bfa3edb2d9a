// The instances of the Hopper kernels by number, for tests and benchmarks that try all of them.
#ifndef FQ_TESTS_GEMM_INSTANCES_H
#define FQ_TESTS_GEMM_INSTANCES_H

#include "kernels/cuda/gemm/gemm_config.h"

#include <stddef.h>

// The i-th, with defaults for raster, and splits 1, 2 and 8 of the rows kernel as instances of
// their own. False past the last.
static inline bool gemm_instance(fq_cuda_gemm_choice *out, uint32_t i) {
#define TILES_ROW(waves, n, share) {FQ_CUDA_GEMM_TILES, (waves)*128, n, share, 8, 1},
#define ROWS_ROW(m, n, per_sm)                                                                     \
    {FQ_CUDA_GEMM_ROWS, m, n, FQ_CUDA_GEMM_SHARE_NONE, 8, 1},                                      \
        {FQ_CUDA_GEMM_ROWS, m, n, FQ_CUDA_GEMM_SHARE_NONE, 8, 2},                                  \
        {FQ_CUDA_GEMM_ROWS, m, n, FQ_CUDA_GEMM_SHARE_NONE, 8, 8},
    static const fq_cuda_gemm_choice all[] = {FQ_CUDA_GEMM_TILES_INSTANCES(TILES_ROW)
                                                  FQ_CUDA_GEMM_ROWS_INSTANCES(ROWS_ROW)};
#undef TILES_ROW
#undef ROWS_ROW
    if (i >= sizeof all / sizeof *all)
        return false;
    *out = all[i];
    return true;
}

// Whether an instance has FP32 output too.
static inline bool gemm_instance_has_f32(const fq_cuda_gemm_choice *choice) {
#define IS_CHOICE(waves, n, how)                                                                   \
    if (choice->tile_m == (waves)*128 && choice->tile_n == (n) && choice->share == (how))          \
        return true;
    if (choice->kernel == FQ_CUDA_GEMM_ROWS)
        return true;
    FQ_CUDA_GEMM_TILES_F32_INSTANCES(IS_CHOICE)
#undef IS_CHOICE
    return false;
}

#endif
