// Chooses among the compiled kernels by an estimate of the cycles that each would take.
#include "gemm_config.h"

#include <assert.h>
#include <stddef.h>

// Cycles of a multiprocessor: near what an H200 was seen to take, but fitted so that the choice
// among the times that were measured is the best (docs/kernels.md). Bytes in a cycle are more than
// memory and L2 give: neighbours that load the same at one time are counted each.
enum {
    K_BLOCK = 128,
    START = 3900,        // from launch until the first stage has arrived, and the way out
    SHARE_START = 6600,  // more, where blocks wait for each other: at the start
    SHARE_END = 300,     // and for each tile
    ROWS_END = 1370,     // adding up a tile in one block, and storing it
    BLOCK_END = 650,     // more, for each block of a cluster that adds up
    EXCHANGE_BYTES = 16, // that a block sends to the others' shared memory in a cycle
    INGRESS_BYTES = 55,  // that TMA brings into a multiprocessor in a cycle
    MEMORY_BYTES = 3830, // that the device memory gives all multiprocessors in a cycle,
    NARROW_BYTES = 3450, // and where each asks for fewer than 128 rows of B at a time
};

static uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
static uint64_t greater(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// A cluster lies within one of the parts of the chip, whose sizes differ: an H200 with 132 blocks
// at one time has room for so many clusters of 1 to 8 blocks.
static uint64_t clusters_at_one_time(uint32_t n_blocks, uint64_t size) {
    static const uint8_t n_of_132[] = {132, 66, 39, 30, 22, 17, 15, 15};
    return greater(1, n_blocks * n_of_132[size - 1] / 132);
}

// What is fitted for each tile, too. Cycles that the tensor cores spend on 64 rows and 32 of K are
// half the columns: of that rate a tile reaches so many thousandths, by what its cluster shares.
// And the cycles that the end of a tile takes from them.
typedef struct tile_cost {
    uint16_t rows, cols, end, thousandths[4];
} tile_cost;

static const tile_cost *find_cost(const fq_cuda_gemm_choice *c) {
    static const tile_cost tiles[] = {
        {256, 128, 600, {744, 825, 819, 757}},  {128, 192, 1950, {850, 792, 863, 816}},
        {128, 160, 1062, {800, 720, 720, 685}}, {128, 128, 1000, {801, 775, 837, 748}},
        {128, 96, 637, {710, 685, 713, 700}},   {128, 64, 375, {658, 638, 611, 555}},
    };
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (tiles[i].rows == c->tile_m && tiles[i].cols == c->tile_n)
            return &tiles[i];
    assert(!"a tile that is compiled has a line here");
    return tiles;
}

// Quarters of a tile that the busiest of n_clusters works on, dealt out as gemm_sm90_walk.cuh does.
// Half of a tile takes so many quarters; 0: there are no halves. A tile of a narrow column takes
// three.
static uint64_t count_quarters(uint64_t n_whole, uint64_t n_narrow, uint64_t n_clusters,
                               uint64_t half) {
    const uint64_t last_round = n_whole % n_clusters;
    const uint64_t n_cut =
        half != 0 && n_whole > n_clusters && last_round <= n_clusters / 2 ? last_round : 0;
    const uint64_t n_pieces = 2 * n_cut + n_narrow, n_even = (n_whole - n_cut) / n_clusters;
    const uint64_t piece = n_narrow > 2 * n_cut ? 3 : half;
    const uint64_t busy = (n_whole - n_cut) % n_clusters, n_idle = n_clusters - busy;
    if (busy == 0)
        return 4 * n_even + piece * ceil_div(n_pieces, n_clusters);
    if (n_pieces <= 2 * n_idle)
        return 4 * n_even + greater(4, piece * ceil_div(n_pieces, n_idle));
    return 4 * n_even + greater(4, 2 * piece) + piece * ceil_div(n_pieces - 2 * n_idle, n_clusters);
}

// Cycles of one 128 of K for each of `at_work` blocks at one time: what the memory needs to give
// them B, and the way into a multiprocessor to let in what its blocks load.
static uint64_t load_cycles(uint64_t at_work, uint64_t rows, uint64_t cols, uint32_t n_sms) {
    const uint64_t b_bytes = cols * K_BLOCK, bytes = rows * K_BLOCK + b_bytes;
    return greater(at_work * b_bytes / (cols < 128 ? NARROW_BYTES : MEMORY_BYTES),
                   ceil_div(at_work, n_sms) * bytes / INGRESS_BYTES);
}

static uint64_t estimate_tiles(const fq_cuda_gemm_choice *c, const fq_cuda_gemm_shape *s) {
    const bool shares = c->share != FQ_CUDA_GEMM_SHARE_NONE;
    const uint64_t share_start = shares ? SHARE_START : 0, share_end = shares ? SHARE_END : 0;
    const uint64_t cluster_m = c->share & FQ_CUDA_GEMM_SHARE_B ? 2 : 1;
    const uint64_t cluster_n = c->share & FQ_CUDA_GEMM_SHARE_A ? 2 : 1;
    const uint64_t unit_m = c->tile_m * cluster_m, unit_n = c->tile_n * cluster_n;
    const uint64_t rows = ceil_div(s->m, s->n_groups); // of a group
    const uint64_t n_units_m = s->n_groups * ceil_div(rows, unit_m);
    const bool narrow = s->n_groups == 1 && c->tile_n == 128 && (s->n - 1) % unit_n < 64;
    const uint64_t n_units_n = ceil_div(s->n, unit_n) - narrow;
    const uint64_t n_clusters = clusters_at_one_time(s->n_sms, cluster_m * cluster_n);
    // Half of 128 rows is one warpgroup's work alone.
    const uint64_t half = c->tile_n < 128 ? 0 : c->tile_m == 128 ? 3 : 2;
    const uint64_t quarters =
        count_quarters(n_units_m * n_units_n, narrow ? n_units_m : 0, n_clusters, half);
    const tile_cost *cost = find_cost(c);
    const uint64_t tensor =
        4 * (c->tile_m / 64) * c->tile_n / 2 * 1000 / cost->thousandths[c->share];
    // Tiles one below the other read the same part of B.
    const uint64_t n_columns = ceil_div(least(n_units_m * n_units_n, n_clusters), n_units_m);
    const uint64_t load =
        load_cycles(n_columns * cluster_n, least(rows, c->tile_m), c->tile_n, s->n_sms);
    const uint64_t tile = ceil_div(s->k, K_BLOCK) * greater(tensor, load) + cost->end + share_end;
    return START + share_start + quarters * tile / 4;
}

static uint64_t estimate_rows(const fq_cuda_gemm_choice *c, const fq_cuda_gemm_shape *s,
                              uint64_t per_sm) {
    const uint64_t rows = ceil_div(s->m, s->n_groups); // of a group
    const uint64_t n_tiles = s->n_groups * ceil_div(rows, c->tile_m) * ceil_div(s->n, c->tile_n);
    const uint64_t rounds =
        ceil_div(n_tiles, clusters_at_one_time(s->n_sms * (uint32_t)per_sm, c->split));
    const uint64_t at_work = ceil_div(n_tiles, rounds) * c->split;
    const uint64_t k_block = load_cycles(at_work, least(rows, c->tile_m), c->tile_n, s->n_sms);
    const uint64_t sums_bytes = (uint64_t)c->tile_m * c->tile_n * sizeof(float);
    const uint64_t exchange = c->split == 1 ? 0
                                            : BLOCK_END * c->split + sums_bytes * (c->split - 1) /
                                                                         c->split / EXCHANGE_BYTES;
    return START +
           rounds * (ceil_div(ceil_div(s->k, K_BLOCK), c->split) * k_block + ROWS_END + exchange);
}

typedef struct best_choice {
    fq_cuda_gemm_choice choice;
    uint64_t cycles;
} best_choice;

static void consider(best_choice *best, const fq_cuda_gemm_choice *choice, uint64_t cycles) {
    if (cycles < best->cycles)
        *best = (best_choice){*choice, cycles};
}

static void consider_tiles(best_choice *best, const fq_cuda_gemm_shape *shape, uint32_t waves,
                           uint32_t tile_n, fq_cuda_gemm_share share) {
    const fq_cuda_gemm_choice choice = {FQ_CUDA_GEMM_TILES, waves * 128, tile_n, share, 8, 1};
    consider(best, &choice, estimate_tiles(&choice, shape));
}

static void consider_rows(best_choice *best, const fq_cuda_gemm_shape *shape, uint32_t tile_m,
                          uint32_t tile_n, uint32_t per_sm) {
    fq_cuda_gemm_choice choice = {FQ_CUDA_GEMM_ROWS, tile_m, tile_n, FQ_CUDA_GEMM_SHARE_NONE, 1, 1};
    for (; choice.split <= FQ_CUDA_GEMM_MAX_SPLIT; choice.split *= 2)
        consider(best, &choice, estimate_rows(&choice, shape, per_sm));
}

fq_cuda_gemm_choice fq_cuda_gemm_sm90_choose(const fq_cuda_gemm_shape *shape) {
    best_choice best = {.cycles = UINT64_MAX};
#define CONSIDER_TILES(waves, n, share) consider_tiles(&best, shape, waves, n, share);
#define CONSIDER_ROWS(m, n, per_sm) consider_rows(&best, shape, m, n, per_sm);
    if (shape->d_is_f32) {
        FQ_CUDA_GEMM_TILES_F32_INSTANCES(CONSIDER_TILES)
    } else {
        FQ_CUDA_GEMM_TILES_INSTANCES(CONSIDER_TILES)
    }
    FQ_CUDA_GEMM_ROWS_INSTANCES(CONSIDER_ROWS)
#undef CONSIDER_TILES
#undef CONSIDER_ROWS
    assert(best.cycles != UINT64_MAX);
    return best.choice;
}
