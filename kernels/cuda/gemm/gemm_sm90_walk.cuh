// In which order the blocks of the Hopper kernel for many rows take the tiles of D. The
// warp that loads and the one that brings scales walk; the first tells the threads that multiply.
#ifndef FQ_CUDA_GEMM_SM90_WALK_CUH
#define FQ_CUDA_GEMM_SM90_WALK_CUH

#include "kernels/cuda/gemm/gemm_sm90_tiles.cuh"

namespace tiles {

// Where a cluster is at work: a unit (the cluster's tiles) of a group's rows, whole or half of it.
struct place {
    uint32_t unit_m, unit_n;
    uint32_t half, n_halves; // 0, 2: whole; 0 or 1, 1: that half of its rows
};

// Gives each block its tiles: every cluster takes each n_clusters-th unit. Units that would not
// come out even go in halves, to the clusters that had a unit less first: those of a last round
// that would leave half of the clusters idle are cut in two, and those of a dense product's last
// column no wider than NARROW_N take half the time as they are. A warp.
template <class S> class walk {
    const arguments &args;
    uint32_t group = 0, first_unit = 0; // its first, counted over all groups
    uint32_t begin, n_rows;             // of the group
    uint32_t n_units_m, n_units_n;
    uint32_t n_whole;                 // units of all groups that are dealt out whole
    uint32_t n_cut = 0, n_narrow = 0; // units to be cut in halves; units of a narrow column
    uint32_t unit;                    // the next
    uint32_t turn = 0;                // halves that this cluster has had

    static __device__ __forceinline__ uint32_t cluster() { return blockIdx.x / S::CLUSTER; }
    static __device__ __forceinline__ uint32_t n_clusters() { return gridDim.x / S::CLUSTER; }

    static __device__ __forceinline__ uint32_t count_units_m(const row_range &rows) {
        return ((uint32_t)(rows.end - rows.begin) + S::UNIT_M - 1) / S::UNIT_M;
    }

    __device__ __forceinline__ void enter_group() {
        const row_range rows = rows_of_group(args.gemm, group);
        begin = (uint32_t)rows.begin, n_rows = (uint32_t)(rows.end - rows.begin);
        n_units_m = count_units_m(rows);
    }

    // Of this group or a later one.
    __device__ __forceinline__ void enter_group_of(uint32_t a_unit) {
        while (a_unit - first_unit >= n_units_m * n_units_n) {
            first_unit += n_units_m * n_units_n;
            group++;
            enter_group();
        }
    }

    __device__ __forceinline__ uint32_t count_units() const {
        uint32_t n = 0;
        for (uint32_t i = ptx::lane_id(); i < args.gemm.n_groups; i += 32)
            n += count_units_m(rows_of_group(args.gemm, i));
        return __reduce_add_sync(0xFFFFFFFF, n) * n_units_n;
    }

    __device__ __forceinline__ void set_halves_aside() {
        const bool is_dense = args.gemm.grouping == FQ_CUDA_GEMM_DENSE;
        if (S::HAS_NARROW && is_dense && (args.gemm.n - 1) % S::UNIT_N < NARROW_N) {
            n_units_n--;
            n_narrow = n_units_m;
        }
        n_whole = is_dense ? n_units_m * n_units_n : count_units();
        const uint32_t last_round = n_whole % n_clusters();
        if (S::HAS_HALVES && n_whole > n_clusters() && last_round <= n_clusters() / 2)
            n_cut = last_round;
        n_whole -= n_cut;
    }

    // `raster` units of M are walked together along N, so that what is at work at one time covers
    // a nearly square part of D, and reads little of A and B: column after column, or two at a
    // time. The next band goes back along N: what was read of B last is still in L2.
    __device__ __forceinline__ place locate(uint32_t a_unit) {
        enter_group_of(a_unit);
        const uint32_t in_group = a_unit - first_unit, per_band = args.raster * n_units_n;
        const uint32_t band = in_group / per_band, in_band = in_group % per_band;
        const uint32_t first_m = band * args.raster, height = min(args.raster, n_units_m - first_m);
        uint32_t m = in_band % height, n = in_band / height;
        if (S::PAIRS_SHARE_A && in_band < n_units_n / 2 * 2 * height) {
            const uint32_t pair = in_band / 2;
            m = pair % height, n = pair / height * 2 + in_band % 2;
        }
        return {first_m + m, band % 2 == 0 ? n : n_units_n - 1 - n, 0, 2};
    }

    __device__ __forceinline__ bool next_half(place *out) {
        const uint32_t busy =
            n_whole % n_clusters(); // clusters that had a unit more than the others
        const uint32_t n_idle = busy == 0 ? 0 : n_clusters() - busy;
        const bool idle = busy != 0 && cluster() >= busy;
        uint32_t i = idle && turn < 2 ? cluster() - busy + turn * n_idle
                                      : 2 * n_idle + cluster() + (turn - 2 * idle) * n_clusters();
        turn++;
        if (i < 2 * n_cut) {
            *out = locate(n_whole + i / 2);
            out->half = i % 2, out->n_halves = 1;
            return true;
        }
        i -= 2 * n_cut;
        *out = {i, n_units_n, 0, 2};
        return i < n_narrow;
    }

    __device__ __forceinline__ void make_tile(job *out, const place &at) const {
        const member<S> me = member<S>::of_block();
        const uint32_t tile_m = S::TILE_M * at.n_halves / 2;
        const uint32_t m =
            min(n_rows, at.unit_m * S::UNIT_M + at.half * (S::UNIT_M / 2) + me.m * tile_m);
        const uint32_t m_end = min(n_rows, m + tile_m);
        out->n0 = at.unit_n * S::UNIT_N + me.n * S::TILE_N;
        out->group = group;
        out->begin = begin + m;
        out->a_begin = (uint32_t)a_row_of(args.gemm, group, out->begin);
        out->end = begin + (out->n0 < args.gemm.n ? m_end : m);
        out->n_waves = (m_end - m + WAVES_M - 1) / WAVES_M;
    }

    // False past the last tile.
    __device__ __forceinline__ bool find(place *out) {
        if (unit >= n_whole)
            return next_half(out);
        *out = locate(unit);
        unit += n_clusters();
        return true;
    }

  public:
    __device__ __forceinline__ explicit walk(const arguments &a)
        : args(a), n_units_n((uint32_t)ceil_div(a.gemm.n, S::UNIT_N)), unit(cluster()) {
        enter_group();
        set_halves_aside();
    }

    // The next tile; past the last only is_last is set.
    __device__ __forceinline__ job next() {
        place at;
        job out;
        out.is_last = !find(&at);
        if (!out.is_last)
            make_tile(&out, at);
        return out;
    }
};

} // namespace tiles

#endif
