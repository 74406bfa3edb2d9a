// The benchmarks of the arithmetic: a line for each shape and block.
#include "benchmark.h"
#include "signals.h"

#include "kernels/bench.h"
#include "lib/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { DEFAULT_REPEATS = 15 };

// In the order of --dtype's argument.
static const fq_dtype dtypes[] = {FQ_BF16, FQ_F16, FQ_F32};

// "7168x18432".
static fq_status parse_sides(uint64_t out[2], const fq_opt_item *item, fq_error *err) {
    if (fq_benchmark_sides(out, 2, item->value) == 2)
        return FQ_OK;
    return fq_fail(
        err, FQ_USAGE,
        "bench: --%s takes ROWSxCOLS, such as 128x128, not \"%s\"; see fp8q bench --help",
        item->name, item->value);
}

static const char *operation_name(fq_bench_operation operation) {
    return operation == FQ_BENCH_QUANTIZE ? "quantize" : "dequantize";
}

static double gb_per_s(const fq_bench_figures *figures, double seconds) {
    return 1e-9 * (double)figures->nbytes / seconds;
}

static void print_head(const fq_printer *printer, const fq_bench_job *job,
                       const fq_bench_figures *figures) {
    fq_print(printer, FQ_BOLD, "%s", operation_name(job->operation));
    fq_print_line(printer, " on %s (%s), medians of %" PRIu32 ", GB/s read and written",
                  figures->backend, figures->device, job->n_repeats);
    fq_print_line(printer, "%9s x %-9s %-5s %9s  %-7s %10s %9s %9s %8s %9s", "ROWS", "COLS",
                  "DTYPE", "BLOCK", "SCALES", "SECONDS", "GB/S", "COPY", "OF COPY", "MEMCPY");
}

static const char *scales_name(const fq_bench_job *job) {
    return fq_scale_format_name(job->pow2_scales ? FQ_SCALE_POW2 : FQ_SCALE_F32);
}

static void print_figures(const fq_printer *printer, const fq_bench_job *job,
                          const fq_bench_figures *figures) {
    char own_copy[16] = "-";
    if (figures->memcpy_seconds > 0)
        snprintf(own_copy, sizeof own_copy, "%.2f", gb_per_s(figures, figures->memcpy_seconds));
    fq_print_line(printer,
                  "%9" PRIu64 " x %-9" PRIu64 " %-5s %3" PRIu64 " x %-3" PRIu64
                  "  %-7s %10.6f %9.2f %9.2f %6.1f %% %9s",
                  job->rows, job->cols, fq_dtype_name(job->dtype), job->block.rows, job->block.cols,
                  scales_name(job), figures->seconds, gb_per_s(figures, figures->seconds),
                  gb_per_s(figures, figures->copy_seconds),
                  100 * figures->copy_seconds / figures->seconds, own_copy);
    fflush(printer->file);
}

static void emit_figures(fq_emit *emit, const fq_bench_job *job, const fq_bench_figures *figures) {
    fq_emit_begin(emit, NULL, '{');
    fq_emit_string(emit, "benchmark", operation_name(job->operation));
    fq_emit_string(emit, "device", figures->backend);
    fq_emit_string(emit, "device_name", figures->device);
    fq_emit_u64(emit, "threads", job->n_threads);
    fq_emit_u64s(emit, "shape", (const uint64_t[]){job->rows, job->cols}, 2);
    fq_emit_string(emit, "dtype", fq_dtype_name(job->dtype));
    fq_emit_u64s(emit, "block_size", (const uint64_t[]){job->block.rows, job->block.cols}, 2);
    fq_emit_string(emit, "scale_format", scales_name(job));
    fq_emit_u64(emit, "repeats", job->n_repeats);
    fq_emit_u64(emit, "nbytes", figures->nbytes);
    fq_emit_double(emit, "seconds", figures->seconds);
    fq_emit_double(emit, "gb_per_s", gb_per_s(figures, figures->seconds));
    fq_emit_double(emit, "copy_gb_per_s", gb_per_s(figures, figures->copy_seconds));
    fq_emit_double(emit, "memcpy_gb_per_s",
                   figures->memcpy_seconds > 0 ? gb_per_s(figures, figures->memcpy_seconds)
                                               : (double)NAN);
    fq_emit_double(emit, "ratio", figures->copy_seconds / figures->seconds);
    fq_emit_end(emit, '}');
}

static fq_status measure(const fq_bench_job *job, const char *device, bool is_first,
                         const fq_printer *printer, fq_emit *emit, fq_error *err) {
    fq_bench_figures figures = {0};
    if (__atomic_load_n(&fq_signals_caught, __ATOMIC_RELAXED))
        return fq_fail(err, FQ_CANCELLED, "interrupted");
    const fq_status status = fq_bench_measure(&figures, device, job, err);
    if (status)
        return status;
    if (emit) {
        emit_figures(emit, job, &figures);
        return FQ_OK;
    }
    if (is_first)
        print_head(printer, job, &figures);
    print_figures(printer, job, &figures);
    return FQ_OK;
}

static fq_status run(fq_bench_operation operation, const fq_benchmark_options *options,
                     const fq_printer *printer, fq_emit *emit, fq_error *err) {
    static fq_opt_item default_shapes[] = {{"shape", "16384x16384"}, {"shape", "7168x18432"}};
    static fq_opt_item default_blocks[] = {{"block", "128x128"}, {"block", "1x128"}};
    const fq_opt_list shapes =
        options->shapes.n ? options->shapes : (fq_opt_list){default_shapes, 2};
    const fq_opt_list blocks =
        options->blocks.n ? options->blocks : (fq_opt_list){default_blocks, 2};
    for (size_t i = 0; i < shapes.n * blocks.n; i++) {
        uint64_t shape[2], block[2];
        fq_status status = parse_sides(shape, &shapes.items[i / blocks.n], err);
        if (!status)
            status = parse_sides(block, &blocks.items[i % blocks.n], err);
        if (status)
            return status;
        const fq_bench_job job = {
            .operation = operation,
            .rows = shape[0],
            .cols = shape[1],
            .dtype = dtypes[options->dtype < 0 ? 0 : options->dtype],
            .block = {block[0], block[1]},
            .pow2_scales = options->scale_format == FQ_SCALE_POW2,
            .n_threads = fq_common_staging(&options->common).n_lanes,
            .n_repeats = options->n_repeats ? options->n_repeats : DEFAULT_REPEATS,
        };
        status = measure(&job, options->common.device, i == 0, printer, emit, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

fq_status fq_benchmark_quantize(const fq_benchmark_options *options, const fq_printer *printer,
                                fq_emit *emit, fq_error *err) {
    return run(FQ_BENCH_QUANTIZE, options, printer, emit, err);
}

fq_status fq_benchmark_dequantize(const fq_benchmark_options *options, const fq_printer *printer,
                                  fq_emit *emit, fq_error *err) {
    return run(FQ_BENCH_DEQUANTIZE, options, printer, emit, err);
}
