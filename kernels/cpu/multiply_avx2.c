// The GEMM's inner products with AVX2 and FMA.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiply.h"

#include <immintrin.h>

// A tile is two registers of tokens, half of a panel, by some rows: four of them make eight sums
// side by side, what two multipliers with a latency of four take in.
enum {
    TILE_ROWS = 4,
    N_32 = 8, // elements of a register as FP32
    N_64 = 4, // as FP64
    TILES_OF_PANEL = 2
};

// tile: which half of the panel's tokens.
FQ_CPU_INLINE void tile_f32(const fq_cpu_product *p, size_t panel, size_t tile, size_t row,
                            size_t n_rows) {
    const size_t first = tile * 2 * N_32;
    const float *tokens = (const float *)p->tokens + panel * p->depth * FQ_CPU_PANEL_F32 + first;
    const float *weights = (const float *)p->weights + row * FQ_CPU_DEPTH;
    __m256 sums[TILE_ROWS][2];
    for (size_t r = 0; r < n_rows; r++)
        sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (size_t k = 0; k < p->depth; k++) {
        const __m256 x0 = _mm256_loadu_ps(tokens + k * FQ_CPU_PANEL_F32);
        const __m256 x1 = _mm256_loadu_ps(tokens + k * FQ_CPU_PANEL_F32 + N_32);
        for (size_t r = 0; r < n_rows; r++) {
            const __m256 w = _mm256_set1_ps(weights[r * FQ_CPU_DEPTH + k]);
            sums[r][0] = _mm256_fmadd_ps(x0, w, sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(x1, w, sums[r][1]);
        }
    }
    const float *token_scales = (const float *)p->token_scales + panel * FQ_CPU_PANEL_F32 + first;
    for (size_t r = 0; r < n_rows; r++) {
        const __m256 row_scale = _mm256_set1_ps(((const float *)p->row_scales)[row + r]);
        float *out =
            (float *)p->sums + ((row + r) * p->n_panels + panel) * FQ_CPU_PANEL_F32 + first;
        for (size_t half = 0; half < 2; half++, out += N_32) {
            const __m256 scale =
                _mm256_mul_ps(_mm256_loadu_ps(token_scales + half * N_32), row_scale);
            const __m256 scaled = _mm256_mul_ps(sums[r][half], scale);
            _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), scaled));
        }
    }
}

void fq_cpu_multiply_f32_avx2(const fq_cpu_product *product) {
    for (size_t i = 0; i < product->n_panels * TILES_OF_PANEL; i++) {
        const size_t panel = i / TILES_OF_PANEL, tile = i % TILES_OF_PANEL;
        size_t row = 0;
        for (; product->n_rows - row >= TILE_ROWS; row += TILE_ROWS)
            tile_f32(product, panel, tile, row, TILE_ROWS);
        for (; row < product->n_rows; row++)
            tile_f32(product, panel, tile, row, 1);
    }
}

FQ_CPU_INLINE void tile_f64(const fq_cpu_product *p, size_t panel, size_t tile, size_t row,
                            size_t n_rows) {
    const size_t first = tile * 2 * N_64;
    const double *tokens = (const double *)p->tokens + panel * p->depth * FQ_CPU_PANEL_F64 + first;
    const double *weights = (const double *)p->weights + row * FQ_CPU_DEPTH;
    __m256d sums[TILE_ROWS][2];
    for (size_t r = 0; r < n_rows; r++)
        sums[r][0] = sums[r][1] = _mm256_setzero_pd();
    for (size_t k = 0; k < p->depth; k++) {
        const __m256d x0 = _mm256_loadu_pd(tokens + k * FQ_CPU_PANEL_F64);
        const __m256d x1 = _mm256_loadu_pd(tokens + k * FQ_CPU_PANEL_F64 + N_64);
        for (size_t r = 0; r < n_rows; r++) {
            const __m256d w = _mm256_set1_pd(weights[r * FQ_CPU_DEPTH + k]);
            sums[r][0] = _mm256_fmadd_pd(x0, w, sums[r][0]);
            sums[r][1] = _mm256_fmadd_pd(x1, w, sums[r][1]);
        }
    }
    const double *token_scales = (const double *)p->token_scales + panel * FQ_CPU_PANEL_F64 + first;
    for (size_t r = 0; r < n_rows; r++) {
        const __m256d row_scale = _mm256_set1_pd(((const double *)p->row_scales)[row + r]);
        double *out =
            (double *)p->sums + ((row + r) * p->n_panels + panel) * FQ_CPU_PANEL_F64 + first;
        for (size_t half = 0; half < 2; half++, out += N_64) {
            const __m256d scale =
                _mm256_mul_pd(_mm256_loadu_pd(token_scales + half * N_64), row_scale);
            const __m256d scaled = _mm256_mul_pd(sums[r][half], scale);
            _mm256_storeu_pd(out, _mm256_add_pd(_mm256_loadu_pd(out), scaled));
        }
    }
}

void fq_cpu_multiply_f64_avx2(const fq_cpu_product *product) {
    for (size_t i = 0; i < product->n_panels * TILES_OF_PANEL; i++) {
        const size_t panel = i / TILES_OF_PANEL, tile = i % TILES_OF_PANEL;
        size_t row = 0;
        for (; product->n_rows - row >= TILE_ROWS; row += TILE_ROWS)
            tile_f64(product, panel, tile, row, TILE_ROWS);
        for (; row < product->n_rows; row++)
            tile_f64(product, panel, tile, row, 1);
    }
}
