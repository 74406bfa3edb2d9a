// Random operands of a product.
#ifndef FQ_TESTS_KERNELS_GEMM_OPERANDS_H
#define FQ_TESTS_KERNELS_GEMM_OPERANDS_H

#include "random.h"
#include "reference_gemm.h"
#include "trial.h"

// The operands of a random product, to be freed.
typedef struct gemm_operands {
    gemm_case c;
    uint16_t *values;
    uint8_t *x_codes, *w_codes;
    float *x_scales, *w_scales;
    void *source;
    uint32_t *packed;
} gemm_operands;

static inline float gemm_random_scale(uint64_t *state, bool pow2) {
    const uint32_t bits = 0x3A000000u + random_below(state, 0x03000000u);
    return fq_f32_of_bits(pow2 ? bits & 0xFF800000u : bits);
}

static inline void gemm_fill_codes(uint8_t *codes, size_t n, uint64_t *state) {
    for (size_t i = 0; i < n; i++) {
        const uint8_t code = (uint8_t)random_next(state);
        codes[i] = (code & 0x7F) == FQ_E4M3_NAN_CODE ? 0x80 : code;
    }
}

static inline void gemm_fill_source(void *source, fq_dtype dtype, size_t n, uint64_t *state) {
    for (size_t i = 0; i < n; i++) {
        bool saturated = false;
        const float x = ((float)random_below(state, 1u << 24) - 0x1p23f) * 0x1p-25f;
        reference_store(dtype, source, i, x, &saturated);
    }
}

// Words that say what the scales say.
static inline void gemm_operands_pack(gemm_operands *o) {
    const fq_gemm_piece *w = &o->c.w;
    const uint64_t n_blocks = fq_ceil_div(w->cols, 128), n_words = fq_ceil_div(w->cols, 512);
    o->packed = trial_alloc(n_words * w->rows * sizeof *o->packed);
    memset(o->packed, 0, n_words * w->rows * sizeof *o->packed);
    for (uint64_t row = 0; row < w->rows; row++) {
        for (uint64_t block = 0; block < n_blocks; block++) {
            const uint32_t exponent = fq_e8m0_of_f32_up(reference_weight_scale(w, row, block));
            o->packed[block / 4 * w->rows + row] |= exponent << (8 * (block % 4));
        }
    }
    o->c.w.packed = o->packed;
    o->c.w.packed_stride = w->rows;
}

static inline gemm_operands gemm_operands_make(uint64_t tokens, uint64_t rows, uint64_t cols,
                                               fq_dtype dtype, bool packed, uint64_t *state) {
    const uint64_t n_blocks = fq_ceil_div(cols, 128), n_rows = fq_ceil_div(rows, 128);
    gemm_operands o = {
        .values = trial_alloc(tokens * cols * 2),
        .x_codes = trial_alloc(tokens * cols),
        .w_codes = trial_alloc(rows * cols),
        .x_scales = trial_alloc(tokens * n_blocks * sizeof(float)),
        .w_scales = trial_alloc(n_rows * n_blocks * sizeof(float)),
        .source = trial_alloc(rows * cols * fq_dtype_size(dtype)),
    };
    gemm_fill_codes(o.x_codes, tokens * cols, state);
    gemm_fill_codes(o.w_codes, rows * cols, state);
    gemm_fill_source(o.values, FQ_BF16, tokens * cols, state);
    gemm_fill_source(o.source, dtype, rows * cols, state);
    for (uint64_t i = 0; i < tokens * n_blocks; i++)
        o.x_scales[i] = gemm_random_scale(state, packed);
    for (uint64_t i = 0; i < n_rows * n_blocks; i++)
        o.w_scales[i] = gemm_random_scale(state, packed);
    o.c.x = (fq_gemm_activations){.tokens = tokens,
                                  .cols = cols,
                                  .values = o.values,
                                  .codes = o.x_codes,
                                  .scales = o.x_scales};
    o.c.w = (fq_gemm_piece){.rows = rows,
                            .cols = cols,
                            .codes = o.w_codes,
                            .scales = o.w_scales,
                            .source = o.source,
                            .source_dtype = dtype};
    if (packed)
        gemm_operands_pack(&o);
    return o;
}

static inline void gemm_operands_free(gemm_operands *o) {
    free(o->values);
    free(o->x_codes);
    free(o->w_codes);
    free(o->x_scales);
    free(o->w_scales);
    free(o->source);
    free(o->packed);
}

// docs/numerics.md: 127 additions and two products in a block, and one addition for each block; or
// four steps of a tensor core.
static inline double gemm_bound(const gemm_case *c, const gemm_element *y) {
    const double tensor_cores = subjects_are_gpus() ? 4 * 33 * 0x1p-13 : 0.0;
    return (tensor_cores + (130.0 + (double)c->x.cols / 128.0) * 0x1p-24) * y->magnitude;
}

#endif
