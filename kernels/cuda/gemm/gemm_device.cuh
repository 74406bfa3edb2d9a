// What the GEMM kernels share: B's scales, and which rows of A a tile covers.
#ifndef FQ_CUDA_GEMM_DEVICE_CUH
#define FQ_CUDA_GEMM_DEVICE_CUH

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/ptx.cuh"

#include <cuda_bf16.h>
#include <stdint.h>

namespace gemm {

constexpr uint32_t BLOCK = FQ_CUDA_GEMM_BLOCK;

static __host__ __device__ __forceinline__ uint64_t ceil_div(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

// 2^(exponent - 127), as fq_f32_of_e8m0 (lib/fp8.h).
static __device__ __forceinline__ float scale_of_exponent(uint32_t exponent) {
    const uint32_t least = 0x00400000, nan = 0x7FC00000; // 2^-127 is subnormal
    return __uint_as_float(exponent == 0 ? least : exponent == 255 ? nan : exponent << 23);
}

// How B's scales lie in memory: FP32 side by side along K, or words of four exponents, which lie
// line_words apart along K.
struct b_scale_layout {
    const uint32_t *first;
    uint32_t line_words;    // 0: FP32
    uint32_t n_block_words; // from one 128 of N to the next
    uint64_t group_words;   // from group to group

    static __host__ __device__ __forceinline__ b_scale_layout of(const fq_cuda_gemm &g) {
        const uint32_t *first = (const uint32_t *)g.b_scales;
        const uint32_t n_k_blocks = (uint32_t)ceil_div(g.k, BLOCK);
        if (!g.b_scales_packed)
            return {first, 0, n_k_blocks, ceil_div(g.n, BLOCK) * n_k_blocks};
        const uint32_t line = (uint32_t)(g.n + 3) / 4 * 4; // a word each row of B
        return {first, line, BLOCK, (uint64_t)((n_k_blocks + 3) / 4) * line};
    }
};

// The scales of one 128 of B's rows along K.
struct b_scale_row {
    const uint32_t *first;

    static __device__ __forceinline__ b_scale_row of(const b_scale_layout &layout, uint32_t group,
                                                     uint32_t n_block) {
        return {layout.first + group * layout.group_words +
                (uint64_t)n_block * layout.n_block_words};
    }

    __device__ __forceinline__ float at(const b_scale_layout &layout, uint32_t k_block) const {
        const uint64_t line = layout.line_words;
        const uint32_t word = __ldg(first + (line == 0 ? k_block : k_block / 4 * line));
        return line == 0 ? __uint_as_float(word)
                         : scale_of_exponent(word >> k_block % 4 * 8 & 0xFF);
    }
};

// The scales of one 128 of N along K, for a warp: its lanes hold those of WINDOW blocks at a time,
// and ask for one such window ahead.
constexpr uint32_t WINDOW = 32;
class b_scale_stream {
    b_scale_row row;
    float now, later; // this lane's, of the window that is being read and of the next

    __device__ __forceinline__ float load(const b_scale_layout &layout, uint32_t first,
                                          uint32_t end) const {
        return row.at(layout, min(first + ptx::lane_id(), end - 1));
    }

  public:
    // Asks for the window at block `first`. `end` is past the last block, and not 0.
    __device__ __forceinline__ void begin(const b_scale_layout &layout, uint32_t group,
                                          uint32_t n_block, uint32_t first, uint32_t end) {
        row = b_scale_row::of(layout, group, n_block);
        later = load(layout, first, end);
    }

    // Enters the window at block `first`: the one that begin named, then WINDOW blocks on each
    // time.
    __device__ __forceinline__ void enter(const b_scale_layout &layout, uint32_t first,
                                          uint32_t end) {
        now = later;
        if (first + WINDOW < end)
            later = load(layout, first + WINDOW, end);
    }

    // The scale of block i of the window, for lane i.
    __device__ __forceinline__ float of_lane() const { return now; }
};

// A warp gives back what all its lanes have read: they meet, and one arrives for all. Tools that
// look for races follow the thread that arrives, not those it has met. For them, every lane arrives
// for itself (tests/gpu/CMakeLists.txt).
#ifdef FQ_EVERY_LANE_ARRIVES
constexpr uint32_t ARRIVALS_OF_WARP = 32;
#else
constexpr uint32_t ARRIVALS_OF_WARP = 1;
#endif
static __device__ __forceinline__ void arrive_as_warp(uint32_t barrier) {
    __syncwarp();
    if (ptx::lane_id() < ARRIVALS_OF_WARP)
        ptx::mbarrier_arrive(barrier);
}

// A place in the ring of stages; those who load and those who multiply walk it in step.
template <int N_STAGES> struct ring {
    uint32_t stage = 0, phase = 0;
    __device__ __forceinline__ void advance() {
        stage = stage == N_STAGES - 1 ? 0 : stage + 1;
        phase ^= stage == 0;
    }
    __device__ __forceinline__ void advance(uint32_t n) {
        stage += n;
        phase ^= stage >= N_STAGES;
        stage -= stage >= N_STAGES ? N_STAGES : 0;
    }
};

// Consecutive rows of D that one matrix of B gives.
struct row_range {
    uint32_t group;
    uint64_t begin, end;
};

static __device__ __forceinline__ row_range rows_of_group(const fq_cuda_gemm &g, uint32_t group) {
    if (g.grouping == FQ_CUDA_GEMM_DENSE)
        return {0, 0, g.m};
    if (g.grouping == FQ_CUDA_GEMM_CONTIGUOUS)
        return {group, group == 0 ? 0 : g.group_rows[group - 1], g.group_rows[group]};
    const uint64_t begin = group * g.slot_rows;
    return {group, begin, begin + g.group_rows[group]};
}

// The row of A that gives a row of D of a group.
static __device__ __forceinline__ uint64_t a_row_of(const fq_cuda_gemm &g, uint32_t group,
                                                    uint64_t row) {
    return g.a_is_shared ? row - group * g.slot_rows : row;
}

static inline uint64_t count_a_rows(const fq_cuda_gemm *g) {
    return g->a_is_shared ? g->slot_rows : g->m;
}

// Tile `index` of all groups' rows, cut into tiles of tile_rows that begin anew in each group.
// False past the last.
static __device__ __forceinline__ bool find_row_tile(row_range *out, const fq_cuda_gemm &g,
                                                     uint64_t index, uint32_t tile_rows) {
    for (uint32_t group = 0; group < g.n_groups; group++) {
        const row_range rows = rows_of_group(g, group);
        const uint64_t n_tiles = ceil_div(rows.end - rows.begin, tile_rows);
        if (index < n_tiles) {
            out->group = group;
            out->begin = rows.begin + index * tile_rows;
            out->end = min(rows.end, out->begin + tile_rows);
            return true;
        }
        index -= n_tiles;
    }
    return false;
}

// At most so many row tiles, whatever group_rows says: host code cannot read it.
static inline uint64_t max_row_tiles(const fq_cuda_gemm *g, uint32_t tile_rows) {
    if (g->grouping == FQ_CUDA_GEMM_DENSE)
        return ceil_div(g->m, tile_rows);
    if (g->grouping == FQ_CUDA_GEMM_CONTIGUOUS)
        return g->m / tile_rows + g->n_groups;
    return g->n_groups * ceil_div(g->slot_rows, tile_rows);
}

static __device__ __forceinline__ void store_element(const fq_cuda_gemm &g, uint64_t row,
                                                     uint64_t col, float value) {
    const uint64_t at = row * g.d_stride + col;
    if (g.d_is_f32)
        ((float *)g.d)[at] = value;
    else
        ((__nv_bfloat16 *)g.d)[at] = __float2bfloat16_rn(value);
}

} // namespace gemm

#endif
