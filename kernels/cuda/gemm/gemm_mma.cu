// The GEMM for every GPU with FP8 tensor cores (compute capability 8.9 and later): mma.sync, fed by
// cp.async through two stages of shared memory.
#include "kernels/cuda/gemm/gemm_device.cuh"
#include "kernels/cuda/gemm/gemm_launch.h"
#include "kernels/cuda/ptx.cuh"

#include <cuda_runtime_api.h>

namespace {

using namespace gemm;

constexpr uint32_t TILE = 128; // of D, in both directions
constexpr uint32_t N_WARPS = 8, THREADS = 32 * N_WARPS;
constexpr uint32_t WARP_M = 64, WARP_N = 32; // warps lie 2×4 in the tile
constexpr uint32_t M_STEPS = WARP_M / 16, N_STEPS = WARP_N / 8;
constexpr uint32_t CHUNK = 16; // bytes of a cp.async
constexpr uint32_t N_STAGES = 3;

struct stage {
    uint8_t a[TILE * BLOCK], b[TILE * BLOCK];
};

struct storage {
    stage stages[N_STAGES];
};

// Where a tile's 16-byte chunk lies: XOR with the row spreads a column of chunks over all banks.
__device__ __forceinline__ uint32_t chunk_offset(uint32_t row, uint32_t chunk) {
    return row * BLOCK + (chunk ^ row % 8) * CHUNK;
}

// A matrix whose 128×128 tiles are loaded; rows from n_rows on and columns from k on read as zero.
struct operand {
    const uint8_t *first; // row 0
    uint64_t stride, n_rows, k;
    bool aligned; // every row begins at a multiple of 16 bytes

    __device__ __forceinline__ void load_chunk(uint8_t *to, uint64_t row, uint64_t col) const {
        const uint64_t left = row < n_rows && col < k ? min((uint64_t)CHUNK, k - col) : 0;
        const uint8_t *from = first + (left == 0 ? 0 : row * stride + col);
        if (aligned)
            return ptx::copy_async_16(ptx::shared_address(to), from, (uint32_t)left);
        for (uint32_t i = 0; i < CHUNK; i++)
            to[i] = i < left ? from[i] : 0;
    }

    __device__ __forceinline__ void load_tile(uint8_t *tile, uint64_t k0) const {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < TILE * BLOCK / CHUNK; i += THREADS) {
            const uint32_t row = i / (BLOCK / CHUNK), chunk = i % (BLOCK / CHUNK);
            load_chunk(tile + chunk_offset(row, chunk), row, k0 + chunk * CHUNK);
        }
    }
};

// A warp's part of the tile of D, as mma.sync lays it out: lane l holds columns 2·(l%4) + {0, 1} of
// rows l/4 (elements 0, 1) and l/4 + 8 (2, 3) of each 16×8.
typedef float warp_tile[M_STEPS][N_STEPS][4];

// part = the products of one 128 of K.
__device__ __forceinline__ void multiply_stage(warp_tile &part, const stage &s, uint32_t warp_m,
                                               uint32_t warp_n) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t a = ptx::shared_address(s.a), b = ptx::shared_address(s.b);
#pragma unroll 1 // or the addresses of all steps are kept, and registers run out
    for (uint32_t step = 0; step < BLOCK / 32; step++) {
        uint32_t b_codes[N_STEPS / 2][4];
#pragma unroll
        for (uint32_t j = 0; j < N_STEPS / 2; j++) // two steps of N, 32 bytes each
            ptx::load_matrices(b_codes[j],
                               b + chunk_offset(warp_n + 16 * j + lane / 16 * 8 + lane % 8,
                                                2 * step + lane / 8 % 2));
#pragma unroll
        for (uint32_t i = 0; i < M_STEPS; i++) {
            uint32_t a_codes[4]; // rows 0..7 and 8..15 of bytes 0..15, then of 16..31
            ptx::load_matrices(a_codes,
                               a + chunk_offset(warp_m + 16 * i + lane % 16, 2 * step + lane / 16));
#pragma unroll
            for (uint32_t j = 0; j < N_STEPS; j++)
                ptx::mma_e4m3(part[i][j], a_codes, b_codes[j / 2][j % 2 * 2],
                              b_codes[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// sum += scales · part, and part = 0.
__device__ __forceinline__ void promote(warp_tile &sum, warp_tile &part, const float *a_scales,
                                        uint32_t first_row, uint32_t n_rows, float b_scale) {
#pragma unroll
    for (uint32_t i = 0; i < M_STEPS; i++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t row = first_row + 16 * i + 8 * half;
            const float scale = row < n_rows ? __ldg(a_scales + row) * b_scale : 0.0f;
#pragma unroll
            for (uint32_t j = 0; j < N_STEPS; j++)
#pragma unroll
                for (uint32_t e = 2 * half; e < 2 * half + 2; e++) {
                    sum[i][j][e] = fmaf(scale, part[i][j][e], sum[i][j][e]);
                    part[i][j][e] = 0.0f;
                }
        }
}

__device__ __forceinline__ void store(const fq_cuda_gemm &g, const row_range &rows, uint64_t n0,
                                      const warp_tile &sum, uint32_t warp_m, uint32_t warp_n) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < M_STEPS; i++)
#pragma unroll
        for (uint32_t j = 0; j < N_STEPS; j++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                const uint64_t row = rows.begin + warp_m + 16 * i + lane / 4 + e / 2 * 8;
                const uint64_t col = n0 + warp_n + 8 * j + lane % 4 * 2 + e % 2;
                if (row < rows.end && col < g.n)
                    store_element(g, row, col, sum[i][j][e]);
            }
}

__global__ void __launch_bounds__(THREADS)
    multiply(const __grid_constant__ fq_cuda_gemm g, uint64_t n_tiles_n, bool aligned) {
    extern __shared__ __align__(128) uint8_t shared[];
    storage &s = *(storage *)shared;
    row_range rows;
    if (!find_row_tile(&rows, g, blockIdx.x / n_tiles_n, TILE))
        return;
    const uint64_t n0 = blockIdx.x % n_tiles_n * TILE;
    const uint64_t a_row0 = a_row_of(g, rows.group, rows.begin);
    const operand a = {g.a + a_row0 * g.a_stride, g.a_stride, rows.end - rows.begin, g.k, aligned};
    const operand b = {g.b + (rows.group * g.n + n0) * g.b_stride, g.b_stride, g.n - n0, g.k,
                       aligned};
    const b_scale_layout layout = b_scale_layout::of(g);
    const b_scale_row b_scales = b_scale_row::of(layout, rows.group, (uint32_t)(n0 / BLOCK));
    const uint32_t warp = threadIdx.x / 32, n_k_blocks = (uint32_t)ceil_div(g.k, BLOCK);
    const uint32_t warp_m = warp / 4 * WARP_M, warp_n = warp % 4 * WARP_N;

    const auto load = [&](uint32_t k_block) {
        if (k_block < n_k_blocks) {
            stage &to = s.stages[k_block % N_STAGES];
            a.load_tile(to.a, (uint64_t)k_block * BLOCK);
            b.load_tile(to.b, (uint64_t)k_block * BLOCK);
        }
        ptx::copy_async_commit(); // empty at the end, so that the count of groups stays right
    };
    for (uint32_t k_block = 0; k_block < N_STAGES - 1; k_block++)
        load(k_block);
    warp_tile sum = {}, part = {};
    for (uint32_t k_block = 0; k_block < n_k_blocks; k_block++) {
        ptx::copy_async_wait<N_STAGES - 2>();
        __syncthreads(); // the stage is there for all, and the one before is free
        load(k_block + N_STAGES - 1);
        multiply_stage(part, s.stages[k_block % N_STAGES], warp_m, warp_n);
        promote(sum, part, g.a_scales + k_block * g.a_scales_stride + a_row0,
                warp_m + threadIdx.x % 32 / 4, (uint32_t)(rows.end - rows.begin),
                b_scales.at(layout, k_block));
    }
    store(g, rows, n0, sum, warp_m, warp_n);
}

bool is_aligned(const uint8_t *first, uint64_t stride) {
    return (uintptr_t)first % CHUNK == 0 && stride % CHUNK == 0;
}

} // namespace

fq_status fq_cuda_gemm_mma_launch(const fq_cuda_gemm *gemm, cudaStream_t stream, fq_error *err) {
    const uint64_t n_tiles_n = ceil_div(gemm->n, TILE);
    const uint64_t n_blocks = max_row_tiles(gemm, TILE) * n_tiles_n;
    if (n_blocks > INT32_MAX)
        return fq_fail(err, FQ_USAGE, "gemm_mma: D has more than 2^31 tiles of 128×128");
    const bool aligned = is_aligned(gemm->a, gemm->a_stride) && is_aligned(gemm->b, gemm->b_stride);
    void *arguments[] = {(void *)gemm, (void *)&n_tiles_n, (void *)&aligned};
    const void *kernel = (const void *)multiply;
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(storage));
    if (status == cudaSuccess)
        status = cudaLaunchKernel(kernel, dim3((uint32_t)n_blocks), dim3(THREADS), arguments,
                                  sizeof(storage), stream);
    if (status != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "gemm_mma: %s", cudaGetErrorString(status));
    return FQ_OK;
}
