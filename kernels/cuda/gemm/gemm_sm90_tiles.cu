// The Hopper kernel for many rows. Blocks stay and walk over the tiles of D. A warp keeps TMA
// loading stages of A, B and A's scales, and another one brings B's scales; two warpgroups multiply
// them (WGMMA), promote the sum of every 128 of K to FP32, and hand finished tiles to TMA for
// storing. While one warpgroup promotes, the other keeps the tensor cores busy.
#include "kernels/cuda/gemm/gemm_sm90_accumulate.cuh"
#include "kernels/cuda/gemm/gemm_sm90_launch.cuh"
#include "kernels/cuda/gemm/gemm_sm90_store.cuh"
#include "kernels/cuda/gemm/gemm_sm90_tiles.cuh"
#include "kernels/cuda/gemm/gemm_sm90_walk.cuh"

#include <cuda_runtime.h>

namespace {

using namespace gemm;
using namespace tiles;

// Loads a box into this block, or, if it is shared, into all blocks of the mask.
template <bool SHARED>
__device__ __forceinline__ void load(uint32_t shared, const fq_cuda_tensor_map &map,
                                     uint32_t barrier, int32_t column, int32_t row, uint16_t mask,
                                     uint64_t l2_policy) {
    if (SHARED)
        ptx::tma_load_multicast(shared, &map, barrier, column, row, mask, l2_policy);
    else
        ptx::tma_load(shared, &map, barrier, column, row, l2_policy);
}

// Tells the consumers a job. A warp.
template <class S>
__device__ __forceinline__ void tell(storage<S> &s, ring<N_JOBS> &at, const job &j) {
    ptx::mbarrier_wait(ptx::shared_address(&s.done[at.stage]), at.phase ^ 1);
    if (ptx::elect_one()) {
        s.jobs[at.stage] = j;
        ptx::mbarrier_arrive(ptx::shared_address(&s.told[at.stage]));
    }
    at.advance();
}

// Loads one stage of a tile: a 128 of K. One thread.
template <class S>
__device__ __forceinline__ void load_stage(const arguments &args, storage<S> &s, const job &j,
                                           const member<S> &me, uint32_t stage, uint32_t k_block) {
    const uint32_t first_m = S::WAVE_EACH ? 0 : me.n * S::LOAD_M % WAVES_M;
    const uint32_t first_n = me.m * S::LOAD_N % S::TILE_N;
    const int32_t a_row = (int32_t)(j.a_begin + first_m);
    const int32_t a_scales_row = (int32_t)(j.a_begin / 4 * 4); // TMA begins at 16 bytes
    const int32_t b_row = (int32_t)(j.group * (uint32_t)args.gemm.n + j.n0 + first_n);
    const uint32_t full = ptx::shared_address(&s.full[stage]);
    const uint32_t a = ptx::shared_address(s.a[stage] + first_m * BLOCK);
    const uint32_t a_scales = ptx::shared_address(s.a_scales[stage]);
    const int32_t column = (int32_t)(k_block * BLOCK);
    ptx::mbarrier_arrive_expect(full, S::STAGE_BYTES - (S::WAVES - j.n_waves) * S::WAVE_BYTES);
#pragma unroll
    for (uint32_t wave = 0; wave < S::WAVES; wave++) {
        if (wave >= j.n_waves)
            break;
        const int32_t m = (int32_t)(wave * WAVES_M);
        if (!S::WAVE_EACH || wave == me.n)
            load<S::SHARE_A>(a + m * BLOCK, args.a, full, column, a_row + m, me.same_m(),
                             ptx::L2_NORMAL);
        if (!S::SHARE_A || (wave + k_block) % 2 == me.n) // in turns
            load<S::SHARE_A>(a_scales + wave * A_SCALES * sizeof(float), args.a_scales, full,
                             a_scales_row + m, (int32_t)k_block, me.same_m(), ptx::L2_NORMAL);
    }
    load<S::SHARE_B>(ptx::shared_address(s.b[stage] + first_n * BLOCK), args.b, full, column, b_row,
                     me.same_n(), args.b_policy);
}

// Tells the jobs, and loads the stages of all tiles of this block. A warp.
template <class S>
__device__ __forceinline__ void load_tiles(const arguments &args, storage<S> &s) {
    const member<S> me = member<S>::of_block();
    walk<S> tiles(args);
    ring<S::N_STAGES> at;
    ring<N_JOBS> at_job;
    job next = tiles.next();
    while (!next.is_last) {
        const job now = next;
        uint32_t k_block = 0;
        const auto load_block = [&] {
            ptx::mbarrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
            if (ptx::elect_one())
                load_stage(args, s, now, me, at.stage, k_block);
            at.advance();
            k_block++;
        };
        load_block(); // before all that takes time
        tell(s, at_job, now);
        next = tiles.next();
#pragma unroll 1 // this warp has few registers
        while (k_block < args.n_k_blocks)
            load_block();
    }
    tell(s, at_job, next);
}

// A tile, and the scales of its first 128 of N and of the next, which are asked for a tile ahead.
template <class S> struct tile_scales {
    job tile;
    b_scale_stream streams[S::N_B_SCALES];

    __device__ __forceinline__ void find(walk<S> &tiles, const arguments &args) {
        tile = tiles.next();
        if (tile.is_last)
            return;
#pragma unroll
        for (int i = 0; i < S::N_B_SCALES; i++)
            streams[i].begin(args.b_scales, tile.group,
                             min(tile.n0 / BLOCK + i, args.n_n_blocks - 1), 0, args.n_k_blocks);
    }
};

// Puts B's scales beside each stage of all tiles of this block. A warp, whose lanes hold those of
// a WINDOW of blocks.
template <class S>
__device__ __forceinline__ void bring_scales(const arguments &args, storage<S> &s) {
    walk<S> tiles(args);
    ring<S::N_STAGES> at;
    tile_scales<S> next;
    next.find(tiles, args);
    while (!next.tile.is_last) {
        tile_scales<S> now = next;
        next.find(tiles, args);
#pragma unroll 1
        for (uint32_t k_block = 0; k_block < args.n_k_blocks; k_block++, at.advance()) {
            if (k_block % WINDOW == 0)
#pragma unroll
                for (int i = 0; i < S::N_B_SCALES; i++)
                    now.streams[i].enter(args.b_scales, k_block, args.n_k_blocks);
            ptx::mbarrier_wait(ptx::shared_address(&s.empty[at.stage]), at.phase ^ 1);
            if (ptx::lane_id() != k_block % WINDOW)
                continue;
#pragma unroll
            for (int i = 0; i < S::N_B_SCALES; i++)
                s.b_scales[at.stage][i] = now.streams[i].of_lane();
            ptx::mbarrier_arrive(ptx::shared_address(&s.full[at.stage]));
        }
    }
}

// Waits for the job at that place. False if there is none.
template <class S>
__device__ __forceinline__ bool begin(progress<S> &p, const storage<S> &s,
                                      const ring<N_JOBS> &at_job, const consumer &me) {
    ptx::mbarrier_wait(ptx::shared_address(&s.told[at_job.stage]), at_job.phase);
    const job &j = s.jobs[at_job.stage];
    p.waves = 0;
#pragma unroll
    for (int wave = 0; wave < S::WAVES; wave++)
        p.waves += j.begin + me.wave_row(wave) < j.end;
    p.a_scale = j.a_begin % 4 + me.group * WAVE_M + me.warp * 16 + me.lane / 4;
    return !j.is_last;
}

template <class S> __device__ __forceinline__ void consume(const arguments &args, storage<S> &s) {
    const consumer me = consumer::of_thread();
    ring<N_JOBS> at_job;
    progress<S> p = {};
    p.loader = find_loader(s);
    in_flight<S> first;
    for (bool more = begin(p, s, at_job, me); more;) {
        first.begin(s, p.at, p.a_scale, me); // before all else that a tile needs
        if (!S::HAS_TWO_PARTS)               // setting it up beside them takes longer
            first.template wait<0>();
        sums<S> sum = {};
        const uint32_t slot = at_job.stage;
        accumulate_waves<S, S::WAVES>(sum, first, s, p, me, args, s.jobs[slot].n0);
        at_job.advance();
        // Read before the tile is written: shared memory answers a warp in order.
        const job done = s.jobs[slot];
        more = begin(p, s, at_job, me);
        if constexpr (S::F32) {
            store_f32<S>(args.gemm, done, sum);
        } else {
            stage<S>(s, sum);
            store_staged<S>(args, s, done);
        }
        arrive_as_warp(ptx::shared_address(&s.done[slot]));
    }
    if (!S::F32 && threadIdx.x % GROUP == 0)
        ptx::tma_store_wait_read(); // shared memory must outlive the stores
}

// The barriers, and the first look at the maps. One thread.
template <class S> __device__ __forceinline__ void prepare(const arguments &args, storage<S> &s) {
    ptx::prefetch_map(&args.a);
    ptx::prefetch_map(&args.b);
    ptx::prefetch_map(&args.a_scales);
    ptx::prefetch_map(&args.d);
    for (int i = 0; i < S::N_STAGES; i++) {
        ptx::mbarrier_init(ptx::shared_address(&s.full[i]), 2); // by TMA's warp and B's scales
        ptx::mbarrier_init(ptx::shared_address(&s.empty[i]),
                           S::N_LOADERS * N_CONSUMERS * GROUP / 32 * ARRIVALS_OF_WARP);
    }
    for (int i = 0; i < N_JOBS; i++) {
        ptx::mbarrier_init(ptx::shared_address(&s.told[i]), 1);
        ptx::mbarrier_init(ptx::shared_address(&s.done[i]),
                           N_CONSUMERS * GROUP / 32 * ARRIVALS_OF_WARP);
    }
    ptx::fence_mbarrier_init();
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1)
    multiply_tiles(const __grid_constant__ arguments args) {
    extern __shared__ __align__(1024) uint8_t shared[];
    storage<S> &s = *(storage<S> *)shared;
    const uint32_t warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0);
    if (warp == LOAD_WARP) {
        if (ptx::elect_one())
            prepare<S>(args, s);
        __syncwarp();
    }
    if (S::CLUSTER > 1)
        ptx::cluster_sync();
    else if (warp == LOAD_WARP) // which goes on at once
        ptx::barrier_arrive(BARRIER_OF_BLOCK, THREADS);
    else
        ptx::barrier_sync(BARRIER_OF_BLOCK, THREADS);
    if (warp < LOAD_WARP) {
        if (S::MOVES_REGISTERS)
            ptx::registers_raise<CONSUMER_REGISTERS>();
        consume<S>(args, s);
    } else {
        if (S::MOVES_REGISTERS)
            ptx::registers_lower<PRODUCER_REGISTERS>();
        if (warp == LOAD_WARP)
            load_tiles<S>(args, s);
        else if (warp == SCALE_WARP)
            bring_scales<S>(args, s);
    }
    if (S::CLUSTER > 1)
        ptx::cluster_sync(); // the other block may still signal this one's barriers
}

// ---- Launching ----

template <class S>
fq_status launch_tiles(const fq_cuda_gemm *g, const fq_cuda_gemm_choice *choice,
                       cudaStream_t stream, fq_error *err) {
    arguments args = {};
    args.gemm = *g;
    args.b_scales = b_scale_layout::of(*g);
    args.n_k_blocks = (uint32_t)ceil_div(g->k, BLOCK);
    args.n_n_blocks = (uint32_t)ceil_div(g->n, BLOCK);
    args.raster = choice->raster;
    // TMA stores whole 16 bytes, also at the end of a row.
    args.store_by_tma =
        !S::F32 && (uintptr_t)g->d % 16 == 0 && g->d_stride % 8 == 0 && g->n % 8 == 0;
    const uint64_t n_units_m = max_row_tiles(g, S::UNIT_M);
    // What is read once makes room for others. Wide tiles, which ask for much at a time, would
    // lose some of it before it is used: 4 % of the time with 192 columns.
    args.b_policy = n_units_m == 1 && S::TILE_N <= 64 ? ptx::L2_EVICT_FIRST : ptx::L2_NORMAL;
    fq_status status = make_input_maps(&args, g, S::LOAD_M, S::LOAD_N, A_SCALES_LOADED, err);
    if (status == FQ_OK && args.store_by_tma) {
        const fq_cuda_matrix d = {
            g->d,        FQ_CUDA_BF16, g->m,     g->n,
            g->d_stride, WAVE_M,       S::PANEL, S::PANEL * sizeof(__nv_bfloat16)};
        status = fq_cuda_tensor_map_make(&args.d, &d, err);
    }
    const launch_shape how = {S::CLUSTER, THREADS, sizeof(storage<S>)};
    uint32_t n_clusters = 0;
    if (status == FQ_OK)
        status = count_clusters(&n_clusters, multiply_tiles<S>, how, err);
    if (status != FQ_OK)
        return status;
    const uint64_t n_units = n_units_m * ceil_div(g->n, S::UNIT_N);
    if (n_units < n_clusters)
        n_clusters = (uint32_t)n_units;
    return launch(multiply_tiles<S>, args, how, dim3(n_clusters * S::CLUSTER), stream, err);
}

} // namespace

fq_status fq_cuda_gemm_sm90_tiles_launch(const fq_cuda_gemm *gemm,
                                         const fq_cuda_gemm_choice *choice, cudaStream_t stream,
                                         fq_error *err) {
#define TRY_AS(f32, waves, n, how)                                                                 \
    if (gemm->d_is_f32 == (f32) && choice->tile_m == (waves)*WAVES_M && choice->tile_n == (n) &&   \
        choice->share == (how))                                                                    \
        return launch_tiles<shape<waves, n, how, f32>>(gemm, choice, stream, err);
#define TRY_BF16(waves, n, how) TRY_AS(false, waves, n, how)
#define TRY_F32(waves, n, how) TRY_AS(true, waves, n, how)
    FQ_CUDA_GEMM_TILES_INSTANCES(TRY_BF16)
    FQ_CUDA_GEMM_TILES_F32_INSTANCES(TRY_F32)
    return fq_fail(err, FQ_USAGE, "gemm_sm90: there is no kernel of tiles of %u×%u", choice->tile_m,
                   choice->tile_n);
}
