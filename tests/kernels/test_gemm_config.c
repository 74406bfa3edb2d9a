// The choice of a GEMM kernel: always one that exists, and the right kind for few and many rows.
// Needs no GPU; a slip here would show there only as a slow product.
#include "kernels/cuda/gemm/gemm_config.h"
#include "tests/check.h"

enum { H200_SMS = 132 };

static bool exists(const fq_cuda_gemm_choice *c, bool d_is_f32) {
#define IS_TILES(waves, n, how)                                                                    \
    if (c->kernel == FQ_CUDA_GEMM_TILES && c->tile_m == (waves)*128 && c->tile_n == (n) &&         \
        c->share == (how))                                                                         \
        return true;
#define IS_ROWS(m, n, per_sm)                                                                      \
    if (c->kernel == FQ_CUDA_GEMM_ROWS && c->tile_m == (m) && c->tile_n == (n))                    \
        return c->split == 1 || c->split == 2 || c->split == 4 || c->split == 8;
    FQ_CUDA_GEMM_ROWS_INSTANCES(IS_ROWS)
    if (d_is_f32) {
        FQ_CUDA_GEMM_TILES_F32_INSTANCES(IS_TILES)
    } else {
        FQ_CUDA_GEMM_TILES_INSTANCES(IS_TILES)
    }
#undef IS_TILES
#undef IS_ROWS
    return false;
}

static fq_cuda_gemm_choice choose(uint64_t m, uint64_t n, uint64_t k, uint32_t n_groups,
                                  bool d_is_f32) {
    const fq_cuda_gemm_shape shape = {m, n, k, n_groups, H200_SMS, d_is_f32};
    return fq_cuda_gemm_sm90_choose(&shape);
}

static void check_all_exist(void) {
    static const uint64_t sizes[] = {1,   2,    7,    64,   65,   127,     128,    129,
                                     512, 2112, 4096, 8191, 8192, 1000000, 1 << 30};
    enum { N_SIZES = sizeof sizes / sizeof *sizes };
    for (int m = 0; m < N_SIZES; m++)
        for (int n = 0; n < N_SIZES; n++)
            for (int k = 0; k < N_SIZES; k++)
                for (uint32_t n_groups = 1; n_groups <= 256; n_groups *= 16)
                    for (int f32 = 0; f32 < 2; f32++) {
                        const fq_cuda_gemm_choice c =
                            choose(sizes[m], sizes[n], sizes[k], n_groups, f32 != 0);
                        if (!CHECK(exists(&c, f32 != 0)))
                            CHECK_NOTE("m %" PRIu64 " n %" PRIu64 " k %" PRIu64 " groups %u\n",
                                       sizes[m], sizes[n], sizes[k], n_groups);
                    }
}

// DeepSeek-V3's layers.
static void check_kinds(void) {
    static const uint64_t layers[][2] = {{2112, 7168}, {24576, 1536}, {32768, 512}, {7168, 16384},
                                         {4096, 7168}, {7168, 2048},  {8192, 8192}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const uint64_t n = layers[i][0], k = layers[i][1];
        CHECK(choose(1, n, k, 1, false).kernel == FQ_CUDA_GEMM_ROWS);
        const fq_cuda_gemm_choice many = choose(8192, n, k, 1, false);
        CHECK(many.kernel == FQ_CUDA_GEMM_TILES);
        CHECK(many.tile_m * many.tile_n >= 128 * 192);
    }
}

// Where one tile of D is all there is, its K is divided; a K of one block is not.
static void check_split(void) {
    CHECK(choose(16, 128, 16384, 1, false).split > 4);
    CHECK_U64(choose(16, 128, 128, 1, false).split, 1);
}

int main(void) {
    check_all_exist();
    check_kinds();
    check_split();
    return check_result();
}
