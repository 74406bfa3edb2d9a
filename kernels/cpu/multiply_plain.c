// The specification of the GEMM's inner products.
#include "kernels/cpu/multiply.h"

enum { PANEL_F32 = FQ_CPU_PANEL_F32, PANEL_F64 = FQ_CPU_PANEL_F64 };

static void multiply_panel_f32(const fq_cpu_product *p, size_t row, size_t panel) {
    const float *tokens = (const float *)p->tokens + panel * p->depth * PANEL_F32;
    const float *weights = (const float *)p->weights + row * FQ_CPU_DEPTH;
    const float *token_scales = (const float *)p->token_scales + panel * PANEL_F32;
    const float row_scale = ((const float *)p->row_scales)[row];
    float *sums = (float *)p->sums + (row * p->n_panels + panel) * PANEL_F32;
    float products[PANEL_F32] = {0};
    for (size_t k = 0; k < p->depth; k++) {
        for (size_t t = 0; t < PANEL_F32; t++)
            products[t] += tokens[k * PANEL_F32 + t] * weights[k];
    }
    for (size_t t = 0; t < PANEL_F32; t++)
        sums[t] += products[t] * (token_scales[t] * row_scale);
}

static void multiply_panel_f64(const fq_cpu_product *p, size_t row, size_t panel) {
    const double *tokens = (const double *)p->tokens + panel * p->depth * PANEL_F64;
    const double *weights = (const double *)p->weights + row * FQ_CPU_DEPTH;
    const double *token_scales = (const double *)p->token_scales + panel * PANEL_F64;
    const double row_scale = ((const double *)p->row_scales)[row];
    double *sums = (double *)p->sums + (row * p->n_panels + panel) * PANEL_F64;
    double products[PANEL_F64] = {0};
    for (size_t k = 0; k < p->depth; k++) {
        for (size_t t = 0; t < PANEL_F64; t++)
            products[t] += tokens[k * PANEL_F64 + t] * weights[k];
    }
    for (size_t t = 0; t < PANEL_F64; t++)
        sums[t] += products[t] * (token_scales[t] * row_scale);
}

void fq_cpu_multiply_f32_plain(const fq_cpu_product *product) {
    for (size_t panel = 0; panel < product->n_panels; panel++) {
        for (size_t row = 0; row < product->n_rows; row++)
            multiply_panel_f32(product, row, panel);
    }
}

void fq_cpu_multiply_f64_plain(const fq_cpu_product *product) {
    for (size_t panel = 0; panel < product->n_panels; panel++) {
        for (size_t row = 0; row < product->n_rows; row++)
            multiply_panel_f64(product, row, panel);
    }
}
