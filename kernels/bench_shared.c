// What the benchmarks of all backends share: sizes, random weights, medians.
#include "bench.h"

#include "lib/fp8.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

fq_status fq_bench_sizes_of(fq_bench_sizes *out, const fq_bench_job *job, fq_error *err) {
    const uint64_t n_block_rows = fq_ceil_div(job->rows, job->block.rows);
    const uint64_t n_block_cols = fq_ceil_div(job->cols, job->block.cols);
    uint64_t nbytes;
    if (__builtin_mul_overflow(job->rows, job->cols, &out->n_elements) ||
        // Enough for an FP32 element, its code and a scale of its own.
        __builtin_mul_overflow(out->n_elements, 4 + 1 + sizeof(float), &nbytes) ||
        nbytes > SIZE_MAX / 2)
        return fq_fail(err, FQ_DEVICE,
                       "%" PRIu64 " x %" PRIu64 ": no memory holds such a matrix; take a smaller "
                       "one",
                       job->rows, job->cols);
    out->n_blocks = n_block_rows * n_block_cols;
    out->source_nbytes = out->n_elements * fq_dtype_size(job->dtype);
    out->nbytes = out->source_nbytes + out->n_elements + out->n_blocks * sizeof(float);
    return FQ_OK;
}

uint32_t fq_bench_n_matrices(const fq_bench_sizes *sizes, uint64_t cache_nbytes) {
    enum { TIMES_THE_CACHE = 4, MAX_MATRICES = 1024 };
    const uint64_t n = 1 + fq_ceil_div(TIMES_THE_CACHE * cache_nbytes, sizes->nbytes);
    return n < MAX_MATRICES ? (uint32_t)n : MAX_MATRICES;
}

// Sums of four uniform numbers are bell-shaped, as weights are.
static float next_weight(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bits = *state;
    const int64_t sum = (int64_t)((bits >> 16 & 0xFFF) + (bits >> 28 & 0xFFF) +
                                  (bits >> 40 & 0xFFF) + (bits >> 52));
    return (float)(sum - 0x2000) * 0x1p-18f;
}

void fq_bench_fill(void *out, uint64_t n, fq_dtype dtype, uint64_t seed) {
    enum { TILE = 1 << 20 }; // random numbers take their time: what follows repeats them
    const size_t size = fq_dtype_size(dtype);
    bool saturated = false;
    uint64_t state = seed;
    assert(fq_dtype_is_source(dtype));
    for (uint64_t i = 0; i < n && i < TILE; i++) {
        const float weight = next_weight(&state);
        if (dtype == FQ_F32)
            ((float *)out)[i] = weight;
        else
            ((uint16_t *)out)[i] = dtype == FQ_BF16 ? fq_bf16_of_f32_sat(weight, &saturated)
                                                    : fq_f16_of_f32_sat(weight, &saturated);
    }
    for (uint64_t i = TILE; i < n; i += TILE) {
        const uint64_t n_more = n - i < TILE ? n - i : TILE;
        memcpy((char *)out + i * size, out, n_more * size);
    }
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fq_bench_median(double *values, size_t n) {
    assert(n > 0);
    qsort(values, n, sizeof *values, compare_doubles);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}
