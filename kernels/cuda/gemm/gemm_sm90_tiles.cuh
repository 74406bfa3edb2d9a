// How the Hopper kernel for many rows divides its work: tiles, stages, threads and registers.
#ifndef FQ_CUDA_GEMM_SM90_TILES_CUH
#define FQ_CUDA_GEMM_SM90_TILES_CUH

#include "kernels/cuda/gemm/gemm_config.h"
#include "kernels/cuda/gemm/gemm_device.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "kernels/cuda/ptx.cuh"

namespace tiles {

using namespace gemm;

constexpr uint32_t GROUP = 128; // threads of a warpgroup
constexpr uint32_t N_CONSUMERS = 2, THREADS = (N_CONSUMERS + 1) * GROUP;
constexpr uint32_t LOAD_WARP = N_CONSUMERS * GROUP / 32, SCALE_WARP = LOAD_WARP + 1;
constexpr uint32_t WAVE_M = 64;                    // rows of a WGMMA, that is of a warpgroup's wave
constexpr uint32_t WAVES_M = N_CONSUMERS * WAVE_M; // rows of a wave of both
// 65536 registers a multiprocessor: 384 threads start with 168; 56·128 + 224·256 = 64512.
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;
// TMA loads rows' scales from a multiple of 16 bytes on: up to 3 before the first row, hence 4
// more. In shared memory a wave's begin at multiples of 128 bytes.
constexpr uint32_t A_SCALES_LOADED = WAVES_M + 4, A_SCALES = WAVES_M + 32;
constexpr uint32_t NARROW_N = 64;         // columns of a tile at the edge that take half the time
constexpr uint32_t SHARED_BYTES = 232448; // that a block can have
// Named barriers: 1 and 2, one a consumer warpgroup, and one of all.
enum { BARRIER_OF_CONSUMER = 1, BARRIER_OF_BLOCK = 3 };

// A tile of D and how it is worked on. WAVES: rows per warpgroup in 64s.
template <int WAVES_, int TILE_N_, fq_cuda_gemm_share SHARE_, bool F32_> struct shape {
    static constexpr int WAVES = WAVES_, TILE_N = TILE_N_;
    static constexpr fq_cuda_gemm_share SHARE = SHARE_;
    static constexpr bool F32 = F32_; // of D
    static constexpr uint32_t TILE_M = WAVES_M * WAVES;
    static constexpr bool SHARE_A = (SHARE & FQ_CUDA_GEMM_SHARE_A) != 0;
    static constexpr bool SHARE_B = (SHARE & FQ_CUDA_GEMM_SHARE_B) != 0;
    // A cluster's tiles lie side by side, CLUSTER_M×CLUSTER_N, numbered along N first.
    static constexpr uint32_t CLUSTER_M = SHARE_B ? 2 : 1, CLUSTER_N = SHARE_A ? 2 : 1;
    static constexpr uint32_t CLUSTER = CLUSTER_M * CLUSTER_N;
    static constexpr uint32_t UNIT_M = CLUSTER_M * TILE_M, UNIT_N = CLUSTER_N * TILE_N;
    // What a block loads of the tile's columns, and of a wave's rows: half if two share them. Of
    // two waves it loads one whole.
    static constexpr bool WAVE_EACH = SHARE_A && WAVES == 2;
    static constexpr uint32_t LOAD_M = WAVE_EACH ? WAVES_M : WAVES_M / CLUSTER_N;
    static constexpr uint32_t LOAD_N = TILE_N / CLUSTER_M;
    // Blocks that load into one block's stages, itself included.
    static constexpr uint32_t N_LOADERS = 1 + SHARE_A + SHARE_B;
    static constexpr uint32_t WAVE_BYTES = WAVES_M * BLOCK + A_SCALES_LOADED * sizeof(float);
    static constexpr uint32_t STAGE_BYTES = WAVES * WAVE_BYTES + TILE_N * BLOCK;
    static constexpr uint32_t N_SUMS = TILE_N / 2;                 // of a thread, for a wave
    static constexpr int N_B_SCALES = BLOCK % TILE_N == 0 ? 1 : 2; // 128s of N that a tile meets
    // Columns that one TMA store takes: rows of 128 or 64 bytes, swizzled alike.
    static constexpr uint32_t PANEL = TILE_N % 64 == 0 ? 64 : 32;
    // A tile whose columns are few is multiplied with half of the columns.
    static constexpr bool HAS_NARROW = TILE_N == 2 * NARROW_N;
    // Half of a tile's rows take clearly less time than the tile. But half of 128 rows load all
    // that the tile loads, which takes as long where columns are few.
    static constexpr bool HAS_HALVES = TILE_N >= BLOCK;
    // Multiprocessors side by side ask L2 once for what both load at one time: the wider operand.
    static constexpr bool PAIRS_SHARE_A = TILE_M > TILE_N && !SHARE_A;
    // Whether the warpgroup that loads gives registers to those that multiply, which takes a
    // moment.
    static constexpr bool MOVES_REGISTERS = WAVES * TILE_N > 64;
    // A thread has registers for the products of two blocks of K.
    static constexpr bool HAS_TWO_PARTS = WAVES == 1 && TILE_N <= 128;
    // As many stages as shared memory holds beside D's tile and the barriers.
    static constexpr uint32_t D_BYTES = F32 ? 0 : TILE_M * TILE_N * sizeof(__nv_bfloat16);
    static constexpr int N_STAGES = (SHARED_BYTES - D_BYTES - 2048) / (STAGE_BYTES + WAVES * 128);
    static_assert(N_STAGES >= 3, "one stage in use, one on its way, one between the two");
};

// A tile of D, or the upper or lower half of one. A cluster's second tile may lie outside D or its
// group: it then has no rows to store, but is loaded, since each block loads for both.
struct alignas(16) job {
    uint32_t begin, end; // rows to store
    uint32_t a_begin;    // first row of A
    uint32_t n0, group;
    uint32_t n_waves; // to load
    bool is_last;     // there is none any more: nothing else is set
};

enum { N_JOBS = 4 }; // that the loading warp may have told and the others not yet done

template <class S> struct alignas(1024) storage {
    uint8_t a[S::N_STAGES][S::TILE_M * BLOCK];
    uint8_t b[S::N_STAGES][S::TILE_N * BLOCK];
    __nv_bfloat16 d[S::WAVES * N_CONSUMERS][S::F32 ? 0 : WAVE_M * S::TILE_N];
    alignas(128) float a_scales[S::N_STAGES][S::WAVES][A_SCALES];
    float b_scales[S::N_STAGES][S::N_B_SCALES];
    uint64_t full[S::N_STAGES], empty[S::N_STAGES];
    job jobs[N_JOBS];
    uint64_t told[N_JOBS], done[N_JOBS];
};

// What comes first is needed before the first load, and lies in few lines of the constants' cache.
struct arguments {
    uint32_t n_k_blocks, n_n_blocks; // 128s of K and N
    uint32_t raster;
    bool store_by_tma;
    uint64_t b_policy; // how long L2 keeps B
    fq_cuda_gemm gemm;
    b_scale_layout b_scales;
    fq_cuda_tensor_map a, b, a_scales, d;
};

// The sums of one thread: for each wave, as ptx::wgmma lays them out.
template <class S> using sums = float[S::WAVES][S::N_SUMS];

// This thread's place in the block's consumers. Found anew outside the loop over K, so that what is
// derived from it takes no registers there.
struct consumer {
    uint32_t group, warp, lane; // warpgroup; warp in it; lane
    static __device__ __forceinline__ consumer of_thread() {
        // The shuffle tells the compiler that the number is the same in all lanes.
        const uint32_t warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0);
        return {warp / 4, warp % 4, ptx::lane_id()};
    }
    __device__ __forceinline__ uint32_t wave_row(int wave) const {
        return (wave * N_CONSUMERS + group) * WAVE_M;
    }
};

// A block's place in its cluster. Read anew where it is asked for, like a consumer's.
template <class S> struct member {
    uint32_t m, n;
    static __device__ __forceinline__ member of_block() {
        if (S::CLUSTER == 1)
            return {0, 0};
        const uint32_t rank = ptx::cluster_rank();
        return {rank / S::CLUSTER_N, rank % S::CLUSTER_N};
    }
    static __device__ __forceinline__ uint32_t rank_of(uint32_t m, uint32_t n) {
        return m * S::CLUSTER_N + n;
    }
    // The ranks that have the same rows, and those that have the same columns, as bits.
    __device__ __forceinline__ uint16_t same_m() const {
        return (uint16_t)(1 << rank_of(m, 0) | 1 << rank_of(m, S::CLUSTER_N - 1));
    }
    __device__ __forceinline__ uint16_t same_n() const {
        return (uint16_t)(1 << rank_of(0, n) | 1 << rank_of(S::CLUSTER_M - 1, n));
    }
};

} // namespace tiles

#endif
