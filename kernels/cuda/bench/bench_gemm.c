// Times the GEMM on operands in the GPU's memory: alone, and back to back in a CUDA graph, beside
// cuBLASLt's; and says how exact it is.
#include "kernels/cuda/bench/bench.h"

#include "kernels/bench.h"
#include "kernels/cuda/bench/bench_fill.h"
#include "kernels/cuda/bench/bench_timer.h"
#include "kernels/cuda/bench/cublaslt.h"
#include "kernels/cuda/gemm/gemm_exact.h"
#include "kernels/cuda/launch.h"
#include "lib/fp8.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BLOCK = FQ_CUDA_GEMM_BLOCK,
    MIN_SLOT_ROWS = 4096, // of masked groups: what engines set aside
    MAX_SETS = 24,
    MAX_ARRAYS = 8 * MAX_SETS,
    CHECKED_ROWS = 16,
    CACHE_NBYTES = 64 << 20, // as much as any GPU has, or nearly
};

// One product's operands, and B's scales once more as cuBLASLt wants them.
typedef struct set {
    fq_cuda_gemm gemm;
    float *padded_scales;
} set;

typedef struct bench {
    const fq_bench_gemm_job *job;
    fq_cuda_timer timer;
    uint64_t slot_rows, rows; // of A: from group to group, and of all
    const uint32_t *group_rows;
    void *a_values, *b_values; // BF16, of the set that was made last
    set sets[MAX_SETS];
    uint32_t n_sets;
    fq_cublaslt *lt;
    void *arrays[MAX_ARRAYS];
    size_t n_arrays;
} bench;

static uint64_t n_col_blocks(const bench *b) { return fq_ceil_div(b->job->k, BLOCK); }

static fq_status check(const bench *b, const char *call, unsigned code, fq_error *err) {
    return fq_cuda_timer_check(&b->timer, call, code, err);
}

// ---- Operands

// GPU memory that is freed at the end.
static fq_status take(void *out, bench *b, uint64_t n, size_t size, fq_error *err) {
    void **array = &b->arrays[b->n_arrays];
    assert(b->n_arrays < MAX_ARRAYS);
    const fq_status status = check(b, "cudaMalloc", cudaMalloc(array, n * size), err);
    if (!status)
        b->n_arrays++;
    *(void **)out = *array;
    return status;
}

static fq_status quantize_activations(const bench *b, const set *s, fq_error *err) {
    const fq_cuda_activations activations = {
        .m = b->rows,
        .k = b->job->k,
        .source = b->a_values,
        .source_stride = b->job->k,
        .pow2_scales = b->job->pow2_scales,
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = (uint8_t *)(uintptr_t)s->gemm.a,
        .codes_stride = s->gemm.a_stride,
        .scales = (float *)(uintptr_t)s->gemm.a_scales,
        .scales_stride = s->gemm.a_scales_stride,
    };
    return fq_cuda_activations_enqueue(&activations, b->timer.stream, err);
}

// Group by group, whose grids of scales may end within a block of rows.
static fq_status quantize_weights(const bench *b, const set *s, fq_error *err) {
    const uint64_t n = b->job->n, k = b->job->k, n_scales = fq_ceil_div(n, BLOCK) * n_col_blocks(b);
    fq_cuda_quantize_counts *counts = b->timer.scratch;
    fq_status status = FQ_OK;
    for (uint64_t group = 0; group < b->job->n_groups && !status; group++) {
        const fq_quantize_job job = {
            .source = (const uint16_t *)b->b_values + group * n * k,
            .source_dtype = FQ_BF16,
            .rows = n,
            .cols = k,
            .block = {BLOCK, BLOCK},
            .pow2_scales = b->job->pow2_scales,
            .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
            .codes = (uint8_t *)(uintptr_t)s->gemm.b + group * n * k,
            .scales = (float *)(uintptr_t)s->gemm.b_scales + group * n_scales,
        };
        status = check(b, "quantize", fq_cuda_quantize(&job, counts, b->timer.stream), err);
    }
    return status;
}

static fq_status fill(const bench *b, set *s, uint64_t seed, fq_error *err) {
    const size_t line = n_col_blocks(b) * sizeof(float),
                 padded = (n_col_blocks(b) + 3) / 4 * 4 * sizeof(float);
    const uint64_t n_a = b->rows * b->job->k, n_b = b->job->n_groups * b->job->n * b->job->k;
    fq_status status = check(b, "random numbers",
                             fq_cuda_bench_fill(b->a_values, n_a, seed, b->timer.stream), err);
    if (!status)
        status = check(b, "random numbers",
                       fq_cuda_bench_fill(b->b_values, n_b, seed + 1, b->timer.stream), err);
    if (!status)
        status = quantize_activations(b, s, err);
    if (!status)
        status = quantize_weights(b, s, err);
    if (!status)
        status = check(b, "cudaMemcpy2DAsync",
                       cudaMemcpy2DAsync(s->padded_scales, padded, s->gemm.b_scales, line, line,
                                         fq_ceil_div(b->job->n, BLOCK), cudaMemcpyDefault,
                                         b->timer.stream),
                       err);
    return status;
}

static fq_status make_set(bench *b, set *s, uint64_t seed, fq_error *err) {
    const fq_bench_gemm_job *job = b->job;
    const uint64_t n_row_blocks = fq_ceil_div(job->n, BLOCK), scales_stride = (b->rows + 3) / 4 * 4;
    uint8_t *a = NULL, *weights = NULL;
    float *a_scales = NULL, *b_scales = NULL;
    void *d = NULL;
    fq_status status = take(&a, b, b->rows, job->k, err);
    if (!status)
        status = take(&weights, b, job->n_groups * job->n, job->k, err);
    if (!status)
        status = take(&a_scales, b, n_col_blocks(b) * scales_stride, sizeof *a_scales, err);
    if (!status)
        status = take(&b_scales, b, job->n_groups * n_row_blocks * n_col_blocks(b),
                      sizeof *b_scales, err);
    if (!status)
        status = take(&s->padded_scales, b, n_row_blocks * (n_col_blocks(b) + 3),
                      sizeof *s->padded_scales, err);
    if (!status)
        status = take(&d, b, b->rows * job->n, sizeof(uint16_t), err);
    s->gemm = (fq_cuda_gemm){
        .m = b->rows,
        .n = job->n,
        .k = job->k,
        .a = a,
        .b = weights,
        .d = d,
        .a_stride = job->k,
        .b_stride = job->k,
        .d_stride = job->n,
        .a_scales = a_scales,
        .a_scales_stride = scales_stride,
        .b_scales = b_scales,
        .grouping = (fq_cuda_gemm_grouping)job->grouping,
        .n_groups = job->n_groups,
        .slot_rows = b->slot_rows,
        .group_rows = b->group_rows,
    };
    return status ? status : fill(b, s, seed, err);
}

static_assert((int)FQ_BENCH_DENSE == (int)FQ_CUDA_GEMM_DENSE &&
                  (int)FQ_BENCH_CONTIGUOUS == (int)FQ_CUDA_GEMM_CONTIGUOUS &&
                  (int)FQ_BENCH_MASKED == (int)FQ_CUDA_GEMM_MASKED,
              "groupings are cast");

// Each group has m rows: where its rows end, or how many they are.
static fq_status make_group_rows(bench *b, fq_error *err) {
    const uint32_t n = b->job->n_groups;
    uint32_t *on_gpu = NULL, *rows = malloc(n * sizeof *rows);
    fq_status status = rows ? take(&on_gpu, b, n, sizeof *rows, err) : fq_fail_memory(err);
    for (uint32_t i = 0; i < n && !status; i++)
        rows[i] = (uint32_t)(b->job->grouping == FQ_BENCH_MASKED ? b->job->m : (i + 1) * b->job->m);
    if (!status)
        status = check(b, "cudaMemcpy",
                       cudaMemcpy(on_gpu, rows, n * sizeof *rows, cudaMemcpyDefault), err);
    if (!status)
        status = fq_gpu_finish(b->timer.gpu, err);
    b->group_rows = on_gpu;
    free(rows);
    return status;
}

static double nbytes_of(const fq_bench_gemm_job *job) {
    const double n_groups = job->n_groups, m = (double)job->m, n = (double)job->n,
                 k = (double)job->k;
    return n_groups * (m * k + n * k + 2.0 * m * n);
}

// So many sets that no cache holds what the next product reads.
static fq_status prepare(bench *b, fq_error *err) {
    const fq_bench_gemm_job *job = b->job;
    const bool masked = job->grouping == FQ_BENCH_MASKED;
    const fq_bench_sizes sizes = {.nbytes = (uint64_t)nbytes_of(job)};
    b->n_sets = fq_bench_n_matrices(&sizes, CACHE_NBYTES);
    b->n_sets = b->n_sets > MAX_SETS ? MAX_SETS : b->n_sets;
    b->slot_rows = masked && job->m < MIN_SLOT_ROWS ? MIN_SLOT_ROWS : job->m;
    b->rows = job->n_groups * b->slot_rows;
    fq_status status = job->grouping == FQ_BENCH_DENSE ? FQ_OK : make_group_rows(b, err);
    if (!status)
        status = take(&b->a_values, b, b->rows * job->k, sizeof(uint16_t), err);
    if (!status)
        status = take(&b->b_values, b, job->n_groups * job->n * job->k, sizeof(uint16_t), err);
    // The first one last: its values stay, to be compared with.
    for (uint32_t i = b->n_sets; i > 0 && !status; i--)
        status = make_set(b, &b->sets[i - 1], 2 * i, err);
    return status ? status
                  : check(b, "cudaStreamSynchronize", cudaStreamSynchronize(b->timer.stream), err);
}

// ---- Time

static fq_status enqueue(const void *context, uint32_t i, cudaStream_t stream, fq_error *err) {
    const bench *b = context;
    return fq_cuda_gemm_enqueue(&b->sets[i % b->n_sets].gemm, FQ_CUDA_GEMM_AUTO, stream, err);
}

static fq_status enqueue_cublaslt(const void *context, uint32_t i, cudaStream_t stream,
                                  fq_error *err) {
    const bench *b = context;
    fq_cuda_gemm gemm = b->sets[i % b->n_sets].gemm;
    gemm.b_scales = b->sets[i % b->n_sets].padded_scales;
    return fq_cublaslt_enqueue(b->lt, &gemm, stream) ? FQ_OK
                                                     : fq_fail(err, FQ_DEVICE, "cuBLASLt failed");
}

static fq_status measure_time(fq_bench_gemm_figures *out, bench *b, fq_error *err) {
    const fq_cuda_work ours = {b, enqueue}, theirs = {b, enqueue_cublaslt};
    const uint32_t n_repeats = b->job->n_repeats;
    const bool dense = b->job->grouping == FQ_BENCH_DENSE;
    out->cublaslt_seconds = (double)NAN;
    fq_status status = fq_cuda_gemm_describe(out->kernel, sizeof out->kernel, &b->sets[0].gemm,
                                             FQ_CUDA_GEMM_AUTO, err);
    if (!status)
        status = fq_cuda_time_single(&out->single_seconds, &b->timer, &ours, n_repeats, err);
    if (!status)
        status = fq_cuda_time_graph(&out->seconds, &b->timer, &ours, b->n_sets, out->single_seconds,
                                    n_repeats, err);
    b->lt = status || !dense ? NULL : fq_cublaslt_open();
    if (b->lt && fq_cublaslt_plan(b->lt, &b->sets[0].gemm, true))
        status = fq_cuda_time_graph(&out->cublaslt_seconds, &b->timer, &theirs, b->n_sets,
                                    out->single_seconds, n_repeats, err);
    return status;
}

// ---- Accuracy

// In host memory, [n] each: what the GEMM gave, and two products in FP64.
typedef struct products {
    uint16_t *d;
    double *exact, *unquantized;
} products;

static void compare(fq_bench_gemm_figures *out, const products *p, uint64_t n) {
    double error2 = 0, d2 = 0, y2 = 0, all_error2 = 0, all2 = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double d = (double)fq_f32_of_bf16(p->d[i]), y = p->exact[i], all = p->unquantized[i];
        error2 += (d - y) * (d - y);
        d2 += d * d;
        y2 += y * y;
        all_error2 += (d - all) * (d - all);
        all2 += all * all;
    }
    out->rel_l2 = sqrt(error2 / y2);
    out->calc_diff = error2 / (d2 + y2);
    out->unquantized_rel_l2 = sqrt(all_error2 / all2);
}

static fq_status multiply_exactly(bench *b, double *exact, double *unquantized, uint64_t rows,
                                  fq_error *err) {
    enum { MAX_BLOCKS = 16 };
    const fq_cuda_gemm *g = &b->sets[0].gemm;
    const uint64_t n = rows * g->n;
    fq_cuda_exact job = {
        .tokens = rows,
        .rows = g->n,
        .cols = g->k,
        .x = g->a,
        .x_stride = g->a_stride,
        .x_scales = g->a_scales,
        .x_scales_stride = g->a_scales_stride,
        .w = g->b,
        .w_stride = g->k,
        .w_dtype = FQ_F8_E4M3,
        .w_scales = g->b_scales,
        .w_scales_stride = fq_ceil_div(g->k, FQ_CUDA_GEMM_BLOCK),
        .n_blocks = MAX_BLOCKS,
        .sums = exact,
        .sums_stride = g->n,
    };
    fq_status status = take(&job.blocks, b, MAX_BLOCKS * n, sizeof(double), err);
    if (!status)
        status = check(b, "cudaMemset", cudaMemset(exact, 0, n * sizeof *exact), err);
    if (!status)
        status = check(b, "cudaMemset", cudaMemset(unquantized, 0, n * sizeof *exact), err);
    if (!status)
        status = fq_gpu_finish(b->timer.gpu, err);
    if (!status)
        status = check(b, "product in FP64", fq_cuda_exact_add(&job, b->timer.stream), err);
    job.x = b->a_values;
    job.x_scales = NULL;
    job.w = b->b_values;
    job.w_dtype = FQ_BF16;
    job.sums = unquantized;
    if (!status)
        status = check(b, "product in FP64", fq_cuda_exact_add(&job, b->timer.stream), err);
    return status ? status
                  : check(b, "cudaStreamSynchronize", cudaStreamSynchronize(b->timer.stream), err);
}

// The first rows of the first group.
static fq_status measure_accuracy(fq_bench_gemm_figures *out, bench *b, fq_error *err) {
    const uint64_t rows = b->job->m < CHECKED_ROWS ? b->job->m : CHECKED_ROWS;
    const uint64_t n = rows * b->job->n;
    double *exact = NULL, *unquantized = NULL; // on the GPU
    products p = {.d = malloc(n * sizeof *p.d),
                  .exact = malloc(n * sizeof *p.exact),
                  .unquantized = malloc(n * sizeof *p.unquantized)};
    fq_status status = p.d && p.exact && p.unquantized ? FQ_OK : fq_fail_memory(err);
    if (!status)
        status = take(&exact, b, n, sizeof *exact, err);
    if (!status)
        status = take(&unquantized, b, n, sizeof *unquantized, err);
    if (!status)
        status = enqueue(b, 0, b->timer.stream, err);
    if (!status)
        status = multiply_exactly(b, exact, unquantized, rows, err);
    unsigned code = 0;
    if (!status)
        code = cudaMemcpy(p.d, b->sets[0].gemm.d, n * sizeof *p.d, cudaMemcpyDefault);
    if (!status && !code)
        code = cudaMemcpy(p.exact, exact, n * sizeof *exact, cudaMemcpyDefault);
    if (!status && !code)
        code = cudaMemcpy(p.unquantized, unquantized, n * sizeof *exact, cudaMemcpyDefault);
    if (!status)
        status = check(b, "cudaMemcpy", code, err);
    if (!status)
        compare(out, &p, n);
    free(p.d);
    free(p.exact);
    free(p.unquantized);
    return status;
}

// ---- The whole

static void discard(bench *b) {
    fq_cublaslt_close(b->lt);
    for (size_t i = 0; i < b->n_arrays; i++)
        (void)cudaFree(b->arrays[i]);
    fq_cuda_timer_close(&b->timer);
}

static fq_status check_size(const fq_bench_gemm_job *job, fq_error *err) {
    const double most = 0x1p31, rows = (double)job->n_groups * (double)job->m;
    if (rows < most && (double)job->n < most && (double)job->k < most)
        return FQ_OK;
    return fq_fail(err, FQ_DEVICE,
                   "bench: sides of 2^31 and more are too large; take smaller ones");
}

fq_status fq_cuda_bench_gemm(fq_bench_gemm_figures *out, uint32_t gpu, const fq_bench_gemm_job *job,
                             fq_error *err) {
    bench *b = calloc(1, sizeof *b);
    if (!b)
        return fq_fail_memory(err);
    b->job = job;
    fq_status status = check_size(job, err);
    if (!status)
        status = fq_cuda_timer_open(&b->timer, out->device, gpu, err);
    if (!status)
        status = prepare(b, err);
    if (!status)
        status = measure_time(out, b, err);
    if (!status)
        status = measure_accuracy(out, b, err);
    out->backend = "cuda";
    out->nbytes = nbytes_of(job);
    out->flop = 2.0 * (double)job->n_groups * (double)job->m * (double)job->n * (double)job->k;
    discard(b);
    free(b);
    return status;
}

// Without blocks the GPU's memory need not hold scales but for one number.
fq_status fq_cuda_bench_gemm_peak(double *out, uint32_t gpu, fq_error *err) {
    enum { SIDE = 8192, REPEATS = 9 };
    const double flop = 2.0 * SIDE * SIDE * SIDE;
    const fq_bench_gemm_job job = {.n_groups = 1, .m = SIDE, .n = SIDE, .k = SIDE};
    char device[FQ_GPU_NAME];
    double single = 0, seconds = (double)NAN;
    bench *b = calloc(1, sizeof *b);
    if (!b)
        return fq_fail_memory(err);
    b->job = &job;
    const fq_cuda_work theirs = {b, enqueue_cublaslt};
    fq_status status = fq_cuda_timer_open(&b->timer, device, gpu, err);
    if (!status)
        status = prepare(b, err);
    b->lt = status ? NULL : fq_cublaslt_open();
    if (b->lt && fq_cublaslt_plan(b->lt, &b->sets[0].gemm, false)) {
        status = fq_cuda_time_single(&single, &b->timer, &theirs, REPEATS, err);
        if (!status)
            status =
                fq_cuda_time_graph(&seconds, &b->timer, &theirs, b->n_sets, single, REPEATS, err);
    }
    *out = flop / seconds;
    discard(b);
    free(b);
    return status;
}
