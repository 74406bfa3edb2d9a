// Times quantize and dequantize on the CPU against memcpy of as many bytes, in the same threads.
#include "kernels/cpu/bench.h"

#include "kernels/cpu/backend.h"
#include "lib/clock.h"
#include "lib/fp8.h"
#include "lib/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// As much as a band of a run holds.
enum { BAND_ELEMENTS = 2 << 20 };

typedef struct matrix {
    char *floats;   // [rows, cols] of job->dtype
    uint8_t *codes; // [rows, cols]
    float *scales;  // [n_blocks]
} matrix;

typedef struct row_range {
    uint64_t row0, rows;
} row_range;

typedef struct bench bench;

// What is done to a band: quantize, cast back, or copy.
typedef fq_status band_fn(const bench *b, uint32_t worker, const row_range *band, fq_error *err);

struct bench {
    const fq_bench_job *job;
    fq_bench_sizes sizes;
    fq_device *device;
    matrix *matrices; // [n_matrices]
    uint32_t n_matrices;
    uint64_t band_rows;
    // The pass at hand:
    const matrix *matrix;
    band_fn *carry_out;
    uint64_t next_row;
    row_range *bands; // [n_threads]: what each thread is at
};

// ---- Bands

static float *scales_at(const bench *b, uint64_t row0) {
    return b->matrix->scales +
           row0 / b->job->block.rows * fq_ceil_div(b->job->cols, b->job->block.cols);
}

static fq_status quantize_band(const bench *b, uint32_t worker, const row_range *band,
                               fq_error *err) {
    fq_quantize_counts counts;
    const uint64_t first = band->row0 * b->job->cols;
    const fq_quantize_job job = {
        .source = b->matrix->floats + first * fq_dtype_size(b->job->dtype),
        .source_dtype = b->job->dtype,
        .rows = band->rows,
        .cols = b->job->cols,
        .block = b->job->block,
        .pow2_scales = b->job->pow2_scales,
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = b->matrix->codes + first,
        .scales = scales_at(b, band->row0),
        .counts = &counts,
    };
    return fq_cpu_backend.quantize(b->device, worker, &job, err);
}

static fq_status dequantize_band(const bench *b, uint32_t worker, const row_range *band,
                                 fq_error *err) {
    fq_dequantize_counts counts;
    const uint64_t first = band->row0 * b->job->cols;
    const fq_dequantize_job job = {
        .codes = b->matrix->codes + first,
        .rows = band->rows,
        .cols = b->job->cols,
        .block = b->job->block,
        .scales = scales_at(b, band->row0),
        .target_dtype = b->job->dtype,
        .target = b->matrix->floats + first * fq_dtype_size(b->job->dtype),
        .counts = &counts,
    };
    return fq_cpu_backend.dequantize(b->device, worker, &job, err);
}

// One byte read and one written for each element; the codes of a matrix to cast back stay.
static fq_status copy_band(const bench *b, uint32_t worker, const row_range *band, fq_error *err) {
    (void)worker, (void)err;
    const uint64_t first = band->row0 * b->job->cols, n = band->rows * b->job->cols;
    if (b->job->operation == FQ_BENCH_QUANTIZE)
        memcpy(b->matrix->codes + first, b->matrix->floats + first, n);
    else
        memcpy(b->matrix->floats + first, b->matrix->codes + first, n);
    __asm__ volatile("" ::: "memory"); // the copy is wanted though nobody reads it
    return FQ_OK;
}

static bool take_band(void *context, uint32_t worker, uint64_t limit, uint64_t *order,
                      fq_error *err) {
    (void)err;
    bench *b = context;
    const uint64_t row0 = b->next_row;
    if (row0 >= b->job->rows || row0 >= limit)
        return false;
    const uint64_t left = b->job->rows - row0;
    b->bands[worker] = (row_range){row0, left < b->band_rows ? left : b->band_rows};
    b->next_row += b->bands[worker].rows;
    *order = row0;
    return true;
}

static fq_status carry_out_band(void *context, uint32_t worker, fq_error *err) {
    const bench *b = context;
    return b->carry_out(b, worker, &b->bands[worker], err);
}

// One pass over a matrix, by all threads.
static fq_status pass(bench *b, band_fn *carry_out, uint32_t index, fq_error *err) {
    static const fq_pool_work work = {.take = take_band, .carry_out = carry_out_band};
    b->matrix = &b->matrices[index];
    b->carry_out = carry_out;
    b->next_row = 0;
    return fq_pool_run(&work, b, b->job->n_threads, NULL, err);
}

// ---- Time

// Seconds of one pass, over enough of them that the clock's grain and the start of threads do not
// count.
static fq_status time_passes(double *out, bench *b, band_fn *carry_out, fq_error *err) {
    enum { ENOUGH_NBYTES = 64 << 20, ENOUGH_PASSES = 100 };
    uint64_t n_passes = 1 + ENOUGH_NBYTES / b->sizes.nbytes;
    if (n_passes > ENOUGH_PASSES)
        n_passes = ENOUGH_PASSES;
    const double start = fq_clock_seconds();
    for (uint64_t k = 0; k < n_passes; k++) {
        const fq_status status = pass(b, carry_out, (uint32_t)(k % b->n_matrices), err);
        if (status)
            return status;
    }
    *out = (fq_clock_seconds() - start) / (double)n_passes;
    return FQ_OK;
}

static fq_status measure(fq_bench_figures *out, bench *b, fq_error *err) {
    const uint32_t n = b->job->n_repeats;
    band_fn *operation = b->job->operation == FQ_BENCH_QUANTIZE ? quantize_band : dequantize_band;
    double *seconds = calloc(2 * (size_t)n, sizeof *seconds), *copies = seconds + n;
    fq_status status = seconds ? FQ_OK : fq_fail_memory(err);
    for (uint32_t i = 0; i < n && !status; i++) {
        status = time_passes(&copies[i], b, copy_band, err);
        if (!status)
            status = time_passes(&seconds[i], b, operation, err);
    }
    if (!status) {
        // A pass of copying moves two bytes for each element.
        const double times = (double)b->sizes.nbytes / (2.0 * (double)b->sizes.n_elements);
        out->nbytes = b->sizes.nbytes;
        out->seconds = fq_bench_median(seconds, n);
        out->copy_seconds = times * fq_bench_median(copies, n);
        out->backend = fq_cpu_backend.name;
        snprintf(out->device, sizeof out->device, "%s", fq_cpu_backend.describe(b->device));
    }
    free(seconds);
    return status;
}

// ---- Matrices

// Fills a matrix and quantizes it, which also brings all of its memory in.
static fq_status prepare_matrix(bench *b, uint32_t index, fq_error *err) {
    matrix *m = &b->matrices[index];
    m->floats = fq_cpu_backend.host_alloc(b->device, b->sizes.source_nbytes);
    m->codes = fq_cpu_backend.host_alloc(b->device, b->sizes.n_elements);
    m->scales = fq_cpu_backend.host_alloc(b->device, b->sizes.n_blocks * sizeof(float));
    if (!m->floats || !m->codes || !m->scales)
        return fq_fail_memory(err);
    fq_bench_fill(m->floats, b->sizes.n_elements, b->job->dtype, 1 + index);
    return pass(b, quantize_band, index, err);
}

static fq_status prepare(bench *b, fq_error *err) {
    const fq_device_options options = {.n_lanes = b->job->n_threads,
                                       .max_elements = b->band_rows * b->job->cols,
                                       .max_blocks = b->sizes.n_blocks};
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    fq_status status = fq_cpu_backend.open(&b->device, &options, err);
    if (status)
        return status;
    b->n_matrices = fq_bench_n_matrices(&b->sizes, cache > 0 ? (uint64_t)cache : 0);
    b->matrices = calloc(b->n_matrices, sizeof *b->matrices);
    b->bands = calloc(b->job->n_threads, sizeof *b->bands);
    if (!b->matrices || !b->bands)
        return fq_fail_memory(err);
    for (uint32_t i = 0; i < b->n_matrices && !status; i++)
        status = prepare_matrix(b, i, err);
    return status;
}

static void discard(bench *b) {
    for (uint32_t i = 0; i < b->n_matrices && b->matrices; i++) {
        fq_cpu_backend.host_free(b->device, b->matrices[i].floats, b->sizes.source_nbytes);
        fq_cpu_backend.host_free(b->device, b->matrices[i].codes, b->sizes.n_elements);
        fq_cpu_backend.host_free(b->device, b->matrices[i].scales,
                                 b->sizes.n_blocks * sizeof(float));
    }
    free(b->bands);
    free(b->matrices);
    fq_cpu_backend.close(b->device);
}

// Whole blocks, and a multiple of what keeps every band aligned to 64 bytes.
static uint64_t choose_band_rows(const fq_bench_job *job) {
    enum { ALIGNMENT = 64 };
    uint64_t unit = job->block.rows;
    while (unit % ALIGNMENT != 0)
        unit += job->block.rows;
    const uint64_t n_units = BAND_ELEMENTS / job->cols / unit;
    return n_units > 1 ? n_units * unit : unit;
}

fq_status fq_cpu_bench(fq_bench_figures *out, const fq_bench_job *job, fq_error *err) {
    bench b = {.job = job, .band_rows = choose_band_rows(job)};
    fq_status status = fq_bench_sizes_of(&b.sizes, job, err);
    if (!status)
        status = prepare(&b, err);
    if (!status)
        status = measure(out, &b, err);
    discard(&b);
    return status;
}
