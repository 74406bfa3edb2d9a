// How a warpgroup of the Hopper kernel for many rows sums up a tile along K: it multiplies a stage
// (WGMMA), gives it back to those that load, and promotes the products to FP32.
#ifndef FQ_CUDA_GEMM_SM90_ACCUMULATE_CUH
#define FQ_CUDA_GEMM_SM90_ACCUMULATE_CUH

#include "kernels/cuda/gemm/gemm_sm90_tiles.cuh"

namespace tiles {

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
    constexpr bool every_lane = ARRIVALS_OF_WARP > 1; // at the barriers of all loaders
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < (every_lane ? S::N_LOADERS : 1); i++) {
        const uint32_t empty = every_lane ? __shfl_sync(0xFFFFFFFF, loader, i) : loader;
        if (empty == 0)
            return;
        if (S::CLUSTER == 1)
            ptx::mbarrier_arrive(empty + stage * sizeof(uint64_t));
        else
            ptx::mbarrier_arrive_cluster(empty + stage * sizeof(uint64_t));
    }
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
template <int N, int FIRST, int N_SUMS, int N_PARTS, int N_B_SCALES>
__device__ __forceinline__ void promote(float (&sum)[N_SUMS], const float (&part)[N_PARTS],
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
    uint32_t loader;      // whom this lane tells that a stage is free: find_loader
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

// Begins the products of one wave in a stage: of the first N columns.
template <class S, int N>
__device__ __forceinline__ void multiply_wave(float (&part)[N / 2], const storage<S> &s,
                                              const consumer &me, uint32_t stage, int wave) {
    const uint32_t a = ptx::descriptor_low(ptx::shared_address(s.a[0]) + me.group * WAVE_M * BLOCK);
    const uint32_t b = ptx::descriptor_low(ptx::shared_address(s.b[0]));
    multiply<N>(part, a + (stage * S::TILE_M + wave * WAVES_M) * (BLOCK / 16),
                b + stage * S::TILE_N * (BLOCK / 16));
}

// A block of K whose products are being formed: those of its first wave.
template <class S> struct in_flight {
    float part[S::N_SUMS];
    scales<S> scale;
    uint32_t stage;

    // Begins the products of the next stage, once that is full.
    __device__ __forceinline__ void begin(const storage<S> &s, ring<S::N_STAGES> &at,
                                          uint32_t a_scale, const consumer &me) {
        stage = at.stage;
        ptx::mbarrier_wait(ptx::shared_address(&s.full[stage]), at.phase);
        at.advance();
        // Scales are read first: behind the products, they would wait for those of the block
        // before.
        if (S::HAS_TWO_PARTS)
            scale.read(s, stage, 0, a_scale);
        multiply_wave<S, S::TILE_N>(part, s, me, stage, 0);
    }

    // Waits for all but the latest PENDING blocks of those that have begun; this one is not
    // among them.
    template <int PENDING> __device__ __forceinline__ void wait() {
        ptx::wgmma_wait<PENDING>();
        ptx::wgmma_hold(part);
    }

    // The same, and adds them to the sums.
    template <int FIRST, int PENDING>
    __device__ __forceinline__ void end(float (&sum)[S::N_SUMS], const progress<S> &p) {
        wait<PENDING>();
        release<S>(p.loader, stage);
        promote<S::TILE_N, FIRST>(sum, part, scale.a_0, scale.a_8, scale.b);
    }
};

// The registers for products of N columns: those of the tile's first products, if they are as many.
// Half of them would not do, since the compiler keeps registers of one product together.
template <int N> static __device__ __forceinline__ auto &pick(float (&first)[N], float (&)[N]) {
    return first;
}
template <int N, int N_FIRST>
static __device__ __forceinline__ auto &pick(float (&)[N_FIRST], float (&own)[N]) {
    return own;
}

// Sums up N columns of WAVES waves of a tile, whose first products have begun. The first FIRST
// columns lie in one 128 of N. Where the tile goes through all stages from the first on, that lap
// is unrolled: addresses are constants then. Scales are read behind the products here, where
// reading them first was slower.
template <class S, int WAVES, int N, int FIRST>
__device__ __forceinline__ void accumulate(sums<S> &sum, in_flight<S> &first, storage<S> &s,
                                           progress<S> &p, const consumer &me,
                                           const arguments &args) {
    float own[N / 2];
    auto &part = pick(first.part, own);
    bool is_ready = false; // the next stage is known to be full
    const auto end_wave = [&](auto &products, uint32_t stage, int wave,
                              const ring<S::N_STAGES> &next, bool is_last) {
        scales<S> scale;
        scale.read(s, stage, wave, p.a_scale);
        ptx::wgmma_wait<0>();
        if (wave == WAVES - 1) { // before the promotion, beside which both find time
            release<S>(p.loader, stage);
            is_ready = !is_last &&
                       ptx::mbarrier_try_wait(ptx::shared_address(&s.full[next.stage]), next.phase);
        }
        ptx::wgmma_hold(products);
        promote<N, FIRST>(sum[wave], products, scale.a_0, scale.a_8, scale.b);
    };
    const auto add_waves = [&](int first_wave, uint32_t stage, const ring<S::N_STAGES> &next,
                               bool is_last) {
#pragma unroll
        for (int wave = first_wave; wave < WAVES; wave++) {
            multiply_wave<S, N>(part, s, me, stage, wave);
            end_wave(part, stage, wave, next, is_last);
        }
        if (WAVES == 0)
            release<S>(p.loader, stage);
    };
    const auto add_block = [&](ring<S::N_STAGES> &at, bool is_last) {
        const uint32_t stage = at.stage;
        if (!is_ready)
            ptx::mbarrier_wait(ptx::shared_address(&s.full[stage]), at.phase);
        at.advance();
        add_waves(0, stage, at, is_last);
    };
    uint32_t n_left = args.n_k_blocks - 1;
    if constexpr (WAVES == 0)
        first.template wait<0>();
    else
        end_wave(first.part, first.stage, 0, p.at, n_left == 0);
    add_waves(1, first.stage, p.at, n_left == 0);
    while (n_left > 0) {
        if (WAVES == 0 || p.at.stage != 0 || n_left < S::N_STAGES) {
            add_block(p.at, n_left == 1);
            n_left--;
            continue;
        }
        ring<S::N_STAGES> at = {0, p.at.phase};
#pragma unroll
        for (int i = 1; i <= S::N_STAGES; i++)
            add_block(at, n_left == i);
        p.at = at;
        n_left -= S::N_STAGES;
    }
}

// The same for one wave: the products of a block begin before those of the one before are promoted.
// A lap is an even number of blocks. So where the stages are even in number, and K has an odd
// number of blocks, every second tile goes without laps.
template <class S, int FIRST>
__device__ __forceinline__ void accumulate_in_turns(float (&sum)[S::N_SUMS], in_flight<S> &even,
                                                    storage<S> &s, progress<S> &p,
                                                    const consumer &me, const arguments &args) {
    constexpr uint32_t lap = S::N_STAGES % 2 == 0 ? S::N_STAGES : 2 * S::N_STAGES;
    in_flight<S> odd;
    const auto turn = [&](ring<S::N_STAGES> &at) {
        odd.begin(s, at, p.a_scale, me);
        even.template end<FIRST, 1>(sum, p);
        even.begin(s, at, p.a_scale, me);
        odd.template end<FIRST, 1>(sum, p);
    };
    uint32_t n_left = args.n_k_blocks - 1; // to begin
    while (n_left >= 2) {
        if (p.at.stage != 1 || n_left < lap) {
            turn(p.at);
            n_left -= 2;
            continue;
        }
        ring<S::N_STAGES> at = {1, p.at.phase};
        even.stage = 0;
#pragma unroll
        for (uint32_t i = 0; i < lap; i += 2)
            turn(at);
        p.at = at;
        n_left -= lap;
    }
    if (n_left == 0)
        return even.template end<FIRST, 0>(sum, p);
    odd.begin(s, p.at, p.a_scale, me);
    even.template end<FIRST, 1>(sum, p);
    odd.template end<FIRST, 0>(sum, p);
}

// The same for the columns that the tile has in D, and for the border where it is, at one of the
// multiples of STEP.
template <class S, int WAVES, int FIRST, int STEP>
__device__ __forceinline__ void accumulate_columns(sums<S> &sum, in_flight<S> &first, storage<S> &s,
                                                   progress<S> &p, const consumer &me,
                                                   const arguments &args, uint32_t n0) {
    constexpr int last = S::TILE_N < BLOCK ? S::TILE_N : BLOCK;
    if constexpr (S::HAS_NARROW) {
        if (args.gemm.n - n0 <= NARROW_N)
            return accumulate<S, WAVES, NARROW_N, NARROW_N>(sum, first, s, p, me, args);
    }
    if constexpr (FIRST < last) {
        if (BLOCK - n0 % BLOCK > FIRST)
            return accumulate_columns<S, WAVES, FIRST + STEP, STEP>(sum, first, s, p, me, args, n0);
    }
    if constexpr (S::HAS_TWO_PARTS)
        accumulate_in_turns<S, FIRST>(sum[0], first, s, p, me, args);
    else
        accumulate<S, WAVES, S::TILE_N, FIRST>(sum, first, s, p, me, args);
}

// And for the waves that the warpgroup has in D: WAVES, or fewer.
template <class S, int WAVES>
__device__ __forceinline__ void accumulate_waves(sums<S> &sum, in_flight<S> &first, storage<S> &s,
                                                 progress<S> &p, const consumer &me,
                                                 const arguments &args, uint32_t n0) {
    constexpr int step = S::TILE_N % BLOCK == 0 ? BLOCK : S::TILE_N % 64 == 0 ? 64 : 32;
    if constexpr (WAVES > 0) {
        if (p.waves < WAVES)
            return accumulate_waves<S, WAVES - 1>(sum, first, s, p, me, args, n0);
        accumulate_columns<S, WAVES, step, step>(sum, first, s, p, me, args, n0);
    } else {
        accumulate<S, 0, S::TILE_N, S::TILE_N>(sum, first, s, p, me, args);
    }
}

} // namespace tiles

#endif
