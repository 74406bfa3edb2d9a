// The Hopper kernel for many rows. Blocks stay and walk over the tiles of D. A warp keeps TMA
// loading stages of A, B and A's scales, and another one brings B's scales; two warpgroups multiply
// them (WGMMA), promote the sum of every 128 of K to FP32, and hand finished tiles to TMA for
// storing. While one warpgroup promotes, the other keeps the tensor cores busy.
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
                                     uint32_t barrier, int32_t column, int32_t row, uint16_t mask) {
    if (SHARED)
        ptx::tma_load_multicast(shared, &map, barrier, column, row, mask, ptx::L2_NORMAL);
    else
        ptx::tma_load(shared, &map, barrier, column, row, ptx::L2_NORMAL);
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
    const uint32_t first_m = me.n * S::LOAD_M % WAVES_M, first_n = me.m * S::LOAD_N % S::TILE_N;
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
        load<S::SHARE_A>(a + m * BLOCK, args.a, full, column, a_row + m, me.same_m());
        load<false>(a_scales + wave * A_SCALES * sizeof(float), args.a_scales, full,
                    a_scales_row + m, (int32_t)k_block, 0);
    }
    load<S::SHARE_B>(ptx::shared_address(s.b[stage] + first_n * BLOCK), args.b, full, column, b_row,
                     me.same_n());
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

// The lanes that tell a block that a stage is free again: one for each block that loads it. This
// lane's is told at this address, of the first stage; none: 0.
template <class S> __device__ __forceinline__ uint32_t find_loader(const storage<S> &s) {
    const uint32_t empty = ptx::shared_address(s.empty), lane = ptx::lane_id();
    if (lane >= S::N_LOADERS)
        return 0;
    if (S::CLUSTER == 1)
        return empty;
    const member<S> me = member<S>::of_block();
    const uint32_t across_n = member<S>::rank_of(me.m, (me.n + 1) % S::CLUSTER_N);
    const uint32_t across_m = member<S>::rank_of((me.m + 1) % S::CLUSTER_M, me.n);
    const uint32_t self = member<S>::rank_of(me.m, me.n);
    return ptx::map_to_rank(empty, lane == 0                 ? self
                                   : lane == 1 && S::SHARE_A ? across_n
                                                             : across_m);
}

// Once the warp has read the stage's scales, and the tensor cores the rest.
template <class S> __device__ __forceinline__ void release(uint32_t loader, uint32_t stage) {
    __syncwarp();
    if (loader == 0)
        return;
    if (S::CLUSTER == 1)
        ptx::mbarrier_arrive(loader + stage * sizeof(uint64_t));
    else
        ptx::mbarrier_arrive_cluster(loader + stage * sizeof(uint64_t));
}

// part = the products of 64 rows and N columns, one 128 of K.
template <int N>
__device__ __forceinline__ void multiply(float (&part)[N / 2], uint32_t a, uint32_t b) {
    ptx::wgmma_hold(part);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < BLOCK / 32; step++) // 32 bytes of K: 2 units of a descriptor
        ptx::wgmma<N>::multiply(part, a + 2 * step, b + 2 * step, step != 0);
    ptx::wgmma_commit();
    ptx::wgmma_hold(part);
}

// sum += scales · part. The first FIRST columns lie in one 128 of N, the others in the next.
template <int N, int FIRST, int N_SUMS, int N_B_SCALES>
__device__ __forceinline__ void promote(float (&sum)[N_SUMS], const float (&part)[N / 2],
                                        float a_scale_0, float a_scale_8,
                                        const float (&b_scale)[N_B_SCALES]) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const float scale =
            (i % 4 < 2 ? a_scale_0 : a_scale_8) * b_scale[i / 4 * 8 < FIRST ? 0 : 1];
        sum[i] = fmaf(scale, part[i], sum[i]);
    }
}

// What a warpgroup keeps in registers while it works on a tile.
template <class S> struct progress {
    int waves;            // that have rows to store
    uint32_t a_scale;     // of this thread's first row, in a stage's
    ring<S::N_STAGES> at; // the next stage
    uint32_t loader;      // whom this lane tells that it is free: find_loader
};

// The scales of one 128 of K that a thread needs for a wave.
template <class S> struct scales {
    float a_0, a_8, b[S::N_B_SCALES];
    __device__ __forceinline__ void read(const storage<S> &s, uint32_t stage, int wave,
                                         uint32_t a_scale) {
        a_0 = s.a_scales[stage][wave][a_scale];
        a_8 = s.a_scales[stage][wave][a_scale + 8];
#pragma unroll
        for (int i = 0; i < S::N_B_SCALES; i++)
            b[i] = s.b_scales[stage][i];
    }
};

// Begins the products of one wave in a stage.
template <class S, int N>
__device__ __forceinline__ void multiply_wave(float (&part)[N / 2], const storage<S> &s,
                                              const consumer &me, uint32_t stage, int wave) {
    const uint32_t a = ptx::descriptor_low(ptx::shared_address(s.a[0]) + me.group * WAVE_M * BLOCK);
    const uint32_t b = ptx::descriptor_low(ptx::shared_address(s.b[0]));
    multiply<N>(part, a + (stage * S::TILE_M + wave * WAVES_M) * (BLOCK / 16),
                b + stage * S::TILE_N * (BLOCK / 16));
}

// Sums up N columns of WAVES waves of a tile. The first FIRST columns lie in one 128 of N.
template <class S, int WAVES, int N, int FIRST>
__device__ __forceinline__ void accumulate(sums<S> &sum, storage<S> &s, progress<S> &p,
                                           const consumer &me, const arguments &args) {
    bool is_ready = false; // the stage is known to be full
    for (uint32_t k_block = 0; k_block < args.n_k_blocks; k_block++) {
        const uint32_t stage = p.at.stage;
        if (!is_ready)
            ptx::mbarrier_wait(ptx::shared_address(&s.full[stage]), p.at.phase);
        is_ready = false;
        p.at.advance();
#pragma unroll
        for (int wave = 0; wave < WAVES; wave++) {
            float part[N / 2];
            scales<S> scale;
            multiply_wave<S, N>(part, s, me, stage, wave);
            scale.read(s, stage, wave, p.a_scale);
            ptx::wgmma_wait<0>();
            if (wave == WAVES - 1) { // before the promotion, which takes as long as either
                release<S>(p.loader, stage);
                is_ready =
                    k_block + 1 < args.n_k_blocks &&
                    ptx::mbarrier_try_wait(ptx::shared_address(&s.full[p.at.stage]), p.at.phase);
            }
            ptx::wgmma_hold(part);
            promote<N, FIRST>(sum[wave], part, scale.a_0, scale.a_8, scale.b);
        }
        if (WAVES == 0)
            release<S>(p.loader, stage);
    }
}

// A block of K whose products are being formed.
template <class S, int N> struct in_flight {
    float part[N / 2];
    scales<S> scale;
    uint32_t stage;

    __device__ __forceinline__ void begin(storage<S> &s, progress<S> &p, const consumer &me) {
        stage = p.at.stage;
        ptx::mbarrier_wait(ptx::shared_address(&s.full[stage]), p.at.phase);
        p.at.advance();
        multiply_wave<S, N>(part, s, me, stage, 0);
        scale.read(s, stage, 0, p.a_scale);
    }

    // Waits for all but the latest PENDING blocks of those that have begun; this one is not
    // among them.
    template <int FIRST, int PENDING>
    __device__ __forceinline__ void end(float (&sum)[S::N_SUMS], const progress<S> &p) {
        ptx::wgmma_wait<PENDING>();
        release<S>(p.loader, stage);
        ptx::wgmma_hold(part);
        promote<N, FIRST>(sum, part, scale.a_0, scale.a_8, scale.b);
    }
};

// The same as accumulate for one wave: the products of a block begin before those of the one
// before are promoted.
template <class S, int N, int FIRST>
__device__ __forceinline__ void accumulate_in_turns(float (&sum)[S::N_SUMS], storage<S> &s,
                                                    progress<S> &p, const consumer &me,
                                                    const arguments &args) {
    in_flight<S, N> even, odd;
    even.begin(s, p, me);
    uint32_t n_left = args.n_k_blocks;
    for (; n_left > 2; n_left -= 2) {
        odd.begin(s, p, me);
        even.template end<FIRST, 1>(sum, p);
        even.begin(s, p, me);
        odd.template end<FIRST, 1>(sum, p);
    }
    if (n_left == 1)
        return even.template end<FIRST, 0>(sum, p);
    odd.begin(s, p, me);
    even.template end<FIRST, 1>(sum, p);
    odd.template end<FIRST, 0>(sum, p);
}

// The same for the columns that the tile has in D, and for the border where it is, at one of the
// multiples of STEP.
template <class S, int WAVES, int FIRST, int STEP>
__device__ __forceinline__ void accumulate_columns(sums<S> &sum, storage<S> &s, progress<S> &p,
                                                   const consumer &me, const arguments &args,
                                                   uint32_t n0) {
    constexpr int last = S::TILE_N < BLOCK ? S::TILE_N : BLOCK;
    if constexpr (S::HAS_NARROW) {
        if (args.gemm.n - n0 <= NARROW_N)
            return accumulate<S, WAVES, NARROW_N, NARROW_N>(sum, s, p, me, args);
    }
    if constexpr (FIRST < last) {
        if (BLOCK - n0 % BLOCK > FIRST)
            return accumulate_columns<S, WAVES, FIRST + STEP, STEP>(sum, s, p, me, args, n0);
    }
    if constexpr (S::HAS_TWO_PARTS)
        accumulate_in_turns<S, S::TILE_N, FIRST>(sum[0], s, p, me, args);
    else
        accumulate<S, WAVES, S::TILE_N, FIRST>(sum, s, p, me, args);
}

// And for the waves that the warpgroup has in D: WAVES, or fewer.
template <class S, int WAVES>
__device__ __forceinline__ void accumulate_waves(sums<S> &sum, storage<S> &s, progress<S> &p,
                                                 const consumer &me, const arguments &args,
                                                 uint32_t n0) {
    constexpr int step = S::TILE_N % BLOCK == 0 ? BLOCK : S::TILE_N % 64 == 0 ? 64 : 32;
    if constexpr (WAVES > 0) {
        if (p.waves < WAVES)
            return accumulate_waves<S, WAVES - 1>(sum, s, p, me, args, n0);
        accumulate_columns<S, WAVES, step, step>(sum, s, p, me, args, n0);
    } else {
        accumulate<S, 0, S::TILE_N, S::TILE_N>(sum, s, p, me, args);
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
    for (bool more = begin(p, s, at_job, me); more;) {
        sums<S> sum = {};
        const uint32_t slot = at_job.stage;
        accumulate_waves<S, S::WAVES>(sum, s, p, me, args, s.jobs[slot].n0);
        at_job.advance();
        if constexpr (S::F32) {
            store_f32<S>(args.gemm, s.jobs[slot], sum);
            more = begin(p, s, at_job, me);
        } else {
            stage<S>(s, sum);
            more = begin(p, s, at_job, me);
            store_staged<S>(args, s, s.jobs[slot]);
        }
        __syncwarp();
        if (me.lane == 0)
            ptx::mbarrier_arrive(ptx::shared_address(&s.done[slot]));
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
                           S::N_LOADERS * N_CONSUMERS * GROUP / 32);
    }
    for (int i = 0; i < N_JOBS; i++) {
        ptx::mbarrier_init(ptx::shared_address(&s.told[i]), 1);
        ptx::mbarrier_init(ptx::shared_address(&s.done[i]), N_CONSUMERS * GROUP / 32);
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
    const uint64_t n_units = max_row_tiles(g, S::UNIT_M) * ceil_div(g->n, S::UNIT_N);
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
