// How fast a device quantizes and casts back matrices that lie in its memory, beside a copy of as
// many bytes.
#ifndef FQ_KERNELS_BENCH_H
#define FQ_KERNELS_BENCH_H

#include "lib/backend.h"

typedef enum fq_bench_operation { FQ_BENCH_QUANTIZE, FQ_BENCH_DEQUANTIZE } fq_bench_operation;

// What is measured: one operation on a matrix of random weights, again and again.
typedef struct fq_bench_job {
    fq_bench_operation operation;
    uint64_t rows, cols; // at least 1
    fq_dtype dtype;      // what is quantized, or cast back to: BF16, F16 or F32
    fq_block block;
    bool pow2_scales;
    uint32_t n_threads; // of the CPU, where that does the work
    uint32_t n_repeats; // at least 1
} fq_bench_job;

// Medians over the repeats. The copies are taken in turns with the operation.
typedef struct fq_bench_figures {
    uint64_t nbytes;       // that one run reads and writes: elements, codes and scales
    double seconds;        // of one run
    double copy_seconds;   // of copying: reads and writes as many bytes in the fastest way known
    double memcpy_seconds; // of as many by the device's own copy; 0: that is the fastest way
    const char *backend;   // "cpu"; static
    char device[256];      // what ran: "AVX-512", the GPU's name
} fq_bench_figures;

// Measures on the device that --device names; of several GPUs on the first one, which "auto" takes
// too. The matrices are many enough that no cache holds what the next run reads. FQ_USAGE and
// FQ_DEVICE as fq_device_choose; FQ_DEVICE where memory is short.
fq_status fq_bench_measure(fq_bench_figures *out, const char *device, const fq_bench_job *job,
                           fq_error *err);

// ---- What the benchmarks of all backends share

// Elements, codes, scales and the bytes of all of them, for one matrix.
typedef struct fq_bench_sizes {
    uint64_t n_elements;
    uint64_t n_blocks;
    uint64_t source_nbytes; // of the elements in job->dtype
    uint64_t nbytes;        // of elements, codes (one byte each) and FP32 scales together
} fq_bench_sizes;

// FQ_DEVICE for a matrix that no memory could hold.
fq_status fq_bench_sizes_of(fq_bench_sizes *out, const fq_bench_job *job, fq_error *err);

// Matrices to rotate through, so that what a cache of cache_nbytes holds is never what comes next.
uint32_t fq_bench_n_matrices(const fq_bench_sizes *sizes, uint64_t cache_nbytes);

// Fills n elements with weights: bell-shaped, finite, none of them zero everywhere. The same for
// the same seed.
void fq_bench_fill(void *out, uint64_t n, fq_dtype dtype, uint64_t seed);

// The median of n values, at least one; they are sorted.
double fq_bench_median(double *values, size_t n);

#endif
