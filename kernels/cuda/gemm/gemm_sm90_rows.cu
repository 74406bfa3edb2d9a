// The Hopper kernel for few rows of A. What it costs is reading B once, so a tile is 64 or 128 rows
// of B by all rows of A that fit (B's rows take the place of WGMMA's M), and the blocks of a
// cluster share a tile's K, so that every multiprocessor reads. In a block two warpgroups share the
// rows of B, or take turns along K. All parts are added up in shared memory, always in the same
// order: the result does not depend on timing.
#include "kernels/cuda/gemm/gemm_config.h"
#include "kernels/cuda/gemm/gemm_device.cuh"
#include "kernels/cuda/gemm/gemm_launch.h"
#include "kernels/cuda/gemm/gemm_sm90_launch.cuh"
#include "kernels/cuda/ptx.cuh"

#include <cuda_runtime.h>

namespace {

using namespace gemm;

constexpr uint32_t N_CONSUMERS = 2, GROUP = 128; // warpgroups that multiply; threads of one
constexpr uint32_t CONSUMER_THREADS = N_CONSUMERS * GROUP;
constexpr uint32_t THREADS = CONSUMER_THREADS + GROUP; // and one that loads
constexpr int PIECE_N = 64;                            // rows of B that a WGMMA multiplies
constexpr uint32_t SHARED_BYTES = 233472;              // of a multiprocessor, 228 KB
constexpr uint32_t MAX_GRID_Y = 65535;                 // blocks along y, and along z
// One warp loads by TMA, and another brings B's scales: memory answers it as late as TMA, which
// must not wait for it.
constexpr uint32_t LOAD_WARP = CONSUMER_THREADS / 32, SCALE_WARP = LOAD_WARP + 1;
enum { BARRIER_OF_CONSUMERS = 1, BARRIER_OF_BLOCK };

// Of a power of two.
static constexpr __host__ __device__ uint32_t log2_of(uint32_t n) {
    return n == 1 ? 0 : 1 + log2_of(n / 2);
}

// Eight neighbouring sums of a row of the tile.
struct alignas(16) piece {
    float4 low, high;
};

// A tile of D: TILE_M rows of A, TILE_N of B. Of 128 rows of B each warpgroup multiplies 64; of 64,
// every second 128 of K. PER_SM: blocks of a multiprocessor, whose shared memory they divide. A
// stage is a 128 of K.
template <int TILE_M_, int TILE_N_, int PER_SM_> struct shape {
    static constexpr int TILE_M = TILE_M_, TILE_N = TILE_N_, PER_SM = PER_SM_;
    static constexpr bool SHARES_N = TILE_N == 2 * PIECE_N;
    static_assert(SHARES_N || TILE_N == PIECE_N, "two warpgroups");
    static constexpr uint32_t N_PARTS = SHARES_N ? 1 : N_CONSUMERS; // of a tile, in a block
    static constexpr uint32_t STEP = N_PARTS; // from one of a warpgroup's stages to the next
    static constexpr uint32_t N_READERS = N_CONSUMERS / STEP; // warpgroups that use a stage
    static constexpr int N_SUMS = TILE_M / 2;                 // of a thread
    static constexpr uint32_t N_PIECES = TILE_M * TILE_N / 8; // of eight columns
    // TMA loads rows' scales from a multiple of 16 bytes on: up to 3 before the first row, hence 4
    // more. In shared memory a stage's begin at a multiple of 128 bytes.
    static constexpr uint32_t A_SCALES_LOADED = TILE_M + 4, A_SCALES = (TILE_M + 4 + 31) / 32 * 32;
    static constexpr uint32_t STAGE_BYTES =
        (TILE_N + TILE_M) * BLOCK + A_SCALES_LOADED * sizeof(float);
    static constexpr uint32_t RECEIVED_BYTES = N_PIECES * sizeof(piece);
    // What shared memory holds beside the barriers and what other blocks send; the multiprocessor
    // keeps 1 KB a block. Those of a warpgroup are always the same: else it could take a stage that
    // is not yet filled for one that is filled anew, since a barrier tells only one phase from the
    // next.
    static constexpr int N_STAGES =
        (SHARED_BYTES / PER_SM - 2048 - RECEIVED_BYTES) / (STAGE_BYTES + 128) / STEP * STEP;
    static_assert(N_STAGES >= 2 * N_CONSUMERS, "one in use, one on its way");
};

template <class S> struct pipeline {
    uint8_t b[S::N_STAGES][S::TILE_N * BLOCK];
    uint8_t a[S::N_STAGES][S::TILE_M * BLOCK];
    alignas(128) float a_scales[S::N_STAGES][S::A_SCALES];
    float b_scales[S::N_STAGES];
};

// A part of the tile. Four more columns: neighbouring rows begin in different banks.
template <class S> struct partial { float sums[S::TILE_M][S::TILE_N + 4]; };

// The parts take the place of the stages when all have been used. What the other blocks of the
// cluster send has its own, since they may be done earlier.
template <class S> struct alignas(1024) storage {
    union {
        pipeline<S> stages;
        partial<S> parts[S::N_PARTS];
    };
    piece received[S::N_PIECES]; // of this block's share of the tile, rank after rank
    uint64_t full[S::N_STAGES], empty[S::N_STAGES], all_received;
};

// What comes first is needed before the first load, and fits into one line of the constants' cache.
struct arguments {
    uint32_t n_k_blocks;
    uint32_t log2_split; // of the blocks of a cluster
    bool is_dense;
    bool stores_vectors; // 16 bytes at a time: D is aligned so
    fq_cuda_gemm gemm;
    b_scale_layout b_scales;
    fq_cuda_tensor_map a, b, a_scales;
};

// What a block works on: n_k_blocks of K from k_begin on, of one tile of D.
struct job {
    row_range rows;
    uint32_t a_begin; // first row of A
    uint32_t n0, k_begin, n_k_blocks;
};

// Blocks of a cluster are neighbours, and so, of a dense product, are the tiles that share rows of
// B: multiprocessors side by side ask L2 once for what both load at one time. False if there is
// nothing to do; it is then the same in all of the cluster. Nothing is loaded before this, so it
// divides by nothing that is not known: see launch_rows for the grid.
template <class S> __device__ __forceinline__ bool find_job(job *out, const arguments &args) {
    const uint32_t rank = ptx::cluster_rank();
    const uint32_t x = ptx::cluster_index(), y = blockIdx.z * gridDim.y + blockIdx.y;
    const uint32_t m = args.is_dense ? x : y, n = args.is_dense ? y : x;
    out->n0 = n * S::TILE_N;
    out->k_begin = args.n_k_blocks * rank >> args.log2_split;
    out->n_k_blocks = (args.n_k_blocks * (rank + 1) >> args.log2_split) - out->k_begin;
    if (args.is_dense) {
        const uint64_t begin = (uint64_t)m * S::TILE_M;
        out->rows = {0, begin, min(args.gemm.m, begin + S::TILE_M)};
        out->a_begin = (uint32_t)begin;
        return (uint64_t)n * S::TILE_N < args.gemm.n;
    }
    if (!find_row_tile(&out->rows, args.gemm, m, S::TILE_M))
        return false;
    out->a_begin = (uint32_t)a_row_of(args.gemm, out->rows.group, out->rows.begin);
    return true;
}

// One thread.
template <class S>
__device__ __forceinline__ void load_stage(const arguments &args, storage<S> &s, const job &j,
                                           uint32_t stage, uint32_t k_block) {
    const int32_t a_row = (int32_t)j.a_begin, a_scales_row = a_row / 4 * 4;
    const int32_t b_row = (int32_t)(j.rows.group * (uint32_t)args.gemm.n + j.n0);
    const int32_t column = (int32_t)(k_block * BLOCK);
    const uint32_t full = ptx::shared_address(&s.full[stage]);
    ptx::mbarrier_arrive_expect(full, S::STAGE_BYTES);
    // Tiles of a dense product that read the same rows of B do so together, and groups that come
    // here have seldom more than one tile of rows: B is not asked for again.
    ptx::tma_load(ptx::shared_address(s.stages.b[stage]), &args.b, full, column, b_row,
                  ptx::L2_EVICT_FIRST);
    ptx::tma_load(ptx::shared_address(s.stages.a[stage]), &args.a, full, column, a_row,
                  ptx::L2_EVICT_LAST);
    ptx::tma_load(ptx::shared_address(s.stages.a_scales[stage]), &args.a_scales, full, a_scales_row,
                  (int32_t)k_block, ptx::L2_EVICT_LAST);
}

// Loads all blocks of K. A warp.
template <class S>
__device__ __forceinline__ void load(const arguments &args, storage<S> &s, const job &j) {
    ring<S::N_STAGES> at;
    for (uint32_t i = 0; i < j.n_k_blocks; i++, at.advance()) {
        ptx::mbarrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
        if (ptx::elect_one())
            load_stage<S>(args, s, j, at.stage, j.k_begin + i);
    }
}

// Puts B's scale beside each block of K. The lanes hold those of 32 blocks, and ask for as many
// ahead. A warp.
template <class S>
__device__ __forceinline__ void bring_scales(const arguments &args, storage<S> &s, const job &j) {
    b_scale_stream b_scales;
    b_scales.begin(args.b_scales, j.rows.group, j.n0 / BLOCK, j.k_begin, args.n_k_blocks);
    ring<S::N_STAGES> at;
    for (uint32_t i = 0; i < j.n_k_blocks; i++, at.advance()) {
        if (i % WINDOW == 0)
            b_scales.enter(args.b_scales, j.k_begin + i, args.n_k_blocks);
        ptx::mbarrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
        if (ptx::lane_id() == i % WINDOW) {
            s.stages.b_scales[at.stage] = b_scales.of_lane();
            ptx::mbarrier_arrive(ptx::shared_address(&s.full[at.stage]));
        }
    }
}

// A 128 of K: products that are being formed, and their scales. The columns of WGMMA's tile are
// rows of A, each with its scale.
template <class S> struct in_flight {
    float part[S::N_SUMS];
    float a_scales[S::N_SUMS / 2], b_scale;
    uint32_t stage;

    // first_n: this warpgroup's first row of B in the tile.
    __device__ __forceinline__ void multiply(const storage<S> &s, uint32_t first_n) {
        const uint32_t a = ptx::descriptor_low(ptx::shared_address(s.stages.a[0])) +
                           stage * (S::TILE_M * BLOCK / 16);
        const uint32_t b = ptx::descriptor_low(ptx::shared_address(s.stages.b[0])) +
                           stage * (S::TILE_N * BLOCK / 16) + first_n * (BLOCK / 16);
        ptx::wgmma_hold(part);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < BLOCK / 32; step++) // 32 bytes of K: 2 units of a descriptor
            ptx::wgmma<S::TILE_M>::multiply(part, b + 2 * step, a + 2 * step, step != 0);
        ptx::wgmma_commit();
        ptx::wgmma_hold(part);
    }

    // a_scale: where the scale of this thread's first column is among a stage's.
    __device__ __forceinline__ void read_scales(const storage<S> &s, uint32_t a_scale) {
        const float *from = s.stages.a_scales[stage] + a_scale;
        b_scale = s.stages.b_scales[stage];
#pragma unroll
        for (int i = 0; i < S::N_SUMS / 2; i += 2) {
            a_scales[i] = from[4 * i];
            a_scales[i + 1] = from[4 * i + 1];
        }
    }

    // sum += scales · part
    __device__ __forceinline__ void promote(float (&sum)[S::N_SUMS]) {
        ptx::wgmma_hold(part);
        ptx::wgmma_hold(a_scales);
#pragma unroll
        for (int i = 0; i < S::N_SUMS; i++)
            sum[i] = fmaf(a_scales[i / 4 * 2 + i % 2] * b_scale, part[i], sum[i]);
    }
};

// A warpgroup's way through the stages.
template <class S> class accumulator {
    storage<S> &s;
    ring<S::N_STAGES> at;
    uint32_t first_n, a_scale;

    __device__ __forceinline__ void begin(in_flight<S> &block) {
        block.stage = at.stage;
        ptx::mbarrier_wait(ptx::shared_address(&s.full[at.stage]), at.phase);
        at.advance(S::STEP);
        block.multiply(s, first_n);
        block.read_scales(s, a_scale);
    }

    // Waits for all but the latest PENDING blocks that have begun, of which this is none.
    template <int PENDING>
    __device__ __forceinline__ void end(float (&sum)[S::N_SUMS], in_flight<S> &block) {
        ptx::wgmma_wait<PENDING>();
        arrive_as_warp(ptx::shared_address(&s.empty[block.stage]));
        block.promote(sum);
    }

  public:
    __device__ __forceinline__ accumulator(storage<S> &s_, const job &j, uint32_t group)
        : s(s_), first_n(S::SHARES_N ? group * PIECE_N : 0),
          a_scale(j.a_begin % 4 + threadIdx.x % 4 * 2) {
        at.stage = S::SHARES_N ? 0 : group;
    }

    // The products of a block begin before those of the one before are promoted.
    __device__ __forceinline__ void run(float (&sum)[S::N_SUMS], uint32_t n_blocks) {
        in_flight<S> even, odd;
        if (n_blocks == 0)
            return;
        begin(even);
        for (; n_blocks > 2; n_blocks -= 2) {
            begin(odd);
            end<1>(sum, even);
            begin(even);
            end<1>(sum, odd);
        }
        if (n_blocks == 1)
            return end<0>(sum, even);
        begin(odd);
        end<1>(sum, even);
        end<0>(sum, odd);
    }
};

template <class S>
__device__ __forceinline__ void accumulate(float (&sum)[S::N_SUMS], storage<S> &s, const job &j) {
    const uint32_t group = __shfl_sync(0xFFFFFFFF, threadIdx.x / GROUP, 0);
    const uint32_t first = S::SHARES_N ? 0 : group;
    accumulator<S>(s, j, group).run(sum, (j.n_k_blocks + S::STEP - 1 - first) / S::STEP);
}

template <class S>
__device__ __forceinline__ void write_part(storage<S> &s, const float (&sum)[S::N_SUMS]) {
    const uint32_t group = threadIdx.x / GROUP, warp = threadIdx.x / 32 % 4,
                   lane = threadIdx.x % 32;
    partial<S> &part = s.parts[S::SHARES_N ? 0 : group];
    const uint32_t n = (S::SHARES_N ? group * PIECE_N : 0) + warp * 16 + lane / 4;
    const uint32_t m = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < S::N_SUMS; i++)
        part.sums[m + i / 4 * 8 + i % 2][n + i % 4 / 2 * 8] = sum[i];
}

// Eight neighbouring elements of a row of D, or those of them that are in D.
static __device__ __forceinline__ void store_eight(const arguments &args, uint64_t row,
                                                   uint64_t col, const float (&v)[8]) {
    const fq_cuda_gemm &g = args.gemm;
    const uint64_t at = row * g.d_stride + col;
    const bool as_vector = args.stores_vectors && col + 8 <= g.n;
    // Expected, so that what is far from it in the code is what is seldom run.
    if (__builtin_expect(as_vector && !g.d_is_f32, 1)) {
        __nv_bfloat162 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pairs[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        *(uint4 *)((__nv_bfloat16 *)g.d + at) = *(const uint4 *)pairs;
    } else if (as_vector) {
        ((float4 *)((float *)g.d + at))[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)((float *)g.d + at))[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (col + i < g.n)
                store_element(g, row, col + i, v[i]);
    }
}

static __device__ __forceinline__ void read_piece(float (&v)[8], const piece &p) {
    v[0] = p.low.x, v[1] = p.low.y, v[2] = p.low.z, v[3] = p.low.w;
    v[4] = p.high.x, v[5] = p.high.y, v[6] = p.high.z, v[7] = p.high.w;
}

static __device__ __forceinline__ void add_piece(float (&v)[8], const piece &p) {
    v[0] += p.low.x, v[1] += p.low.y, v[2] += p.low.z, v[3] += p.low.w;
    v[4] += p.high.x, v[5] += p.high.y, v[6] += p.high.z, v[7] += p.high.w;
}

// What this block's parts of a piece come to.
template <class S> __device__ __forceinline__ piece sum_of_parts(const storage<S> &s, uint32_t i) {
    constexpr uint32_t per_row = S::TILE_N / 8;
    float v[8];
    read_piece(v, *(const piece *)&s.parts[0].sums[i / per_row][i % per_row * 8]);
#pragma unroll
    for (uint32_t part = 1; part < S::N_PARTS; part++)
        add_piece(v, *(const piece *)&s.parts[part].sums[i / per_row][i % per_row * 8]);
    return {make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7])};
}

template <class S>
__device__ __forceinline__ void store_piece(const arguments &args, const job &j, uint32_t i,
                                            const float (&v)[8]) {
    constexpr uint32_t per_row = S::TILE_N / 8;
    const uint64_t row = j.rows.begin + i / per_row, col = (uint64_t)j.n0 + i % per_row * 8;
    if (row < j.rows.end && col < args.gemm.n)
        store_eight(args, row, col, v);
}

// Sends this block's sums of what other blocks store: each a share of 2^log2_share pieces.
template <class S> __device__ __forceinline__ void send(storage<S> &s, uint32_t log2_share) {
    const uint32_t rank = ptx::cluster_rank(), share = 1u << log2_share;
    for (uint32_t i = threadIdx.x; i < S::N_PIECES; i += CONSUMER_THREADS) {
        const uint32_t to = i >> log2_share;
        if (to == rank)
            continue;
        const piece own = sum_of_parts<S>(s, i);
        const uint32_t slot = ptx::shared_address(&s.received[rank * share + i % share]);
        const uint32_t there = ptx::map_to_rank(slot, to);
        const uint32_t barrier = ptx::map_to_rank(ptx::shared_address(&s.all_received), to);
        ptx::store_async(there, own.low, barrier);
        ptx::store_async(there + 16, own.high, barrier);
    }
}

// Adds up this block's sums and what the others sent, in the order of their ranks: equal rows of A
// give equal rows of D, whichever block stores them.
template <class S>
__device__ __forceinline__ void store_share(const arguments &args, const storage<S> &s,
                                            const job &j, uint32_t log2_share) {
    const uint32_t rank = ptx::cluster_rank(), share = 1u << log2_share;
    for (uint32_t i = threadIdx.x; i < share; i += CONSUMER_THREADS) {
        float v[8] = {};
        for (uint32_t from = 0; from < 1u << args.log2_split; from++) {
            if (from == rank)
                add_piece(v, sum_of_parts<S>(s, rank * share + i));
            else
                add_piece(v, s.received[from * share + i]);
        }
        store_piece<S>(args, j, rank * share + i, v);
    }
}

template <class S>
__device__ __forceinline__ void store_own(const arguments &args, const storage<S> &s,
                                          const job &j) {
    for (uint32_t i = threadIdx.x; i < S::N_PIECES; i += CONSUMER_THREADS) {
        float v[8];
        read_piece(v, sum_of_parts<S>(s, i));
        store_piece<S>(args, j, i, v);
    }
}

template <class S>
__device__ __forceinline__ void consume(const arguments &args, storage<S> &s, const job &j) {
    float sum[S::N_SUMS] = {};
    accumulate<S>(sum, s, j);
    ptx::barrier_sync(BARRIER_OF_CONSUMERS, CONSUMER_THREADS); // the stages are done with
    write_part<S>(s, sum);
    ptx::barrier_sync(BARRIER_OF_CONSUMERS, CONSUMER_THREADS);
    if (args.log2_split == 0)
        return store_own<S>(args, s, j);
    const uint32_t log2_share = log2_of(S::N_PIECES) - args.log2_split;
    ptx::cluster_wait(); // the others' barriers are there
    send<S>(s, log2_share);
    ptx::mbarrier_wait_cluster(ptx::shared_address(&s.all_received), 0);
    store_share<S>(args, s, j, log2_share);
}

// The barriers, and the first look at the maps. One thread.
template <class S> __device__ __forceinline__ void prepare(const arguments &args, storage<S> &s) {
    ptx::prefetch_map(&args.b);
    ptx::prefetch_map(&args.a);
    ptx::prefetch_map(&args.a_scales);
    for (int i = 0; i < S::N_STAGES; i++) {
        ptx::mbarrier_init(ptx::shared_address(&s.full[i]), 2); // by TMA's warp and B's scale
        ptx::mbarrier_init(ptx::shared_address(&s.empty[i]),
                           S::N_READERS * GROUP / 32 * ARRIVALS_OF_WARP);
    }
    ptx::mbarrier_init(ptx::shared_address(&s.all_received), 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect(ptx::shared_address(&s.all_received),
                                S::RECEIVED_BYTES - (S::RECEIVED_BYTES >> args.log2_split));
}

template <class S>
__global__ void __launch_bounds__(THREADS, S::PER_SM)
    multiply_rows(const __grid_constant__ arguments args) {
    extern __shared__ __align__(1024) uint8_t shared[];
    storage<S> &s = *(storage<S> *)shared;
    const uint32_t warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0);
    if (warp == LOAD_WARP) { // which goes on at once
        if (ptx::elect_one())
            prepare<S>(args, s);
        __syncwarp();
        ptx::barrier_arrive(BARRIER_OF_BLOCK, THREADS);
    } else {
        ptx::barrier_sync(BARRIER_OF_BLOCK, THREADS);
    }
    if (args.log2_split > 0)
        ptx::cluster_arrive();
    job j;
    if (!find_job<S>(&j, args))
        return;
    if (warp < LOAD_WARP)
        consume<S>(args, s, j);
    else if (warp == LOAD_WARP)
        load<S>(args, s, j);
    else if (warp == SCALE_WARP)
        bring_scales<S>(args, s, j);
}

template <class S>
fq_status launch_rows(const fq_cuda_gemm *g, const fq_cuda_gemm_choice *choice, cudaStream_t stream,
                      fq_error *err) {
    arguments args = {};
    args.gemm = *g;
    args.is_dense = g->grouping == FQ_CUDA_GEMM_DENSE;
    args.stores_vectors = (uintptr_t)g->d % 16 == 0 && g->d_stride % (g->d_is_f32 ? 4 : 8) == 0;
    args.b_scales = b_scale_layout::of(*g);
    args.n_k_blocks = (uint32_t)ceil_div(g->k, BLOCK);
    args.log2_split = log2_of(choice->split);
    const fq_status status =
        make_input_maps(&args, g, S::TILE_M, S::TILE_N, S::A_SCALES_LOADED, err);
    if (status != FQ_OK)
        return status;
    const uint64_t n_row_tiles = max_row_tiles(g, S::TILE_M), n_tiles_n = ceil_div(g->n, S::TILE_N);
    // Clusters of a dense product along x have the same rows of B. What y has no room for goes on
    // along z.
    const uint64_t x = (args.is_dense ? n_row_tiles : n_tiles_n) << args.log2_split;
    const uint64_t y = args.is_dense ? n_tiles_n : n_row_tiles;
    if (x > INT32_MAX || y > (uint64_t)MAX_GRID_Y * MAX_GRID_Y)
        return fq_fail(err, FQ_USAGE, "gemm_sm90: D has too many tiles for this kernel");
    const dim3 grid((uint32_t)x, (uint32_t)(y < MAX_GRID_Y ? y : MAX_GRID_Y),
                    (uint32_t)ceil_div(y, MAX_GRID_Y));
    const launch_shape how = {1u << args.log2_split, THREADS, sizeof(storage<S>)};
    return launch(multiply_rows<S>, args, how, grid, stream, err);
}

} // namespace

fq_status fq_cuda_gemm_sm90_rows_launch(const fq_cuda_gemm *gemm, const fq_cuda_gemm_choice *choice,
                                        cudaStream_t stream, fq_error *err) {
#define TRY(m, n, per_sm)                                                                          \
    if (choice->tile_m == (m) && choice->tile_n == (n))                                            \
        return launch_rows<shape<m, n, per_sm>>(gemm, choice, stream, err);
    FQ_CUDA_GEMM_ROWS_INSTANCES(TRY)
#undef TRY
    return fq_fail(err, FQ_USAGE, "gemm_sm90: there is no kernel of rows %u×%u", choice->tile_m,
                   choice->tile_n);
}
