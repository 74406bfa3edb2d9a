// The kernels of the GEMM as plain loops, for the runtime without a GPU: what lib/gemm.h says, but
// for packed scales, of which the GEMM reads one word for 128 rows.
#include "fake_cuda.h"

#include "kernels/cuda/gemm/gemm_exact.h"
#include "lib/fp8.h"
#include "tests/kernels/reference.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = FQ_CUDA_GEMM_BLOCK };

// ---- The GEMM

static fake_gemms n_gemms;

fake_gemms fake_count_gemms(void) {
    return (fake_gemms){
        .n_dense = __atomic_load_n(&n_gemms.n_dense, __ATOMIC_RELAXED),
        .n_masked = __atomic_load_n(&n_gemms.n_masked, __ATOMIC_RELAXED),
        .n_groups = __atomic_load_n(&n_gemms.n_groups, __ATOMIC_RELAXED),
    };
}

static void write_counts(void) {
    const fake_gemms n = fake_count_gemms();
    FILE *file = fopen(getenv("FAKE_CUDA_GEMMS"), "w");
    if (!file)
        return;
    fprintf(file, "dense %" PRIu64 " masked %" PRIu64 " groups %" PRIu64 "\n", n.n_dense,
            n.n_masked, n.n_groups);
    fclose(file);
}

static void write_counts_at_exit(void) {
    if (getenv("FAKE_CUDA_GEMMS"))
        atexit(write_counts);
}

static void count_gemm(uint64_t *of_kind) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_counts_at_exit);
    __atomic_fetch_add(of_kind, 1, __ATOMIC_RELAXED);
}

// A row of B, and the rows of A and D that meet it.
typedef struct b_row {
    uint32_t group;
    uint64_t row; // of the group
    uint64_t a_row0, d_row0, n_rows;
} b_row;

// In order: 0, 1, 2 ... Of dense and masked products.
static b_row find_b_row(const fq_cuda_gemm *g, uint64_t i) {
    const uint32_t group = (uint32_t)(i / g->n);
    const uint64_t slot = group * g->slot_rows;
    const bool is_masked = g->grouping == FQ_CUDA_GEMM_MASKED;
    return (b_row){.group = group,
                   .row = i % g->n,
                   .a_row0 = g->a_is_shared ? 0 : slot,
                   .d_row0 = slot,
                   .n_rows = is_masked ? g->group_rows[group] : g->m};
}

static uint64_t line_of(const fq_cuda_gemm *g) { return (g->n + 3) / 4 * 4; }

static const uint32_t *words_of(const fq_cuda_gemm *g, uint32_t group) {
    return (const uint32_t *)g->b_scales + group * fq_ceil_div(g->k, 4 * BLOCK) * line_of(g);
}

// The scale of B in a block of columns, by the word of word_row where it is packed.
static float scale_of(const fq_cuda_gemm *g, const b_row *b, uint64_t word_row, uint64_t block) {
    const uint64_t n_blocks = fq_ceil_div(g->k, BLOCK);
    const uint64_t block_row = b->group * fq_ceil_div(g->n, BLOCK) + b->row / BLOCK;
    if (!g->b_scales_packed)
        return ((const float *)g->b_scales)[block_row * n_blocks + block];
    const uint32_t word = words_of(g, b->group)[block / 4 * line_of(g) + word_row];
    return fq_f32_of_e8m0((uint8_t)(word >> (8 * (block % 4))));
}

// All elements of D that a row of B gives.
static void multiply_row(const fq_cuda_gemm *g, const b_row *b, uint64_t word_row) {
    const uint8_t *codes = g->b + (b->group * g->n + b->row) * g->b_stride;
    for (uint64_t i = 0; i < b->n_rows; i++) {
        const uint64_t a_row = b->a_row0 + i;
        float y = 0.0f;
        for (uint64_t col0 = 0; col0 < g->k; col0 += BLOCK) {
            float product = 0.0f;
            for (uint64_t k = col0; k < g->k && k < col0 + BLOCK; k++)
                product += fq_f32_of_e4m3(g->a[a_row * g->a_stride + k]) * fq_f32_of_e4m3(codes[k]);
            const uint64_t block = col0 / BLOCK;
            y += product * (g->a_scales[block * g->a_scales_stride + a_row] *
                            scale_of(g, b, word_row, block));
        }
        ((float *)g->d)[(b->d_row0 + i) * g->d_stride + b->row] = y;
    }
}

static void run_gemm(const void *arguments) {
    const fq_cuda_gemm *g = arguments;
    for (uint32_t i = 0; i < g->n_groups && g->group_rows; i++)
        __atomic_fetch_add(&n_gemms.n_groups, g->group_rows[i] > 0, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < g->n * g->n_groups; i++) {
        const b_row b = find_b_row(g, i);
        multiply_row(g, &b, b.row / BLOCK * BLOCK);
    }
}

static bool differs(const fq_cuda_gemm *g, const b_row *b) {
    const uint64_t n_words = fq_ceil_div(g->k, 4 * BLOCK), line = line_of(g);
    const uint32_t *words = words_of(g, b->group);
    for (uint64_t i = 0; i < n_words; i++) {
        if (words[i * line + b->row] != words[i * line + b->row / BLOCK * BLOCK])
            return true;
    }
    return false;
}

static void run_mend(const void *arguments) {
    const fq_cuda_gemm *g = arguments;
    for (uint64_t i = 0; i < g->n * g->n_groups; i++) {
        const b_row b = find_b_row(g, i);
        if (differs(g, &b))
            multiply_row(g, &b, b.row);
    }
}

// What the GEMM uses: the last is there for masked ones.
#define MEMORY_OF(g)                                                                               \
    { (g)->a, (g)->b, (g)->d, (g)->a_scales, (g)->b_scales, (g)->group_rows }

fq_status fq_cuda_gemm_enqueue(const fq_cuda_gemm *gemm, fq_cuda_gemm_rung rung,
                               struct CUstream_st *stream, fq_error *err) {
    const void *memory[] = MEMORY_OF(gemm);
    const bool is_masked = gemm->grouping == FQ_CUDA_GEMM_MASKED;
    (void)rung;
    if (fake_launch(stream, run_gemm, gemm, sizeof *gemm, memory, is_masked ? 6 : 5) != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "cuda:0: a fake error; use --device cpu");
    count_gemm(is_masked ? &n_gemms.n_masked : &n_gemms.n_dense);
    return FQ_OK;
}

unsigned fq_cuda_product_mend(const fq_cuda_gemm *gemm, struct CUstream_st *stream) {
    const void *memory[] = MEMORY_OF(gemm);
    return fake_launch(stream, run_mend, gemm, sizeof *gemm, memory, gemm->group_rows ? 6 : 5);
}

// ---- What it is held against

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
                           value_of(job->w_dtype, job->w, row * job->w_stride + k);
            if (job->x_scales)
                scale = (double)job->x_scales[block * job->x_scales_stride + token] *
                        (double)job->w_scales[row / BLOCK * job->w_scales_stride + block];
            job->sums[token * job->sums_stride + row] += product * scale;
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

static fq_gemm_sums sum_row(const fq_cuda_products *p, uint64_t first) {
    const bool counts = is_in_range(p->exact + first, p) &&
                        is_in_range(p->reference ? p->reference + first : NULL, p);
    fq_gemm_sums sums = {.n = counts ? p->tokens : 0};
    for (uint64_t t = 0; t < sums.n; t++) {
        const uint64_t i = first + t * p->rows;
        const double y = (double)p->product[i], exact = p->exact[i];
        const double reference = p->reference ? p->reference[i] : y;
        sums.kernel_error2 += (y - exact) * (y - exact);
        sums.exact2 += exact * exact;
        sums.error2 += (y - reference) * (y - reference);
        sums.reference2 += p->reference ? reference * reference : 0.0;
    }
    return sums;
}

static void run_summation(const void *arguments) {
    const summation *s = arguments;
    const fq_cuda_products *p = &s->products;
    for (uint32_t strip = 0; strip < p->n_strips; strip++) {
        for (uint64_t row = 0; row < p->rows; row++) {
            if (!p->group_rows || p->group_rows[strip] > 0)
                s->sums[strip * p->rows + row] = sum_row(p, strip * p->tokens * p->rows + row);
        }
    }
}

unsigned fq_cuda_products_sum_up(const fq_cuda_products *products, fq_gemm_sums *sums,
                                 struct CUstream_st *stream) {
    const summation s = {*products, sums};
    const void *memory[] = {products->product, products->exact, sums, products->reference};
    return fake_launch(stream, run_summation, &s, sizeof s, memory, products->reference ? 4 : 3);
}
