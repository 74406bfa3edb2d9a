// The GEMM's inner products with NEON.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiply.h"

#include <arm_neon.h>

// A tile is four registers of tokens, half of a panel, by some rows: four of them make 16 sums side
// by side, what four multipliers with a latency of four take in.
enum {
    TILE_ROWS = 4,
    TILE_REGISTERS = 4,
    N_32 = 4, // elements of a register as FP32
    N_64 = 2, // as FP64
    TILES_OF_PANEL = 2
};

// tile: which half of the panel's tokens.
FQ_CPU_INLINE void tile_f32(const fq_cpu_product *p, size_t panel, size_t tile, size_t row,
                            size_t n_rows) {
    const size_t first = tile * TILE_REGISTERS * N_32;
    const float *tokens = (const float *)p->tokens + panel * p->depth * FQ_CPU_PANEL_F32 + first;
    const float *weights = (const float *)p->weights + row * FQ_CPU_DEPTH;
    float32x4_t sums[TILE_ROWS][TILE_REGISTERS];
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t i = 0; i < TILE_REGISTERS; i++)
            sums[r][i] = vdupq_n_f32(0.0f);
    }
    for (size_t k = 0; k < p->depth; k++) {
        float32x4_t x[TILE_REGISTERS];
        for (size_t i = 0; i < TILE_REGISTERS; i++)
            x[i] = vld1q_f32(tokens + k * FQ_CPU_PANEL_F32 + i * N_32);
        for (size_t r = 0; r < n_rows; r++) {
            const float32x4_t w = vdupq_n_f32(weights[r * FQ_CPU_DEPTH + k]);
            for (size_t i = 0; i < TILE_REGISTERS; i++)
                sums[r][i] = vfmaq_f32(sums[r][i], x[i], w);
        }
    }
    const float *token_scales = (const float *)p->token_scales + panel * FQ_CPU_PANEL_F32 + first;
    for (size_t r = 0; r < n_rows; r++) {
        const float32x4_t row_scale = vdupq_n_f32(((const float *)p->row_scales)[row + r]);
        float *out =
            (float *)p->sums + ((row + r) * p->n_panels + panel) * FQ_CPU_PANEL_F32 + first;
        for (size_t i = 0; i < TILE_REGISTERS; i++, out += N_32) {
            const float32x4_t scale = vmulq_f32(vld1q_f32(token_scales + i * N_32), row_scale);
            const float32x4_t scaled = vmulq_f32(sums[r][i], scale);
            vst1q_f32(out, vaddq_f32(vld1q_f32(out), scaled));
        }
    }
}

void fq_cpu_multiply_f32_neon(const fq_cpu_product *product) {
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
    const size_t first = tile * TILE_REGISTERS * N_64;
    const double *tokens = (const double *)p->tokens + panel * p->depth * FQ_CPU_PANEL_F64 + first;
    const double *weights = (const double *)p->weights + row * FQ_CPU_DEPTH;
    float64x2_t sums[TILE_ROWS][TILE_REGISTERS];
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t i = 0; i < TILE_REGISTERS; i++)
            sums[r][i] = vdupq_n_f64(0.0);
    }
    for (size_t k = 0; k < p->depth; k++) {
        float64x2_t x[TILE_REGISTERS];
        for (size_t i = 0; i < TILE_REGISTERS; i++)
            x[i] = vld1q_f64(tokens + k * FQ_CPU_PANEL_F64 + i * N_64);
        for (size_t r = 0; r < n_rows; r++) {
            const float64x2_t w = vdupq_n_f64(weights[r * FQ_CPU_DEPTH + k]);
            for (size_t i = 0; i < TILE_REGISTERS; i++)
                sums[r][i] = vfmaq_f64(sums[r][i], x[i], w);
        }
    }
    const double *token_scales = (const double *)p->token_scales + panel * FQ_CPU_PANEL_F64 + first;
    for (size_t r = 0; r < n_rows; r++) {
        const float64x2_t row_scale = vdupq_n_f64(((const double *)p->row_scales)[row + r]);
        double *out =
            (double *)p->sums + ((row + r) * p->n_panels + panel) * FQ_CPU_PANEL_F64 + first;
        for (size_t i = 0; i < TILE_REGISTERS; i++, out += N_64) {
            const float64x2_t scale = vmulq_f64(vld1q_f64(token_scales + i * N_64), row_scale);
            const float64x2_t scaled = vmulq_f64(sums[r][i], scale);
            vst1q_f64(out, vaddq_f64(vld1q_f64(out), scaled));
        }
    }
}

void fq_cpu_multiply_f64_neon(const fq_cpu_product *product) {
    for (size_t i = 0; i < product->n_panels * TILES_OF_PANEL; i++) {
        const size_t panel = i / TILES_OF_PANEL, tile = i % TILES_OF_PANEL;
        size_t row = 0;
        for (; product->n_rows - row >= TILE_ROWS; row += TILE_ROWS)
            tile_f64(product, panel, tile, row, TILE_ROWS);
        for (; row < product->n_rows; row++)
            tile_f64(product, panel, tile, row, 1);
    }
}
