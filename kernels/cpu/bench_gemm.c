// Times the GEMM on the CPU: threads share the rows of B, strip by strip, as verify's lanes do.
#include "kernels/cpu/backend.h"
#include "kernels/cpu/bench.h"
#include "lib/clock.h"
#include "lib/fp8.h"
#include "lib/gemm.h"
#include "lib/pool.h"
#include "lib/scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = FQ_BLOCK_SIZE, STRIP_ROWS = BLOCK };

// A matrix of BF16 and what quantizing made of it.
typedef struct matrix {
    uint16_t *values;
    uint8_t *codes;
    float *scales;
} matrix;

typedef struct bench {
    const fq_bench_gemm_job *job;
    fq_device *device;
    fq_gemm_operand *operand;
    matrix a, b;
    bool with_reference; // in the pass at hand
    uint64_t next_row;
    uint64_t *rows;     // [n_threads]: where the strip begins that each thread is at
    fq_gemm_sums *sums; // [n]
} bench;

static uint64_t strip_rows(const bench *b, uint64_t row0) {
    return b->job->n - row0 < STRIP_ROWS ? b->job->n - row0 : STRIP_ROWS;
}

// ---- One product

static bool take_strip(void *context, uint32_t worker, uint64_t limit, uint64_t *order,
                       fq_error *err) {
    (void)err;
    bench *b = context;
    if (b->next_row >= b->job->n || b->next_row >= limit)
        return false;
    *order = b->rows[worker] = b->next_row;
    b->next_row += strip_rows(b, b->next_row);
    return true;
}

static fq_status multiply_strip(void *context, uint32_t worker, fq_error *err) {
    const bench *b = context;
    const uint64_t k = b->job->k, row0 = b->rows[worker], rows = strip_rows(b, row0);
    const fq_gemm_piece piece = {
        .rows = rows,
        .cols = k,
        .codes = b->b.codes + row0 * k,
        .scales = b->b.scales + row0 / BLOCK * fq_ceil_div(k, BLOCK),
        .source = b->with_reference ? b->b.values + row0 * k : NULL,
        .source_dtype = FQ_BF16,
    };
    const fq_gemm_result result = {.sums = b->sums + row0};
    const fq_gemm_strip strip = {.activations = b->operand, .rows = rows};
    fq_status status = fq_cpu_gemm.begin(b->device, worker, &strip, err);
    if (!status)
        status = fq_cpu_gemm.add(b->device, worker, &piece, err);
    if (!status)
        status = fq_cpu_gemm.end(b->device, worker, &result, err);
    return status;
}

static fq_status multiply(double *seconds, bench *b, fq_error *err) {
    static const fq_pool_work work = {.take = take_strip, .carry_out = multiply_strip};
    const double start = fq_clock_seconds();
    b->next_row = 0;
    const fq_status status = fq_pool_run(&work, b, b->job->n_threads, NULL, err);
    *seconds = fq_clock_seconds() - start;
    return status;
}

// ---- Operands

static fq_status make_matrix(matrix *out, const bench *b, uint64_t rows, uint64_t block_rows,
                             fq_error *err) {
    const uint64_t k = b->job->k, n = rows * k;
    fq_quantize_counts counts;
    out->values = malloc(n * sizeof *out->values);
    out->codes = malloc(n);
    out->scales = malloc(fq_ceil_div(rows, block_rows) * fq_ceil_div(k, BLOCK) * sizeof(float));
    if (!out->values || !out->codes || !out->scales)
        return fq_fail_memory(err);
    fq_bench_fill(out->values, n, FQ_BF16, block_rows);
    const fq_quantize_job job = {
        .source = out->values,
        .source_dtype = FQ_BF16,
        .rows = rows,
        .cols = k,
        .block = {block_rows, BLOCK},
        .pow2_scales = b->job->pow2_scales,
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = out->codes,
        .scales = out->scales,
        .counts = &counts,
    };
    return fq_cpu_backend.quantize(b->device, 0, &job, err);
}

static void free_matrix(matrix *m) {
    free(m->values);
    free(m->codes);
    free(m->scales);
}

static fq_status prepare(bench *b, fq_error *err) {
    const fq_bench_gemm_job *job = b->job;
    const fq_device_options options = {.n_lanes = job->n_threads};
    fq_status status = fq_cpu_backend.open(&b->device, &options, err);
    b->rows = calloc(job->n_threads, sizeof *b->rows);
    b->sums = calloc(job->n, sizeof *b->sums);
    if (!status && (!b->rows || !b->sums))
        status = fq_fail_memory(err);
    if (!status)
        status = make_matrix(&b->a, b, job->m, 1, err);
    if (!status)
        status = make_matrix(&b->b, b, job->n, BLOCK, err);
    const fq_gemm_activations activations = {
        .tokens = job->m,
        .cols = job->k,
        .values = b->a.values,
        .codes = b->a.codes,
        .scales = b->a.scales,
    };
    return status ? status : fq_cpu_gemm.load(&b->operand, b->device, &activations, err);
}

static void discard(bench *b) {
    if (b->device) {
        fq_cpu_gemm.unload(b->device, b->operand);
        fq_cpu_backend.close(b->device);
    }
    free_matrix(&b->a);
    free_matrix(&b->b);
    free(b->rows);
    free(b->sums);
}

// ---- Figures

// Of a product with the reference. calc_diff takes ⟨D,D⟩ for ⟨Y,Y⟩, which it nearly is.
static fq_status measure_accuracy(fq_bench_gemm_figures *out, bench *b, fq_error *err) {
    double kernel_error2 = 0, exact2 = 0, error2 = 0, reference2 = 0, seconds;
    b->with_reference = true;
    const fq_status status = multiply(&seconds, b, err);
    for (uint64_t row = 0; row < b->job->n && !status; row++) {
        kernel_error2 += b->sums[row].kernel_error2;
        exact2 += b->sums[row].exact2;
        error2 += b->sums[row].error2;
        reference2 += b->sums[row].reference2;
    }
    out->rel_l2 = sqrt(kernel_error2 / exact2);
    out->calc_diff = kernel_error2 / (2 * exact2);
    out->unquantized_rel_l2 = sqrt(error2 / reference2);
    b->with_reference = false;
    return status;
}

static fq_status measure(fq_bench_gemm_figures *out, bench *b, fq_error *err) {
    const uint32_t n = b->job->n_repeats;
    double *seconds = calloc(n, sizeof *seconds);
    fq_status status = seconds ? measure_accuracy(out, b, err) : fq_fail_memory(err);
    for (uint32_t i = 0; i < n && !status; i++)
        status = multiply(&seconds[i], b, err);
    if (!status)
        out->seconds = fq_bench_median(seconds, n);
    free(seconds);
    return status;
}

fq_status fq_cpu_bench_gemm(fq_bench_gemm_figures *out, const fq_bench_gemm_job *job,
                            fq_error *err) {
    bench b = {.job = job};
    const double m = (double)job->m, n = (double)job->n, k = (double)job->k;
    if (fmax(m, n) * k > (double)(SIZE_MAX / 16))
        return fq_fail(err, FQ_DEVICE, "bench: no memory holds such matrices; take smaller ones");
    *out = (fq_bench_gemm_figures){
        .single_seconds = (double)NAN,
        .cublaslt_seconds = (double)NAN,
        .flop = 2 * m * n * k,
        .nbytes = m * k + n * k + 4 * m * n,
        .backend = fq_cpu_backend.name,
    };
    fq_status status = prepare(&b, err);
    if (!status)
        status = measure(out, &b, err);
    if (!status) {
        snprintf(out->kernel, sizeof out->kernel, "%s", fq_cpu_backend.describe(b.device));
        snprintf(out->device, sizeof out->device, "%s", fq_cpu_backend.describe(b.device));
    }
    discard(&b);
    return status;
}
