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
// Warps that load, in turns. One takes 350 cycles for a block of K, as long as multiplying it.
constexpr uint32_t N_LOAD_WARPS = 2;
static_assert(WINDOW % N_LOAD_WARPS == 0, "its blocks have the same places in all windows");
constexpr uint32_t PARTS_AT_ONCE = 4; // that a thread adds up: 32 registers
enum { BARRIER_OF_CONSUMERS = 1 };

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
    // TMA loads rows' scales from a multiple of 16 bytes on: up to 3 before the first row, hence 4
    // more. In shared memory a stage's begin at a multiple of 128 bytes.
    static constexpr uint32_t A_SCALES_LOADED = TILE_M + 4, A_SCALES = (TILE_M + 4 + 31) / 32 * 32;
    static constexpr uint32_t STAGE_BYTES =
        (TILE_N + TILE_M) * BLOCK + A_SCALES_LOADED * sizeof(float);
    // What shared memory holds beside the barriers; the multiprocessor keeps 1 KB a block.
    // Those of a warpgroup are always the same: else it could take a stage that is not yet filled
    // for one that is filled anew, since a barrier tells only one phase from the next.
    static constexpr int N_STAGES =
        (SHARED_BYTES / PER_SM - 2048) / (STAGE_BYTES + 128) / STEP * STEP;
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

// The parts are written when all stages have been used.
template <class S> struct alignas(1024) storage {
    union {
        pipeline<S> stages;
        partial<S> parts[S::N_PARTS];
    };
    uint64_t full[S::N_STAGES], empty[S::N_STAGES];
};

struct arguments {
    fq_cuda_tensor_map a, b, a_scales;
    fq_cuda_gemm gemm;
    b_scale_layout b_scales;
    uint32_t n_tiles_n, n_k_blocks;
    uint64_t b_policy; // how long L2 keeps B
};

// What a block works on: n_k_blocks of K from k_begin on, of one tile of D.
struct job {
    row_range rows;
    uint32_t n0, k_begin, n_k_blocks;
};

// Blocks of a cluster are neighbours, and so, of a dense product, are the tiles that share rows of
// B: multiprocessors side by side ask L2 once for what both load at one time. False if there is
// nothing to do; it is then the same in all of the cluster.
template <class S> __device__ __forceinline__ bool find_job(job *out, const arguments &args) {
    const uint32_t split = ptx::cluster_size(), rank = ptx::cluster_rank();
    const uint32_t tile = blockIdx.x / split;
    const bool is_dense = args.gemm.grouping == FQ_CUDA_GEMM_DENSE;
    const uint32_t n_tiles_m = is_dense ? (uint32_t)ceil_div(args.gemm.m, S::TILE_M) : 1;
    const uint32_t m = is_dense ? tile % n_tiles_m : tile / args.n_tiles_n;
    const uint32_t n = is_dense ? tile / n_tiles_m : tile % args.n_tiles_n;
    if (!find_row_tile(&out->rows, args.gemm, m, S::TILE_M))
        return false;
    out->n0 = n * S::TILE_N;
    out->k_begin = args.n_k_blocks * rank / split;
    out->n_k_blocks = args.n_k_blocks * (rank + 1) / split - out->k_begin;
    return true;
}

// One thread.
template <class S>
__device__ __forceinline__ void load_stage(const arguments &args, storage<S> &s, const job &j,
                                           float b_scale, uint32_t stage, uint32_t k_block) {
    const int32_t a_row = (int32_t)j.rows.begin, a_scales_row = a_row / 4 * 4;
    const int32_t b_row = (int32_t)(j.rows.group * (uint32_t)args.gemm.n + j.n0);
    const int32_t column = (int32_t)(k_block * BLOCK);
    const uint32_t full = ptx::shared_address(&s.full[stage]);
    s.stages.b_scales[stage] = b_scale;
    ptx::mbarrier_arrive_expect(full, S::STAGE_BYTES);
    ptx::tma_load(ptx::shared_address(s.stages.b[stage]), &args.b, full, column, b_row,
                  args.b_policy);
    ptx::tma_load(ptx::shared_address(s.stages.a[stage]), &args.a, full, column, a_row,
                  ptx::L2_EVICT_LAST);
    ptx::tma_load(ptx::shared_address(s.stages.a_scales[stage]), &args.a_scales, full, a_scales_row,
                  (int32_t)k_block, ptx::L2_EVICT_LAST);
}

// Loads every N_LOAD_WARPS-th block of K, from block `warp` on.
template <class S>
__device__ __forceinline__ void produce(const arguments &args, storage<S> &s, const job &j,
                                        uint32_t warp) {
    b_scale_stream b_scales;
    b_scales.begin(args.b_scales, j.rows.group, j.n0 / BLOCK, j.k_begin, args.n_k_blocks);
    ring<S::N_STAGES> at;
    at.advance(warp);
    for (uint32_t first = 0; first < j.n_k_blocks; first += WINDOW) {
        const uint32_t n_blocks = min(WINDOW, j.n_k_blocks - first);
        b_scales.enter(args.b_scales, j.k_begin + first, args.n_k_blocks);
        for (uint32_t i = warp; i < n_blocks; i += N_LOAD_WARPS, at.advance(N_LOAD_WARPS)) {
            const float b_scale = b_scales.at(i);
            ptx::mbarrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
            if (ptx::elect_one())
                load_stage<S>(args, s, j, b_scale, at.stage, j.k_begin + first + i);
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
        __syncwarp();
        if (ptx::lane_id() == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&s.empty[block.stage]));
        block.promote(sum);
    }

  public:
    __device__ __forceinline__ accumulator(storage<S> &s_, const job &j, uint32_t group)
        : s(s_), first_n(S::SHARES_N ? group * PIECE_N : 0),
          a_scale(j.rows.begin % 4 + threadIdx.x % 4 * 2) {
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

// Eight neighbouring elements of a row of D, of which n are in D.
static __device__ __forceinline__ void store_eight(const fq_cuda_gemm &g, uint64_t row,
                                                   uint64_t col, const float (&v)[8]) {
    const uint64_t at = row * g.d_stride + col;
    const bool whole = col + 8 <= g.n;
    if (g.d_is_f32 && whole && (uintptr_t)g.d % 16 == 0 && g.d_stride % 4 == 0) {
        ((float4 *)((float *)g.d + at))[0] = make_float4(v[0], v[1], v[2], v[3]);
        ((float4 *)((float *)g.d + at))[1] = make_float4(v[4], v[5], v[6], v[7]);
    } else if (!g.d_is_f32 && whole && (uintptr_t)g.d % 16 == 0 && g.d_stride % 8 == 0) {
        __nv_bfloat162 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pairs[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
        *(uint4 *)((__nv_bfloat16 *)g.d + at) = *(const uint4 *)pairs;
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (col + i < g.n)
                store_element(g, row, col + i, v[i]);
    }
}

static __device__ __forceinline__ void add_eight(float (&v)[8], const float4 (&part)[2]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        v[4 * i] += part[i].x, v[4 * i + 1] += part[i].y;
        v[4 * i + 2] += part[i].z, v[4 * i + 3] += part[i].w;
    }
}

// Adds eight neighbouring elements of this block's parts.
template <class S>
__device__ __forceinline__ void add_own(float (&v)[8], const storage<S> &s, uint32_t m,
                                        uint32_t n) {
#pragma unroll
    for (uint32_t part = 0; part < S::N_PARTS; part++) {
        const float4 *own = (const float4 *)&s.parts[part].sums[m][n];
        const float4 values[2] = {own[0], own[1]};
        add_eight(v, values);
    }
}

// Of the parts `first` .. first + 3 of a cluster's n_parts, those of a block one after the other.
// All are asked for before the first is used.
template <class S>
__device__ __forceinline__ void add_parts(float (&v)[8], const storage<S> &s, uint32_t first,
                                          uint32_t n_parts, uint32_t m, uint32_t n) {
    float4 parts[PARTS_AT_ONCE][2];
#pragma unroll
    for (uint32_t i = 0; i < PARTS_AT_ONCE; i++) {
        const uint32_t part = min(first + i, n_parts - 1);
        const uint32_t mine = ptx::shared_address(&s.parts[part % S::N_PARTS].sums[m][n]);
        const uint32_t at = ptx::map_to_rank(mine, part / S::N_PARTS);
        parts[i][0] = ptx::load_cluster(at);
        parts[i][1] = ptx::load_cluster(at + 16);
    }
#pragma unroll
    for (uint32_t i = 0; i < PARTS_AT_ONCE; i++)
        if (first + i < n_parts)
            add_eight(v, parts[i]);
}

// Adds up the parts of all blocks of the cluster, each block its share of the tile.
template <class S>
__device__ __forceinline__ void reduce_and_store(const arguments &args, const storage<S> &s,
                                                 const job &j) {
    constexpr uint32_t per_row = S::TILE_N / 8;
    const uint32_t split = ptx::cluster_size(), rank = ptx::cluster_rank();
    const uint32_t n_pieces = (uint32_t)(j.rows.end - j.rows.begin) * per_row;
    const uint32_t end = n_pieces * (rank + 1) / split;
    for (uint32_t i = n_pieces * rank / split + threadIdx.x; i < end; i += CONSUMER_THREADS) {
        const uint32_t m = i / per_row, n = i % per_row * 8;
        float v[8] = {};
        if (split == 1)
            add_own<S>(v, s, m, n);
        for (uint32_t first = 0; split > 1 && first < split * S::N_PARTS; first += PARTS_AT_ONCE)
            add_parts<S>(v, s, first, split * S::N_PARTS, m, n);
        if ((uint64_t)j.n0 + n < args.gemm.n)
            store_eight(args.gemm, j.rows.begin + m, j.n0 + n, v);
    }
}

template <class S>
__device__ __forceinline__ void consume(const arguments &args, storage<S> &s, const job &j) {
    float sum[S::N_SUMS] = {};
    accumulate<S>(sum, s, j);
    ptx::barrier_sync(BARRIER_OF_CONSUMERS, CONSUMER_THREADS); // the stages are done with
    write_part<S>(s, sum);
    if (ptx::cluster_size() == 1)
        ptx::barrier_sync(BARRIER_OF_CONSUMERS, CONSUMER_THREADS);
    else
        ptx::cluster_sync();
    reduce_and_store<S>(args, s, j);
}

template <class S>
__global__ void __launch_bounds__(THREADS, S::PER_SM)
    multiply_rows(const __grid_constant__ arguments args) {
    extern __shared__ __align__(1024) uint8_t shared[];
    storage<S> &s = *(storage<S> *)shared;
    job j;
    if (!find_job<S>(&j, args))
        return;
    if (threadIdx.x == CONSUMER_THREADS) {
        ptx::prefetch_map(&args.b);
        ptx::prefetch_map(&args.a);
        ptx::prefetch_map(&args.a_scales);
        for (int i = 0; i < S::N_STAGES; i++) {
            ptx::mbarrier_init(ptx::shared_address(&s.full[i]), 1);
            ptx::mbarrier_init(ptx::shared_address(&s.empty[i]), S::N_READERS * GROUP / 32);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMER_THREADS) {
        const uint32_t warp = threadIdx.x / 32 - CONSUMER_THREADS / 32;
        if (warp < N_LOAD_WARPS)
            produce<S>(args, s, j, __shfl_sync(0xFFFFFFFF, warp, 0));
        if (ptx::cluster_size() > 1)
            ptx::cluster_sync(); // the parts are written
    } else {
        consume<S>(args, s, j);
    }
    if (ptx::cluster_size() > 1)
        ptx::cluster_sync(); // others may still read this block's part
}

template <class S>
fq_status launch_rows(const fq_cuda_gemm *g, const fq_cuda_gemm_choice *choice, cudaStream_t stream,
                      fq_error *err) {
    arguments args = {};
    args.gemm = *g;
    args.b_scales = b_scale_layout::of(*g);
    args.n_tiles_n = (uint32_t)ceil_div(g->n, S::TILE_N);
    args.n_k_blocks = (uint32_t)ceil_div(g->k, BLOCK);
    const fq_status status =
        make_input_maps(&args, g, S::TILE_M, S::TILE_N, S::A_SCALES_LOADED, err);
    if (status != FQ_OK)
        return status;
    const uint64_t n_row_tiles = max_row_tiles(g, S::TILE_M);
    const uint64_t n_blocks = n_row_tiles * args.n_tiles_n * choice->split;
    if (n_blocks > INT32_MAX)
        return fq_fail(err, FQ_USAGE, "gemm_sm90: D has too many tiles for this kernel");
    args.b_policy = n_row_tiles == 1 ? ptx::L2_EVICT_FIRST : ptx::L2_NORMAL;
    const launch_shape how = {choice->split, THREADS, sizeof(storage<S>)};
    return launch(multiply_rows<S>, args, how, (uint32_t)n_blocks, stream, err);
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
