// The Hopper kernel for few rows of A. What it costs is reading B once, so a tile is 128 rows of B
// by all rows of A that fit (B's rows take the place of WGMMA's M), and the blocks of a cluster
// share a tile's K, so that every multiprocessor reads. They add up through each other's shared
// memory, in the order of K: the result does not depend on timing.
#include "kernels/cuda/gemm_config.h"
#include "kernels/cuda/gemm_device.cuh"
#include "kernels/cuda/gemm_launch.h"
#include "kernels/cuda/gemm_sm90_launch.cuh"
#include "kernels/cuda/ptx.cuh"

#include <cuda_runtime.h>

namespace {

using namespace gemm;

constexpr uint32_t N_CONSUMERS = 2, GROUP = 128; // warpgroups that multiply; threads of one
constexpr uint32_t CONSUMER_THREADS = N_CONSUMERS * GROUP;
constexpr uint32_t THREADS = CONSUMER_THREADS + GROUP; // and one that loads
constexpr int GROUP_N = 64;               // rows of B that a warpgroup multiplies: those of a WGMMA
constexpr uint32_t SHARED_BYTES = 233472; // of a multiprocessor, 228 KB
enum { BARRIER_OF_CONSUMERS = 1 };

// A tile of D: TILE_M rows of A, TILE_N of B, 64 or 128, all with one scale. PER_SM: blocks of a
// multiprocessor, whose shared memory they divide.
template <int TILE_M_, int TILE_N_, int PER_SM_> struct shape {
    static constexpr int TILE_M = TILE_M_, TILE_N = TILE_N_, PER_SM = PER_SM_;
    // A warpgroup multiplies 64 rows of B: half of the tile's, or all with half of A's rows.
    static constexpr bool DIVIDES_N = TILE_N == 2 * GROUP_N;
    static constexpr int GROUP_M = DIVIDES_N ? TILE_M : TILE_M / 2;
    static constexpr uint32_t N_SUMS = GROUP_M / 2; // of a thread
    static_assert(DIVIDES_N || TILE_N == GROUP_N, "two warpgroups share the tile");
    static_assert(GROUP_M % 8 == 0, "columns of a WGMMA");
    // 65536 registers a multiprocessor: its one block of 384 threads starts with 168 a thread, and
    // 56·128 + 224·256 = 64512; two start with 80, and 40·128 + 96·256 = 29696 each.
    static constexpr int PRODUCER_REGISTERS = PER_SM == 1 ? 56 : 40;
    static constexpr int CONSUMER_REGISTERS = PER_SM == 1 ? 224 : 96;
    // TMA loads rows' scales from a multiple of 16 bytes on: up to 3 before the first row, hence 4
    // more. In shared memory a stage's begin at a multiple of 128 bytes.
    static constexpr uint32_t A_SCALES_LOADED = TILE_M + 4, A_SCALES = (TILE_M + 4 + 31) / 32 * 32;
    static constexpr uint32_t STAGE_BYTES =
        (TILE_N + TILE_M) * BLOCK + A_SCALES_LOADED * sizeof(float);
    // What shared memory holds beside the barriers; the multiprocessor keeps 1 KB a block.
    static constexpr int N_STAGES = (SHARED_BYTES / PER_SM - 2048) / (STAGE_BYTES + 128);
};

template <class S> struct pipeline {
    uint8_t b[S::N_STAGES][S::TILE_N * BLOCK];
    uint8_t a[S::N_STAGES][S::TILE_M * BLOCK];
    alignas(128) float a_scales[S::N_STAGES][S::A_SCALES];
};

// A block's part of the tile, for the cluster to add up. Four more columns: neighbouring rows begin
// in different banks.
template <class S> struct partial { float sums[S::TILE_M][S::TILE_N + 4]; };

// The parts are written when all stages have been used.
template <class S> struct alignas(1024) storage {
    union {
        pipeline<S> stages;
        partial<S> part;
    };
    uint64_t full[S::N_STAGES], empty[S::N_STAGES];
};

struct arguments {
    fq_cuda_tensor_map a, b, a_scales;
    fq_cuda_gemm gemm;
    b_scale_layout b_scales;
    uint32_t n_tiles_n, n_k_blocks;
};

// What a block works on: the part [k_begin, k_end) of K, in blocks, of one tile of D.
struct job {
    row_range rows;
    uint64_t n0;
    uint32_t k_begin, k_end;
};

// Blocks of a cluster are neighbours, and so are the tiles of N. False if there is nothing to do;
// it is then the same in all of the cluster.
template <class S> __device__ __forceinline__ bool find_job(job *out, const arguments &args) {
    const uint32_t split = ptx::cluster_size(), rank = ptx::cluster_rank();
    const uint32_t tile = blockIdx.x / split;
    if (!find_row_tile(&out->rows, args.gemm, tile / args.n_tiles_n, S::TILE_M))
        return false;
    out->n0 = (uint64_t)(tile % args.n_tiles_n) * S::TILE_N;
    out->k_begin = (uint32_t)((uint64_t)args.n_k_blocks * rank / split);
    out->k_end = (uint32_t)((uint64_t)args.n_k_blocks * (rank + 1) / split);
    return true;
}

// One thread. Every stage is filled anew N_STAGES blocks later.
template <class S>
__device__ __forceinline__ void produce(const arguments &args, storage<S> &s, const job &j) {
    const int32_t a_row = (int32_t)j.rows.begin, a_scales_row = a_row / 4 * 4;
    const int32_t b_row = (int32_t)(j.rows.group * args.gemm.n + j.n0);
    for (uint32_t i = 0; i < j.k_end - j.k_begin; i++) {
        const uint32_t stage = i % S::N_STAGES, phase = i / S::N_STAGES % 2;
        const uint32_t full = ptx::shared_address(&s.full[stage]);
        const int32_t k_block = (int32_t)(j.k_begin + i), column = k_block * (int32_t)BLOCK;
        ptx::mbarrier_wait(ptx::shared_address(&s.empty[stage]), phase ^ 1);
        ptx::mbarrier_arrive_expect(full, S::STAGE_BYTES);
        ptx::tma_load(ptx::shared_address(s.stages.b[stage]), &args.b, full, column, b_row,
                      ptx::L2_EVICT_FIRST);
        ptx::tma_load(ptx::shared_address(s.stages.a[stage]), &args.a, full, column, a_row,
                      ptx::L2_EVICT_LAST);
        ptx::tma_load(ptx::shared_address(s.stages.a_scales[stage]), &args.a_scales, full,
                      a_scales_row, k_block, ptx::L2_EVICT_LAST);
    }
}

// sum += scales · part. The columns of the tile of WGMMA are rows of A, each with its scale.
template <class S>
__device__ __forceinline__ void promote(float (&sum)[S::N_SUMS], const float (&part)[S::N_SUMS],
                                        const float *a_scales, float b_scale) {
#pragma unroll
    for (int i = 0; i < S::N_SUMS; i += 4) {
        const float left = a_scales[i * 2] * b_scale, right = a_scales[i * 2 + 1] * b_scale;
        sum[i] = fmaf(left, part[i], sum[i]);
        sum[i + 1] = fmaf(right, part[i + 1], sum[i + 1]);
        sum[i + 2] = fmaf(left, part[i + 2], sum[i + 2]);
        sum[i + 3] = fmaf(right, part[i + 3], sum[i + 3]);
    }
}

template <class S>
__device__ __forceinline__ void accumulate(float (&sum)[S::N_SUMS], const arguments &args,
                                           storage<S> &s, const job &j) {
    const uint32_t group = __shfl_sync(0xFFFFFFFF, threadIdx.x / GROUP, 0);
    const uint32_t first_m = S::DIVIDES_N ? 0 : group * S::GROUP_M;
    const uint32_t first_n = S::DIVIDES_N ? group * GROUP_N : 0;
    const uint32_t a = ptx::descriptor_low(ptx::shared_address(s.stages.a[0]) + first_m * BLOCK);
    const uint32_t b = ptx::descriptor_low(ptx::shared_address(s.stages.b[0]) + first_n * BLOCK);
    const uint32_t a_scale =
        j.rows.begin % 4 + first_m + threadIdx.x % 4 * 2; // of its first column
    b_scale_stream b_scales;
    b_scales.begin(args.b_scales, j.rows.group, (uint32_t)(j.n0 / BLOCK), j.k_begin,
                   args.n_k_blocks);
    uint32_t stage = 0, phase = 0;
    for (uint32_t i = 0; i < j.k_end - j.k_begin; i++) {
        const float b_scale = b_scales.next(args.b_scales, j.k_begin, i, args.n_k_blocks);
        float part[S::N_SUMS];
        ptx::mbarrier_wait(ptx::shared_address(&s.full[stage]), phase);
        ptx::wgmma_hold(part);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < BLOCK / 32; step++) // 32 bytes of K: 2 units of a descriptor
            ptx::wgmma<S::GROUP_M>::multiply(part, b + stage * S::TILE_N * BLOCK / 16 + 2 * step,
                                             a + stage * S::TILE_M * BLOCK / 16 + 2 * step,
                                             step != 0);
        ptx::wgmma_commit();
        ptx::wgmma_hold(part);
        ptx::wgmma_wait<0>();
        ptx::wgmma_hold(part);
        promote<S>(sum, part, s.stages.a_scales[stage] + a_scale, b_scale);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&s.empty[stage]));
        stage = stage == S::N_STAGES - 1 ? 0 : stage + 1;
        phase ^= stage == 0;
    }
}

template <class S>
__device__ __forceinline__ void write_part(partial<S> &part, const float (&sum)[S::N_SUMS]) {
    const uint32_t group = threadIdx.x / GROUP, warp = threadIdx.x / 32 % 4,
                   lane = threadIdx.x % 32;
    const uint32_t m = (S::DIVIDES_N ? 0 : group * S::GROUP_M) + lane % 4 * 2;
    const uint32_t n = (S::DIVIDES_N ? group * GROUP_N : 0) + warp * 16 + lane / 4;
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
        const uint32_t mine = ptx::shared_address(&s.part.sums[m][n]);
        float4 parts[FQ_CUDA_GEMM_MAX_SPLIT][2]; // all are asked for before the first is used
#pragma unroll
        for (uint32_t from = 0; from < FQ_CUDA_GEMM_MAX_SPLIT; from++) {
            if (from >= split)
                break;
            const uint32_t at = ptx::map_to_rank(mine, from);
            parts[from][0] = ptx::load_cluster(at);
            parts[from][1] = ptx::load_cluster(at + 16);
        }
        float v[8] = {};
#pragma unroll
        for (uint32_t from = 0; from < FQ_CUDA_GEMM_MAX_SPLIT; from++)
            if (from < split)
                add_eight(v, parts[from]);
        if (j.n0 + n < args.gemm.n)
            store_eight(args.gemm, j.rows.begin + m, j.n0 + n, v);
    }
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
        for (int i = 0; i < S::N_STAGES; i++) {
            ptx::mbarrier_init(ptx::shared_address(&s.full[i]), 1);
            ptx::mbarrier_init(ptx::shared_address(&s.empty[i]), CONSUMER_THREADS / 32);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMER_THREADS) {
        ptx::registers_lower<S::PRODUCER_REGISTERS>();
        if (threadIdx.x / 32 == CONSUMER_THREADS / 32 && ptx::elect_one())
            produce<S>(args, s, j);
        __syncwarp();
        ptx::cluster_sync();
    } else {
        ptx::registers_raise<S::CONSUMER_REGISTERS>();
        float sum[S::N_SUMS] = {};
        accumulate<S>(sum, args, s, j);
        ptx::barrier_sync(BARRIER_OF_CONSUMERS, CONSUMER_THREADS); // the stages are done with
        write_part<S>(s.part, sum);
        ptx::cluster_sync();
        reduce_and_store<S>(args, s, j);
    }
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
    const uint64_t n_blocks = max_row_tiles(g, S::TILE_M) * args.n_tiles_n * choice->split;
    if (n_blocks > INT32_MAX)
        return fq_fail(err, FQ_USAGE, "gemm_sm90: D has too many tiles for this kernel");
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
