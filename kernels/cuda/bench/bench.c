// Times the CUDA kernels on matrices in the GPU's memory, against copies of as many bytes.
#include "kernels/cuda/bench/bench.h"

#include "kernels/cuda/bench/bench_copy.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"
#include "lib/fp8.h"

#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// In the GPU's memory.
typedef struct matrix {
    void *floats;   // [rows, cols] of job->dtype
    uint8_t *codes; // [rows, cols]
    float *scales;  // [n_blocks]
} matrix;

typedef struct bench bench;

// Starts one run on a matrix; returns a cudaError_t.
typedef unsigned start_fn(const bench *b, const matrix *m);

struct bench {
    const fq_bench_job *job;
    uint32_t gpu;
    fq_bench_sizes sizes;
    uint64_t n_units; // that the copy kernel copies
    matrix *matrices; // [n_matrices]
    uint32_t n_matrices;
    void *counts; // of either operation; nobody looks at them
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

static fq_status check(const bench *b, const char *call, unsigned code, fq_error *err) {
    return fq_gpu_check(b->gpu, call, code, err);
}

// ---- What is timed

static unsigned start_quantize(const bench *b, const matrix *m) {
    const fq_quantize_job job = {
        .source = m->floats,
        .source_dtype = b->job->dtype,
        .rows = b->job->rows,
        .cols = b->job->cols,
        .block = b->job->block,
        .pow2_scales = b->job->pow2_scales,
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = m->codes,
        .scales = m->scales,
    };
    return fq_cuda_quantize(&job, b->counts, b->stream);
}

static unsigned start_dequantize(const bench *b, const matrix *m) {
    const fq_dequantize_job job = {
        .codes = m->codes,
        .rows = b->job->rows,
        .cols = b->job->cols,
        .block = b->job->block,
        .scales = m->scales,
        .target_dtype = b->job->dtype,
        .target = m->floats,
    };
    return fq_cuda_dequantize(&job, b->counts, b->stream);
}

// The codes of a matrix to cast back stay.
static unsigned start_copy(const bench *b, const matrix *m) {
    const uint32_t size = fq_dtype_size(b->job->dtype);
    if (b->job->operation == FQ_BENCH_QUANTIZE)
        return fq_cuda_bench_copy(m->codes, m->floats, b->n_units, size, 1, b->stream);
    return fq_cuda_bench_copy(m->floats, m->codes, b->n_units, 1, size, b->stream);
}

static unsigned start_memcpy(const bench *b, const matrix *m) {
    const bool quantizes = b->job->operation == FQ_BENCH_QUANTIZE;
    return cudaMemcpyAsync(quantizes ? (void *)m->codes : m->floats,
                           quantizes ? m->floats : (void *)m->codes, b->sizes.n_elements,
                           cudaMemcpyDeviceToDevice, b->stream);
}

// ---- Time

// Seconds of one run, over enough of them that the gaps between them and the clock's grain do not
// count. One run goes before: so each of those that are timed follows one like it, and takes over
// the cache as that left it, with data that has still to be written; and the clock starts while the
// GPU is at work.
static fq_status time_runs(double *out, const bench *b, const char *what, start_fn *start,
                           fq_error *err) {
    enum { MIN_RUNS = 4, MAX_RUNS = 1000, MANY_NBYTES = 1 << 30 };
    uint64_t n = MIN_RUNS + 8 * (uint64_t)MANY_NBYTES / b->sizes.nbytes;
    if (n > MAX_RUNS)
        n = MAX_RUNS;
    float milliseconds = 0;
    fq_status status = check(b, what, start(b, &b->matrices[0]), err);
    if (!status)
        status = check(b, "cudaEventRecord", cudaEventRecord(b->begin, b->stream), err);
    for (uint64_t k = 1; k <= n && !status; k++)
        status = check(b, what, start(b, &b->matrices[k % b->n_matrices]), err);
    if (!status)
        status = check(b, "cudaEventRecord", cudaEventRecord(b->end, b->stream), err);
    if (!status)
        status = check(b, what, cudaEventSynchronize(b->end), err);
    if (!status)
        status = check(b, "cudaEventElapsedTime",
                       cudaEventElapsedTime(&milliseconds, b->begin, b->end), err);
    *out = 1e-3 * (double)milliseconds / (double)n;
    return status;
}

static fq_status measure(fq_bench_figures *out, const bench *b, fq_error *err) {
    enum { N_SUBJECTS = 3 };
    static const char *const names[N_SUBJECTS] = {"the kernel", "the copy", "cudaMemcpyAsync"};
    start_fn *const subjects[N_SUBJECTS] = {
        b->job->operation == FQ_BENCH_QUANTIZE ? start_quantize : start_dequantize, start_copy,
        start_memcpy};
    double medians[N_SUBJECTS];
    const uint32_t n = b->job->n_repeats;
    double *seconds = calloc(N_SUBJECTS * (size_t)n, sizeof *seconds);
    fq_status status = seconds ? FQ_OK : fq_fail_memory(err);
    // Once for the clocks of the GPU, which rise under load.
    for (size_t s = 0; s < N_SUBJECTS && !status; s++)
        status = time_runs(&seconds[s * n], b, names[s], subjects[s], err);
    for (uint32_t i = 0; i < n; i++) {
        for (size_t s = 0; s < N_SUBJECTS && !status; s++)
            status = time_runs(&seconds[s * n + i], b, names[s], subjects[s], err);
    }
    for (size_t s = 0; s < N_SUBJECTS && !status; s++)
        medians[s] = fq_bench_median(seconds + s * n, n);
    free(seconds);
    if (status)
        return status;
    const double nbytes = (double)b->sizes.nbytes;
    const uint32_t unit_nbytes = FQ_CUDA_COPY_UNIT * (fq_dtype_size(b->job->dtype) + 1);
    out->nbytes = b->sizes.nbytes;
    out->seconds = medians[0];
    out->copy_seconds = medians[1] * nbytes / ((double)b->n_units * unit_nbytes);
    out->memcpy_seconds = medians[2] * nbytes / (2.0 * (double)b->sizes.n_elements);
    return FQ_OK;
}

// ---- Matrices

static fq_status allocate(void **out, const bench *b, uint64_t nbytes, fq_error *err) {
    return check(b, "cudaMalloc", cudaMalloc(out, nbytes), err);
}

// weights: in host memory. Runs each kernel once: later runs find all memory and code in place.
static fq_status prepare_matrix(const bench *b, matrix *m, const void *weights, fq_error *err) {
    const uint32_t size = fq_dtype_size(b->job->dtype);
    const uint64_t n = b->sizes.n_elements;
    const uint64_t room = n > FQ_CUDA_COPY_UNIT ? n : FQ_CUDA_COPY_UNIT;
    fq_status status = allocate(&m->floats, b, room * size, err);
    if (!status)
        status = allocate((void **)&m->codes, b, room, err);
    if (!status)
        status = allocate((void **)&m->scales, b, b->sizes.n_blocks * sizeof(float), err);
    if (!status)
        status = check(
            b, "cudaMemcpyAsync",
            cudaMemcpyAsync(m->floats, weights, n * size, cudaMemcpyHostToDevice, b->stream), err);
    if (!status)
        status = check(b, "quantize", start_quantize(b, m), err);
    if (!status)
        status = check(b, "quantize", cudaStreamSynchronize(b->stream), err);
    return status;
}

static fq_status prepare_matrices(bench *b, fq_error *err) {
    void *weights = malloc(b->sizes.source_nbytes);
    b->matrices = calloc(b->n_matrices, sizeof *b->matrices);
    fq_status status = weights && b->matrices ? FQ_OK : fq_fail_memory(err);
    for (uint32_t i = 0; i < b->n_matrices && !status; i++) {
        fq_bench_fill(weights, b->sizes.n_elements, b->job->dtype, 1 + i);
        status = prepare_matrix(b, &b->matrices[i], weights, err);
    }
    free(weights);
    return status;
}

static fq_status prepare(bench *b, fq_bench_figures *figures, fq_error *err) {
    enum { COUNTS_NBYTES = 64 };
    char name[FQ_GPU_NAME];
    int cache_nbytes = 0;
    fq_status status = fq_gpu_use(b->gpu, err);
    if (!status)
        status = fq_gpu_name(name, b->gpu, err);
    if (!status)
        status =
            check(b, "cudaDeviceGetAttribute",
                  cudaDeviceGetAttribute(&cache_nbytes, cudaDevAttrL2CacheSize, (int)b->gpu), err);
    if (!status)
        status = check(b, "cudaStreamCreate",
                       cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), err);
    if (!status)
        status = check(b, "cudaEventCreate", cudaEventCreate(&b->begin), err);
    if (!status)
        status = check(b, "cudaEventCreate", cudaEventCreate(&b->end), err);
    if (!status)
        status = allocate(&b->counts, b, COUNTS_NBYTES, err);
    if (!status)
        status = check(b, "cudaMemsetAsync",
                       cudaMemsetAsync(b->counts, 0, COUNTS_NBYTES, b->stream), err);
    if (status)
        return status;
    figures->backend = "cuda";
    snprintf(figures->device, sizeof figures->device, "%s", name);
    b->n_units = b->sizes.n_elements / FQ_CUDA_COPY_UNIT;
    if (b->n_units == 0)
        b->n_units = 1;
    b->n_matrices = fq_bench_n_matrices(&b->sizes, (uint64_t)cache_nbytes);
    return prepare_matrices(b, err);
}

static void discard(bench *b) {
    for (uint32_t i = 0; i < b->n_matrices && b->matrices; i++) {
        (void)cudaFree(b->matrices[i].floats);
        (void)cudaFree(b->matrices[i].codes);
        (void)cudaFree(b->matrices[i].scales);
    }
    free(b->matrices);
    (void)cudaFree(b->counts);
    if (b->end)
        (void)cudaEventDestroy(b->end);
    if (b->begin)
        (void)cudaEventDestroy(b->begin);
    if (b->stream)
        (void)cudaStreamDestroy(b->stream);
}

fq_status fq_cuda_bench(fq_bench_figures *out, uint32_t gpu, const fq_bench_job *job,
                        fq_error *err) {
    bench b = {.job = job, .gpu = gpu};
    fq_status status = fq_bench_sizes_of(&b.sizes, job, err);
    if (!status)
        status = prepare(&b, out, err);
    if (!status)
        status = measure(out, &b, err);
    discard(&b);
    return status;
}
