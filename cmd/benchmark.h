// What fp8q bench can measure, and the options that all of it shares.
#ifndef FQ_CMD_BENCHMARK_H
#define FQ_CMD_BENCHMARK_H

#include "common.h"
#include "emit.h"
#include "print.h"

typedef struct fq_benchmark_options {
    fq_common_options common;
    fq_opt_list shapes;   // "ROWSxCOLS"; gemm: "MxNxK", "GROUPSxMxNxK"
    fq_opt_list blocks;   // "ROWSxCOLS"
    int dtype;            // of bf16|f16|f32, or -1: BF16
    int grouping;         // fq_bench_grouping, or -1
    int scale_format;     // FQ_SCALE_F32 or FQ_SCALE_POW2, or -1: FP32
    uint32_t n_repeats;   // 0: the benchmark's own default
    uint64_t size_nbytes; // of the model, 0: 8 GiB
    uint32_t n_shards;    // 0: 4
    const char *dir;      // NULL: the current folder
} fq_benchmark_options;

// Measures, and prints a table to printer as the figures come. With emit it prints nothing and adds
// one object for each line to the list that is open there.
typedef fq_status fq_benchmark_fn(const fq_benchmark_options *options, const fq_printer *printer,
                                  fq_emit *emit, fq_error *err);

// One operation of the device, for each shape and block: against a copy of as many bytes.
fq_status fq_benchmark_quantize(const fq_benchmark_options *options, const fq_printer *printer,
                                fq_emit *emit, fq_error *err);
fq_status fq_benchmark_dequantize(const fq_benchmark_options *options, const fq_printer *printer,
                                  fq_emit *emit, fq_error *err);

// Whole runs of convert and dequant on a model that is made and removed again, in turns with cp.
fq_status fq_benchmark_convert(const fq_benchmark_options *options, const fq_printer *printer,
                               fq_emit *emit, fq_error *err);

// The FP8 GEMM, for each shape: against cuBLASLt's, and the exact product.
fq_status fq_benchmark_gemm(const fq_benchmark_options *options, const fq_printer *printer,
                            fq_emit *emit, fq_error *err);

// Reads "128x64" and the like: up to n numbers from 1 to 2^31, so that the product of two is safe.
// Returns how many there are; 0 for anything else.
size_t fq_benchmark_sides(uint64_t *out, size_t n, const char *text);

#endif
