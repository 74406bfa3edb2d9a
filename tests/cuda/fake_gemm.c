// The kernels of the GEMM as plain loops, for the runtime without a GPU: what lib/gemm.h says, but
// for packed scales, of which the GEMM reads one word for 128 rows.
#include "fake_cuda.h"

#include "kernels/cuda/gemm/gemm_exact.h"
#include "lib/fp8.h"
#include "tests/kernels/reference.h"

#include <math.h>

enum { BLOCK = FQ_CUDA_GEMM_BLOCK };

// The scale of B in a block of columns, by the word of word_row where it is packed.
static float scale_of(const fq_cuda_gemm *g, uint64_t row, uint64_t word_row, uint64_t block) {
    const uint64_t n_blocks = fq_ceil_div(g->k, BLOCK), line = (g->n + 3) / 4 * 4;
    if (!g->b_scales_packed)
        return ((const float *)g->b_scales)[row / BLOCK * n_blocks + block];
    const uint32_t word = ((const uint32_t *)g->b_scales)[block / 4 * line + word_row];
    return fq_f32_of_e8m0((uint8_t)(word >> (8 * (block % 4))));
}

// All elements of D that a row of B gives.
static void multiply_row(const fq_cuda_gemm *g, uint64_t row, uint64_t word_row) {
    for (uint64_t token = 0; token < g->m; token++) {
        float y = 0.0f;
        for (uint64_t col0 = 0; col0 < g->k; col0 += BLOCK) {
            float product = 0.0f;
            for (uint64_t k = col0; k < g->k && k < col0 + BLOCK; k++)
                product += fq_f32_of_e4m3(g->a[token * g->a_stride + k]) *
                           fq_f32_of_e4m3(g->b[row * g->b_stride + k]);
            const uint64_t block = col0 / BLOCK;
            y += product * (g->a_scales[block * g->a_scales_stride + token] *
                            scale_of(g, row, word_row, block));
        }
        ((float *)g->d)[token * g->d_stride + row] = y;
    }
}

static void run_gemm(const void *arguments) {
    const fq_cuda_gemm *g = arguments;
    for (uint64_t row = 0; row < g->n; row++)
        multiply_row(g, row, row / BLOCK * BLOCK);
}

static bool differs(const fq_cuda_gemm *g, uint64_t row) {
    const uint64_t n_words = fq_ceil_div(fq_ceil_div(g->k, BLOCK), 4), line = (g->n + 3) / 4 * 4;
    const uint32_t *words = g->b_scales;
    for (uint64_t i = 0; i < n_words; i++) {
        if (words[i * line + row] != words[i * line + row / BLOCK * BLOCK])
            return true;
    }
    return false;
}

static void run_mend(const void *arguments) {
    const fq_cuda_gemm *g = arguments;
    for (uint64_t row = 0; row < g->n; row++) {
        if (differs(g, row))
            multiply_row(g, row, row);
    }
}

fq_status fq_cuda_gemm_enqueue(const fq_cuda_gemm *gemm, fq_cuda_gemm_rung rung,
                               struct CUstream_st *stream, fq_error *err) {
    const void *memory[] = {gemm->a, gemm->b, gemm->d, gemm->a_scales, gemm->b_scales};
    (void)rung;
    if (fake_launch(stream, run_gemm, gemm, sizeof *gemm, memory, 5) != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "cuda:0: a fake error; use --device cpu");
    return FQ_OK;
}

unsigned fq_cuda_product_mend(const fq_cuda_gemm *gemm, struct CUstream_st *stream) {
    const void *memory[] = {gemm->a, gemm->b, gemm->d, gemm->a_scales, gemm->b_scales};
    return fake_launch(stream, run_mend, gemm, sizeof *gemm, memory, 5);
}

static double value_of(fq_dtype dtype, const void *array, uint64_t i) {
    return dtype == FQ_F8_E4M3 ? (double)fq_f32_of_e4m3(((const uint8_t *)array)[i])
                               : (double)reference_load(dtype, array, i);
}

static void run_exact(const void *arguments) {
    const fq_cuda_exact *job = arguments;
    const fq_dtype x_dtype = job->w_dtype == FQ_F8_E4M3 ? FQ_F8_E4M3 : FQ_BF16;
    const uint64_t n_blocks = fq_ceil_div(job->cols, BLOCK);
    for (uint64_t i = 0; i < job->tokens * job->rows; i++) {
        const uint64_t token = i / job->rows, row = i % job->rows;
        for (uint64_t block = 0; block < n_blocks; block++) {
            double product = 0.0, scale = 1.0;
            for (uint64_t k = block * BLOCK; k < job->cols && k < (block + 1) * BLOCK; k++)
                product += value_of(x_dtype, job->x, token * job->x_stride + k) *
                           value_of(job->w_dtype, job->w, row * job->cols + k);
            if (job->x_scales)
                scale = (double)job->x_scales[block * job->x_scales_stride + token] *
                        (double)job->w_scales[row / BLOCK * n_blocks + block];
            job->sums[i] += product * scale;
        }
        job->blocks[i] = NAN; // it is the kernels' own
    }
}

unsigned fq_cuda_exact_add(const fq_cuda_exact *job, struct CUstream_st *stream) {
    const void *memory[] = {job->x, job->w, job->blocks, job->sums, job->x_scales, job->w_scales};
    return fake_launch(stream, run_exact, job, sizeof *job, memory, job->x_scales ? 6 : 4);
}

typedef struct addition {
    float *sums;
    const float *product;
    uint64_t n;
} addition;

static void run_addition(const void *arguments) {
    const addition *a = arguments;
    for (uint64_t i = 0; i < a->n; i++)
        a->sums[i] += a->product[i];
}

unsigned fq_cuda_product_add(float *sums, const float *product, uint64_t n,
                             struct CUstream_st *stream) {
    const addition a = {sums, product, n};
    const void *memory[] = {sums, product};
    return fake_launch(stream, run_addition, &a, sizeof a, memory, 2);
}

typedef struct summation {
    fq_cuda_products products;
    fq_gemm_sums *sums;
} summation;

// y: tokens elements, rows apart.
static bool is_in_range(const double *y, const fq_cuda_products *p) {
    double greatest = 0.0;
    for (uint64_t t = 0; y && t < p->tokens; t++) {
        if (!(fabs(y[t * p->rows]) <= 0x1p100))
            return false;
        greatest = fmax(greatest, fabs(y[t * p->rows]));
    }
    return greatest == 0.0 || greatest >= 0x1p-100;
}

static void run_summation(const void *arguments) {
    const summation *s = arguments;
    const fq_cuda_products *p = &s->products;
    for (uint64_t row = 0; row < p->rows; row++) {
        const bool counts = is_in_range(p->exact + row, p) &&
                            is_in_range(p->reference ? p->reference + row : NULL, p);
        fq_gemm_sums sums = {.n = counts ? p->tokens : 0};
        for (uint64_t t = 0; t < sums.n; t++) {
            const uint64_t i = t * p->rows + row;
            const double y = (double)p->product[i], exact = p->exact[i];
            const double reference = p->reference ? p->reference[i] : y;
            sums.kernel_error2 += (y - exact) * (y - exact);
            sums.exact2 += exact * exact;
            sums.error2 += (y - reference) * (y - reference);
            sums.reference2 += p->reference ? reference * reference : 0.0;
        }
        s->sums[row] = sums;
    }
}

unsigned fq_cuda_products_sum_up(const fq_cuda_products *products, fq_gemm_sums *sums,
                                 struct CUstream_st *stream) {
    const summation s = {*products, sums};
    const void *memory[] = {products->product, products->exact, sums, products->reference};
    return fake_launch(stream, run_summation, &s, sizeof s, memory, products->reference ? 4 : 3);
}
