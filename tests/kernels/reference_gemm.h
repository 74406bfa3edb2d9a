// The GEMM and the products it is held against, as lib/gemm.h defines them, one element after the
// other.
#ifndef FQ_TESTS_KERNELS_REFERENCE_GEMM_H
#define FQ_TESTS_KERNELS_REFERENCE_GEMM_H

#include "lib/fp8.h"
#include "lib/gemm.h"
#include "reference.h"

// A whole product: activations, and the weight as one piece.
typedef struct gemm_case {
    fq_gemm_activations x;
    fq_gemm_piece w;
} gemm_case;

typedef struct gemm_element {
    float product;
    double exact, reference;
    double magnitude; // Σ |â·ŵ|, of what product is the sum
} gemm_element;

static inline float reference_weight_scale(const fq_gemm_piece *w, uint64_t row, uint64_t block) {
    return w->scales[row / 128 * fq_ceil_div(w->cols, 128) + block];
}

static inline float reference_packed_scale(const fq_gemm_piece *w, uint64_t row, uint64_t block) {
    if (!w->packed)
        return reference_weight_scale(w, row, block);
    return fq_f32_of_e8m0(
        (uint8_t)(w->packed[block / 4 * w->packed_stride + row] >> (8 * (block % 4))));
}

// Element [token, row] of the result.
static inline gemm_element reference_gemm(const gemm_case *c, uint64_t token, uint64_t row) {
    const uint64_t cols = c->x.cols, n_blocks = fq_ceil_div(cols, 128);
    gemm_element y = {0};
    for (uint64_t block = 0; block < n_blocks; block++) {
        float product = 0.0f;
        double exact = 0.0, reference = 0.0;
        for (uint64_t k = block * 128; k < cols && k < block * 128 + 128; k++) {
            const float a = fq_f32_of_e4m3(c->x.codes[token * cols + k]);
            const float b = fq_f32_of_e4m3(c->w.codes[row * cols + k]);
            product += a * b;
            exact += (double)a * (double)b;
            if (!c->w.source)
                continue;
            const float x = fq_f32_of_bf16(c->x.values[token * cols + k]);
            const float w = reference_load(c->w.source_dtype, c->w.source, row * cols + k);
            reference += (double)x * (double)w;
        }
        const float sa = c->x.scales[token * n_blocks + block];
        const double sb = (double)reference_weight_scale(&c->w, row, block);
        const float packed = reference_packed_scale(&c->w, row, block);
        y.product += product * (sa * packed);
        y.exact += exact * ((double)sa * sb);
        y.reference += reference;
        for (uint64_t k = block * 128; k < cols && k < block * 128 + 128; k++) {
            y.magnitude += fabs((double)fq_f32_of_e4m3(c->x.codes[token * cols + k]) *
                                (double)fq_f32_of_e4m3(c->w.codes[row * cols + k]) *
                                ((double)sa * (double)packed));
        }
    }
    return y;
}

// Whether the row with these elements counts.
static inline bool reference_gemm_counts(const gemm_element *row, uint64_t tokens) {
    bool any[2] = {false, false}, any_large[2] = {false, false};
    for (uint64_t t = 0; t < tokens; t++) {
        const double values[2] = {fabs(row[t].exact), fabs(row[t].reference)};
        for (int i = 0; i < 2; i++) {
            if (isnan(values[i]) || values[i] > 0x1p100)
                return false;
            any[i] = any[i] || values[i] > 0.0;
            any_large[i] = any_large[i] || values[i] >= 0x1p-100;
        }
    }
    return any[0] == any_large[0] && any[1] == any_large[1];
}

// The sums of a row.
static inline fq_gemm_sums reference_gemm_sums(const gemm_case *c, const gemm_element *row) {
    fq_gemm_sums sums = {.n = reference_gemm_counts(row, c->x.tokens) ? c->x.tokens : 0};
    for (uint64_t t = 0; t < sums.n; t++) {
        const double kernel_error = (double)row[t].product - row[t].exact;
        const double error = (double)row[t].product - row[t].reference;
        sums.kernel_error2 += kernel_error * kernel_error;
        sums.exact2 += row[t].exact * row[t].exact;
        sums.error2 += c->w.source ? error * error : 0.0;
        sums.reference2 += c->w.source ? row[t].reference * row[t].reference : 0.0;
    }
    return sums;
}

#endif
