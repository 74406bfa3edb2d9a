// How the Hopper kernel for many rows stores a tile of D: BF16 through shared memory and TMA, FP32
// from the registers.
#ifndef FQ_CUDA_GEMM_SM90_STORE_CUH
#define FQ_CUDA_GEMM_SM90_STORE_CUH

#include "kernels/cuda/gemm/gemm_sm90_tiles.cuh"

namespace tiles {

// The 16 bytes of columns 8·chunk .. + 7 of a row of a wave, in its swizzled panels: TMA's pattern
// XORs the chunk with the row, in units of 128 bytes.
template <class S> __device__ __forceinline__ uint32_t staged_offset(uint32_t row, uint32_t chunk) {
    constexpr uint32_t chunks = S::PANEL / 8;
    const uint32_t panel = chunk / chunks, in_panel = chunk % chunks;
    const uint32_t turn = S::PANEL == 64 ? row % 8 : row / 2 % 4;
    return (panel * WAVE_M + row) * S::PANEL * 2 + (in_panel ^ turn) * 16;
}

static __device__ __forceinline__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

// A wave's sums as BF16 into its panels. The chunk's number takes part in the address by XOR alone,
// so that one register holds the address for all chunks.
template <class S>
__device__ __forceinline__ void stage_wave(const float (&sum)[S::N_SUMS], uint32_t shared,
                                           const consumer &me) {
    constexpr int chunks = S::PANEL / 8;
    const uint32_t first = shared + staged_offset<S>(me.warp * 16 + me.lane % 16, me.lane / 16);
#pragma unroll
    for (int j = 0; j < S::TILE_N / 8; j += 2) // 16 columns: four 8×8 matrices
        ptx::store_matrices((first ^ j % chunks * 16) + j / chunks * chunks * WAVE_M * 16,
                            pack(sum[4 * j], sum[4 * j + 1]), pack(sum[4 * j + 2], sum[4 * j + 3]),
                            pack(sum[4 * j + 4], sum[4 * j + 5]),
                            pack(sum[4 * j + 6], sum[4 * j + 7]));
}

// Copies the rows of a wave that are in D from its panels.
template <class S>
__device__ __forceinline__ void copy_wave(const fq_cuda_gemm &g, const uint8_t *panels,
                                          uint64_t row0, uint32_t n_rows, uint64_t n0) {
    constexpr uint32_t chunks = S::TILE_N / 8;
    __nv_bfloat16 *d = (__nv_bfloat16 *)g.d;
    const bool aligned = (uintptr_t)d % 16 == 0 && g.d_stride % 8 == 0;
    for (uint32_t i = threadIdx.x % GROUP; i < n_rows * chunks; i += GROUP) {
        const uint32_t row = i / chunks, chunk = i % chunks;
        const uint64_t col = n0 + chunk * 8;
        if (col >= g.n)
            continue;
        const uint4 values = *(const uint4 *)(panels + staged_offset<S>(row, chunk));
        __nv_bfloat16 *to = d + (row0 + row) * g.d_stride + col;
        if (aligned && col + 8 <= g.n) {
            *(uint4 *)to = values;
            continue;
        }
        const uint32_t words[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            if (col + e < g.n)
                to[e] = __ushort_as_bfloat16((uint16_t)(words[e / 2] >> e % 2 * 16));
    }
}

// A warpgroup's part of a tile as BF16 into shared memory, once TMA has read the one before.
template <class S> __device__ __forceinline__ void stage(storage<S> &s, const sums<S> &sum) {
    const consumer me = consumer::of_thread();
    if (threadIdx.x % GROUP == 0)
        ptx::tma_store_wait_read();
    ptx::barrier_sync(BARRIER_OF_CONSUMER + me.group, GROUP);
#pragma unroll
    for (int wave = 0; wave < S::WAVES; wave++)
        stage_wave<S>(sum[wave], ptx::shared_address(s.d[wave * N_CONSUMERS + me.group]), me);
}

// From there into D.
template <class S>
__device__ __forceinline__ void store_staged(const arguments &args, storage<S> &s, const job &j) {
    const consumer me = consumer::of_thread();
    const bool first_thread = threadIdx.x % GROUP == 0;
    ptx::fence_shared_for_tma();
    ptx::barrier_sync(BARRIER_OF_CONSUMER + me.group, GROUP);
#pragma unroll
    for (int wave = 0; wave < S::WAVES; wave++) {
        const uint32_t row = j.begin + me.wave_row(wave);
        if (row >= j.end)
            continue;
        const uint32_t n_rows = min(j.end - row, WAVE_M);
        const __nv_bfloat16 *panels = s.d[wave * N_CONSUMERS + me.group];
        // TMA cuts a tile at the end of D, but not where the next group's rows begin.
        const bool whole = n_rows == WAVE_M || args.gemm.grouping == FQ_CUDA_GEMM_DENSE;
        if (!args.store_by_tma || !whole) {
            copy_wave<S>(args.gemm, (const uint8_t *)panels, row, n_rows, j.n0);
        } else if (first_thread) {
#pragma unroll
            for (uint32_t col = 0; col < S::TILE_N; col += S::PANEL)
                ptx::tma_store(&args.d, ptx::shared_address(panels + WAVE_M * col),
                               (int32_t)(j.n0 + col), (int32_t)row);
        }
    }
    if (first_thread)
        ptx::tma_store_commit();
}

// FP32 goes straight from the registers: the four lanes of a row write a sector of 32 bytes.
template <class S>
__device__ __forceinline__ void store_f32(const fq_cuda_gemm &g, const job &j, const sums<S> &sum) {
    const consumer me = consumer::of_thread();
    const bool aligned = (uintptr_t)g.d % 8 == 0 && g.d_stride % 2 == 0;
#pragma unroll
    for (int wave = 0; wave < S::WAVES; wave++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row =
                j.begin + me.wave_row(wave) + me.warp * 16 + me.lane / 4 + 8 * half;
            const uint32_t first = j.n0 + me.lane % 4 * 2;
            float *to = (float *)g.d + row * g.d_stride + first;
#pragma unroll
            for (uint32_t c = 0; c < S::TILE_N; c += 8, to += 8) {
                const float left = sum[wave][c / 2 + 2 * half],
                            right = sum[wave][c / 2 + 2 * half + 1];
                const uint32_t n_left =
                    row < j.end && first + c < g.n ? (uint32_t)g.n - first - c : 0;
                if (aligned && n_left >= 2) {
                    *(float2 *)to = make_float2(left, right);
                } else {
                    if (n_left >= 1)
                        to[0] = left;
                    if (n_left >= 2)
                        to[1] = right;
                }
            }
        }
}

} // namespace tiles

#endif
