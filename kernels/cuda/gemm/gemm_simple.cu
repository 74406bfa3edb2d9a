// The plainest GEMM: one thread an element of D, tiles in shared memory. The reference to read.
#include "kernels/cuda/gemm/gemm_device.cuh"
#include "kernels/cuda/gemm/gemm_launch.h"
#include "kernels/cuda/start.cuh"

#include <cuda_fp8.h>

namespace {

using namespace gemm;

constexpr uint32_t SIDE = 16; // of a block's tile of D

struct storage {
    float a[SIDE][BLOCK + 1], b[SIDE][BLOCK + 1]; // one more: rows begin in different banks
};

__device__ float value_of_code(uint8_t code) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

// A 16×128 tile from (row, k0); beyond rows and k it is zero.
__device__ void load_tile(float (&tile)[SIDE][BLOCK + 1], const uint8_t *matrix, uint64_t stride,
                          uint64_t row, uint64_t rows, uint64_t k0, uint64_t k) {
    for (uint32_t i = threadIdx.x; i < SIDE * BLOCK; i += SIDE * SIDE) {
        const uint32_t r = i / BLOCK, c = i % BLOCK;
        const bool inside = row + r < rows && k0 + c < k;
        tile[r][c] = inside ? value_of_code(matrix[(row + r) * stride + k0 + c]) : 0.0f;
    }
}

__global__ void __launch_bounds__(SIDE *SIDE) multiply(const fq_cuda_gemm g, uint64_t n_tiles_n) {
    __shared__ storage tiles;
    row_range rows;
    if (!find_row_tile(&rows, g, blockIdx.x / n_tiles_n, SIDE))
        return;
    const uint32_t r = threadIdx.x / SIDE, c = threadIdx.x % SIDE;
    const uint64_t n0 = blockIdx.x % n_tiles_n * SIDE, row = rows.begin + r, col = n0 + c;
    const uint64_t a_row0 = a_row_of(g, rows.group, rows.begin), n_rows = rows.end - rows.begin;
    const uint8_t *b = g.b + rows.group * g.n * g.b_stride;
    const b_scale_layout layout = b_scale_layout::of(g);
    const b_scale_row b_scales = b_scale_row::of(layout, rows.group, (uint32_t)(n0 / BLOCK));
    float sum = 0.0f;
    for (uint64_t k0 = 0; k0 < g.k; k0 += BLOCK) {
        load_tile(tiles.a, g.a, g.a_stride, a_row0, a_row0 + n_rows, k0, g.k);
        load_tile(tiles.b, b, g.b_stride, n0, g.n, k0, g.k);
        __syncthreads();
        float part = 0.0f;
        for (uint32_t i = 0; i < BLOCK; i++)
            part = fmaf(tiles.a[r][i], tiles.b[c][i], part);
        const uint64_t k_block = k0 / BLOCK;
        if (row < rows.end)
            sum = fmaf(g.a_scales[k_block * g.a_scales_stride + a_row0 + r] *
                           b_scales.at(layout, (uint32_t)k_block),
                       part, sum);
        __syncthreads();
    }
    if (row < rows.end && col < g.n)
        store_element(g, row, col, sum);
}

} // namespace

fq_status fq_cuda_gemm_simple_launch(const fq_cuda_gemm *gemm, cudaStream_t stream, fq_error *err) {
    const uint64_t n_tiles_n = ceil_div(gemm->n, SIDE);
    const uint64_t n_blocks = max_row_tiles(gemm, SIDE) * n_tiles_n;
    if (n_blocks > INT32_MAX)
        return fq_fail(err, FQ_USAGE, "gemm_simple: D has more than 2^31 tiles of 16×16");
    const unsigned status =
        start(multiply, dim3((uint32_t)n_blocks), SIDE * SIDE, stream, *gemm, n_tiles_n);
    if (status != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "gemm_simple: %s", cudaGetErrorString((cudaError_t)status));
    return FQ_OK;
}
