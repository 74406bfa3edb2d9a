// fp8q bench: measures this machine.
#include "benchmark.h"
#include "command.h"

#include <stdlib.h>
#include <string.h>

#define ROW(member) offsetof(fq_benchmark_options, member)

static const fq_opt options_table[] = {
    {"shape", 0, "SHAPE", FQ_OPT_LIST, ROW(shapes),
     "quantize, dequantize: a matrix, ROWSxCOLS (default: 16384x16384 and 7168x18432). gemm: "
     "MxNxK, "
     "or GROUPSxMxNxK (default: the layers and experts of DeepSeek-V3). Repeatable"},
    {"grouping", 0, "dense|contiguous|masked", FQ_OPT_CHOICE, ROW(grouping),
     "gemm: one matrix, rows of groups end to end, or in slots of their own (default: what --shape "
     "says, contiguous for groups; without --shape all three); groups on GPUs only"},
    {"block", 0, "ROWSxCOLS", FQ_OPT_LIST, ROW(blocks),
     "quantize, dequantize: a block that shares a scale (default: 128x128 and 1x128); repeatable"},
    {"dtype", 0, "bf16|f16|f32", FQ_OPT_CHOICE, ROW(dtype),
     "quantize, dequantize: what is quantized, or cast back to (default: bf16)"},
    {"scale-format", 0, "f32|pow2", FQ_OPT_CHOICE, ROW(scale_format),
     "quantize, dequantize, gemm: scales as they are computed (default), or powers of two"},
    {"size", 0, "SIZE", FQ_OPT_SIZE, ROW(size_nbytes),
     "convert: bytes of BF16 in the model (default: 8G)"},
    {"shards", 0, "N", FQ_OPT_COUNT, ROW(n_shards), "convert: files of the model (default: 4)"},
    {"dir", 0, "FOLDER", FQ_OPT_STRING, ROW(dir),
     "convert: where the model and its copies go, in a folder that is removed afterwards (default: "
     "the current folder); three times --size must be free there"},
    {"repeat", 0, "N", FQ_OPT_COUNT, ROW(n_repeats),
     "runs whose median counts (default: 15; convert: 5)"},
    {0},
};

static const fq_benchmark_options defaults = {
    .common = FQ_COMMON_DEFAULTS,
    .dtype = -1,
    .grouping = -1,
    .scale_format = -1,
};

// Which benchmarks an option means something to.
enum { OF_KERNELS = 1, OF_GEMM = 2, OF_CONVERT = 4 };

typedef struct benchmark {
    const char *name;
    fq_benchmark_fn *run;
    unsigned kind;
} benchmark;

static const benchmark benchmarks[] = {
    {"gemm", fq_benchmark_gemm, OF_GEMM},
    {"quantize", fq_benchmark_quantize, OF_KERNELS},
    {"dequantize", fq_benchmark_dequantize, OF_KERNELS},
    {"convert", fq_benchmark_convert, OF_CONVERT},
};
enum { N_BENCHMARKS = sizeof benchmarks / sizeof benchmarks[0] };

// An option that the benchmark does not take was meant for another one.
static fq_status check_options(const benchmark *chosen, const fq_benchmark_options *options,
                               fq_error *err) {
    const unsigned kind = chosen ? chosen->kind : OF_KERNELS;
    const struct {
        const char *name;
        bool given;
        unsigned kinds;
    } rows[] = {
        {"shape", options->shapes.n > 0, OF_KERNELS | OF_GEMM},
        {"block", options->blocks.n > 0, OF_KERNELS},
        {"dtype", options->dtype >= 0, OF_KERNELS},
        {"grouping", options->grouping >= 0, OF_GEMM},
        {"scale-format", options->scale_format >= 0, OF_KERNELS | OF_GEMM},
        {"size", options->size_nbytes > 0, OF_CONVERT},
        {"shards", options->n_shards > 0, OF_CONVERT},
        {"dir", options->dir != NULL, OF_CONVERT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].given && !(rows[i].kinds & kind))
            return fq_fail(err, FQ_USAGE, "bench: --%s means nothing to %s; see fp8q bench --help",
                           rows[i].name, chosen ? chosen->name : "quantize");
    }
    return FQ_OK;
}

static fq_status find(const benchmark **out, const char *name, fq_error *err) {
    *out = NULL;
    for (size_t i = 0; i < N_BENCHMARKS && name; i++) {
        if (strcmp(benchmarks[i].name, name) == 0)
            *out = &benchmarks[i];
    }
    if (*out || !name)
        return FQ_OK;
    return fq_fail(err, FQ_USAGE,
                   "bench: \"%.64s\" is no benchmark; name gemm, quantize, dequantize or convert",
                   name);
}

// The named one, or those of the arithmetic that every run does.
static fq_status run_chosen(const benchmark *chosen, const fq_benchmark_options *options,
                            const fq_printer *printer, fq_emit *emit, fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < N_BENCHMARKS && !status; i++) {
        if (chosen ? chosen == &benchmarks[i] : benchmarks[i].kind == OF_KERNELS)
            status = benchmarks[i].run(options, printer, emit, err);
    }
    return status;
}

// The JSON gathers in memory: without a result, stdout stays empty.
static fq_status run_json(const benchmark *chosen, const fq_benchmark_options *options,
                          const fq_printer *printer, fq_error *err) {
    char *text = NULL;
    size_t nbytes = 0;
    fq_emit emit = {.file = open_memstream(&text, &nbytes)};
    if (!emit.file)
        return fq_fail_memory(err);
    fq_emit_begin(&emit, NULL, '{');
    fq_emit_begin(&emit, "benchmarks", '[');
    fq_status status = run_chosen(chosen, options, printer, &emit, err);
    fq_emit_end(&emit, ']');
    fq_emit_end(&emit, '}');
    fq_error finished = {0};
    if (fq_emit_finish(&emit, status ? &finished : err) != FQ_OK && !status)
        status = err->status;
    if (fclose(emit.file) != 0 && !status)
        status = fq_fail_memory(err);
    if (!status)
        fwrite(text, 1, nbytes, stdout);
    free(text);
    return status;
}

static fq_status run(const fq_call *call, fq_reply *reply, fq_error *err) {
    const fq_benchmark_options *options = call->options;
    const benchmark *chosen = NULL;
    reply->color = (fq_color)options->common.color;
    fq_status status = find(&chosen, call->operand, err);
    if (!status)
        status = check_options(chosen, options, err);
    if (status)
        return status;
    const fq_printer printer = fq_printer_make(stdout, (fq_color)options->common.color);
    return options->common.json ? run_json(chosen, options, &printer, err)
                                : run_chosen(chosen, options, &printer, NULL, err);
}

const fq_command fq_command_bench = {
    .name = "bench",
    .operand = "[gemm|quantize|dequantize|convert]",
    .summary = "measure this machine",
    .description =
        (const char *const[]){
            "Measures this machine, each figure beside a yardstick taken in the same minutes: "
            "machines differ, ratios tell more than seconds. Without a name it runs quantize and "
            "dequantize.",
            "quantize and dequantize time the arithmetic alone, on matrices of random weights in "
            "the memory of the device, against a copy that reads and writes as many bytes.",
            "gemm times the block-scaled FP8 GEMM with BF16 results, on a GPU alone with nothing "
            "in "
            "the cache and back to back in a CUDA graph, beside cuBLASLt's where that is installed "
            "and takes the shape. REL L2 is what the first rows are off the exact product of the "
            "same codes, rounding to BF16 included, which is 1.66e-3 by itself; FP8 L2 what they "
            "are off the product of what was quantized. The CPU's is verify's, with results in "
            "FP32.",
            "convert makes a BF16 model of several files, and times whole runs of fp8q convert, "
            "fp8q "
            "verify and fp8q dequant, in turns with cp; on a disk with cp and sync, since fp8q "
            "syncs what it writes. Then it does the same with one file. GB/s counts bytes read and "
            "written.",
            NULL,
        },
    .examples =
        (const fq_example[]){
            {"bench", "the arithmetic, at the default shapes"},
            {"bench quantize --device cpu --threads 1 --shape 4096x4096", "in one thread"},
            {"bench gemm --shape 4096x4096x7168 --shape 8x4096x4096x7168", "dense, and 8 experts"},
            {"bench convert --dir /dev/shm --size 2G", "whole runs on a file system in memory"},
            {0},
        },
    .tables = (const fq_opt *const[]){options_table, fq_common_table, NULL},
    .defaults = &defaults,
    .options_nbytes = sizeof defaults,
    .run = run,
};
