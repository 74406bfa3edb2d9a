// The benchmark of the FP8 GEMM: a line for each shape.
#include "benchmark.h"
#include "signals.h"

#include "kernels/bench_gemm.h"
#include "lib/scale.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DEFAULT_REPEATS = 15 };

// In the order of --grouping's argument, which is that of fq_bench_grouping.
static const char *const grouping_names[] = {"dense", "contiguous", "masked"};

// One run of the benchmark.
typedef struct run {
    const fq_benchmark_options *options;
    const fq_printer *printer;
    fq_emit *emit; // NULL: a table
    double peak;   // operations in a second; NaN: not known
    bool has_head;
    bool is_cpu; // known from the first shape on
} run;

// ---- Output

// "12.3", or "-" where nothing was measured.
static const char *number(char out[16], const char *format, double value) {
    snprintf(out, 16, isfinite(value) ? format : "-", value);
    return out;
}

static void print_head(run *r, const fq_bench_gemm_job *job, const fq_bench_gemm_figures *figures) {
    fq_print(r->printer, FQ_BOLD, "gemm");
    fq_print(r->printer, FQ_PLAIN, " on %s (%s), medians of %" PRIu32, figures->backend,
             figures->device, job->n_repeats);
    if (isfinite(r->peak))
        fq_print(r->printer, FQ_PLAIN, ", peak %.0f TFLOPS (cuBLASLt, one scale a tensor, 8192^3)",
                 1e-12 * r->peak);
    fq_print_line(r->printer, "%s", "");
    fq_print_line(r->printer, "%-10s %6s %6s %6s %6s %9s %9s %8s %7s %7s %9s %6s %8s %9s %8s  %s",
                  "GROUPING", "GROUPS", "M", "N", "K", "ALONE us", "GRAPH us", "TFLOPS", "OF PEAK",
                  "GB/S", "CUBLASLT", "RATIO", "REL L2", "CALC_DIFF", "FP8 L2", "KERNEL");
    r->has_head = true;
}

static void print_figures(const run *r, const fq_bench_gemm_job *job,
                          const fq_bench_gemm_figures *f) {
    char alone[16], of_peak[16], theirs[16], ratio[16];
    const double flops = f->flop / f->seconds;
    fq_print_line(r->printer,
                  "%-10s %6" PRIu32 " %6" PRIu64 " %6" PRIu64 " %6" PRIu64
                  " %9s %9.1f %8.4g %7s %7.4g %9s %6s %8.2e %9.2e %8.2e  %s",
                  grouping_names[job->grouping], job->n_groups, job->m, job->n, job->k,
                  number(alone, "%.1f", 1e6 * f->single_seconds), 1e6 * f->seconds, 1e-12 * flops,
                  number(of_peak, "%.3f", flops / r->peak), 1e-9 * f->nbytes / f->seconds,
                  number(theirs, "%.1f", 1e6 * f->cublaslt_seconds),
                  number(ratio, "%.2f", f->cublaslt_seconds / f->seconds), f->rel_l2, f->calc_diff,
                  f->unquantized_rel_l2, f->kernel);
    fflush(r->printer->file);
}

static void emit_figures(const run *r, const fq_bench_gemm_job *job,
                         const fq_bench_gemm_figures *f) {
    fq_emit *emit = r->emit;
    const fq_scale_format format = job->pow2_scales ? FQ_SCALE_POW2 : FQ_SCALE_F32;
    fq_emit_begin(emit, NULL, '{');
    fq_emit_string(emit, "benchmark", "gemm");
    fq_emit_string(emit, "device", f->backend);
    fq_emit_string(emit, "device_name", f->device);
    fq_emit_u64(emit, "threads", job->n_threads);
    fq_emit_string(emit, "grouping", grouping_names[job->grouping]);
    fq_emit_u64(emit, "groups", job->n_groups);
    fq_emit_u64s(emit, "shape", (const uint64_t[]){job->m, job->n, job->k}, 3);
    fq_emit_string(emit, "scale_format", fq_scale_format_name(format));
    fq_emit_u64(emit, "repeats", job->n_repeats);
    fq_emit_string(emit, "kernel", f->kernel);
    fq_emit_double(emit, "seconds", f->seconds);
    fq_emit_double(emit, "single_seconds", f->single_seconds);
    fq_emit_double(emit, "tflops", 1e-12 * f->flop / f->seconds);
    fq_emit_double(emit, "gb_per_s", 1e-9 * f->nbytes / f->seconds);
    fq_emit_double(emit, "peak_tflops", 1e-12 * r->peak);
    fq_emit_double(emit, "fraction_of_peak", f->flop / f->seconds / r->peak);
    fq_emit_double(emit, "cublaslt_seconds", f->cublaslt_seconds);
    fq_emit_double(emit, "ratio", f->cublaslt_seconds / f->seconds);
    fq_emit_double(emit, "rel_l2", f->rel_l2);
    fq_emit_double(emit, "calc_diff", f->calc_diff);
    fq_emit_double(emit, "unquantized_rel_l2", f->unquantized_rel_l2);
    fq_emit_end(emit, '}');
}

// ---- Measuring

static fq_status measure(run *r, fq_bench_grouping grouping, uint64_t n_groups,
                         const uint64_t shape[3], fq_error *err) {
    const fq_benchmark_options *options = r->options;
    const fq_bench_gemm_job job = {
        .grouping = grouping,
        .n_groups = (uint32_t)n_groups,
        .m = shape[0],
        .n = shape[1],
        .k = shape[2],
        .pow2_scales = options->scale_format == FQ_SCALE_POW2,
        .n_threads = fq_common_staging(&options->common).n_lanes,
        .n_repeats = options->n_repeats ? options->n_repeats : DEFAULT_REPEATS,
    };
    fq_bench_gemm_figures figures = {.seconds = 0};
    if (__atomic_load_n(&fq_signals_caught, __ATOMIC_RELAXED))
        return fq_fail(err, FQ_CANCELLED, "interrupted");
    const fq_status status = fq_bench_gemm_measure(&figures, options->common.device, &job, err);
    if (status)
        return status;
    r->is_cpu = strcmp(figures.backend, "cpu") == 0;
    if (r->emit) {
        emit_figures(r, &job, &figures);
        return FQ_OK;
    }
    if (!r->has_head)
        print_head(r, &job, &figures);
    print_figures(r, &job, &figures);
    return FQ_OK;
}

// The layers of DeepSeek-V3, as rows of B and columns. The CPU leaves out what takes it seconds.
static fq_status measure_dense(run *r, fq_error *err) {
    static const uint64_t ms[] = {1, 64, 128, 512, 2048, 4096, 8192};
    static const uint64_t layers[][2] = {{2112, 7168}, {24576, 1536}, {32768, 512}, {7168, 16384},
                                         {4096, 7168}, {7168, 2048},  {8192, 8192}};
    const double most = 4e9; // operations
    fq_status status = FQ_OK;
    for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++) {
        for (size_t j = 0; j < sizeof layers / sizeof layers[0] && !status; j++) {
            const uint64_t shape[3] = {ms[i], layers[j][0], layers[j][1]};
            const double flop = 2.0 * (double)shape[0] * (double)shape[1] * (double)shape[2];
            if (!r->is_cpu || flop <= most)
                status = measure(r, FQ_BENCH_DENSE, 1, shape, err);
        }
    }
    return status;
}

// Experts of DeepSeek-V3: while a prompt is read, and while tokens are made.
static fq_status measure_grouped(run *r, fq_bench_grouping grouping, fq_error *err) {
    static const struct {
        fq_bench_grouping grouping;
        uint64_t n_groups, shape[3];
    } rows[] = {
        {FQ_BENCH_CONTIGUOUS, 4, {8192, 4096, 7168}}, {FQ_BENCH_CONTIGUOUS, 8, {4096, 4096, 7168}},
        {FQ_BENCH_CONTIGUOUS, 4, {8192, 7168, 2048}}, {FQ_BENCH_CONTIGUOUS, 8, {4096, 7168, 2048}},
        {FQ_BENCH_CONTIGUOUS, 4, {8192, 6144, 7168}}, {FQ_BENCH_CONTIGUOUS, 8, {4096, 6144, 7168}},
        {FQ_BENCH_CONTIGUOUS, 4, {8192, 7168, 3072}}, {FQ_BENCH_CONTIGUOUS, 8, {4096, 7168, 3072}},
        {FQ_BENCH_MASKED, 1, {1024, 4096, 7168}},     {FQ_BENCH_MASKED, 2, {512, 4096, 7168}},
        {FQ_BENCH_MASKED, 4, {256, 4096, 7168}},      {FQ_BENCH_MASKED, 1, {1024, 7168, 2048}},
        {FQ_BENCH_MASKED, 2, {512, 7168, 2048}},      {FQ_BENCH_MASKED, 4, {256, 7168, 2048}},
        {FQ_BENCH_MASKED, 32, {192, 6144, 7168}},     {FQ_BENCH_MASKED, 32, {192, 7168, 3072}},
    };
    fq_status status = FQ_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !status; i++) {
        if (rows[i].grouping == grouping)
            status = measure(r, grouping, rows[i].n_groups, rows[i].shape, err);
    }
    return status;
}

static fq_status measure_defaults(run *r, fq_error *err) {
    const int grouping = r->options->grouping;
    fq_status status = FQ_OK;
    if (grouping < 0 || grouping == FQ_BENCH_DENSE)
        status = measure_dense(r, err);
    if (!status && (grouping == FQ_BENCH_CONTIGUOUS || (grouping < 0 && !r->is_cpu)))
        status = measure_grouped(r, FQ_BENCH_CONTIGUOUS, err);
    if (!status && (grouping == FQ_BENCH_MASKED || (grouping < 0 && !r->is_cpu)))
        status = measure_grouped(r, FQ_BENCH_MASKED, err);
    return status;
}

// "4096x4096x7168", "8x4096x4096x7168".
static fq_status measure_shape(run *r, const fq_opt_item *item, fq_error *err) {
    enum { MAX_GROUPS = 4096 };
    uint64_t sides[4];
    const int grouping = r->options->grouping;
    const size_t n = fq_benchmark_sides(sides, 4, item->value);
    if (n < 3 || (n == 4 && (grouping == FQ_BENCH_DENSE || sides[0] > MAX_GROUPS)))
        return fq_fail(err, FQ_USAGE,
                       "bench: gemm's --shape is MxNxK, or up to %d groups in GROUPSxMxNxK, not "
                       "\"%s\"; see fp8q bench --help",
                       MAX_GROUPS, item->value);
    if (n == 4)
        return measure(r, grouping < 0 ? FQ_BENCH_CONTIGUOUS : (fq_bench_grouping)grouping,
                       sides[0], sides + 1, err);
    return measure(r, grouping < 0 ? FQ_BENCH_DENSE : (fq_bench_grouping)grouping, 1, sides, err);
}

fq_status fq_benchmark_gemm(const fq_benchmark_options *options, const fq_printer *printer,
                            fq_emit *emit, fq_error *err) {
    run r = {.options = options, .printer = printer, .emit = emit};
    fq_status status = fq_bench_gemm_peak(&r.peak, options->common.device, err);
    for (size_t i = 0; i < options->shapes.n && !status; i++)
        status = measure_shape(&r, &options->shapes.items[i], err);
    if (!status && options->shapes.n == 0)
        status = measure_defaults(&r, err);
    return status;
}
