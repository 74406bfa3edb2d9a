// fp8q dequant: block-scaled FP8 in, BF16, F16 or F32 out.
#include "report.h"

typedef struct dequant_options {
    fq_request_options request;
    int dtype; // index into dtypes
    fq_opt_list tensors;
} dequant_options;

// In the order of --dtype's argument; the suffix of the default output is its word.
static const struct {
    fq_dtype dtype;
    const char *suffix;
} dtypes[] = {{FQ_BF16, "bf16"}, {FQ_F16, "f16"}, {FQ_F32, "f32"}};

#define ROW(member) offsetof(dequant_options, member)

static const fq_opt options_table[] = {
    {"output", 'o', "OUTPUT", FQ_OPT_STRING, ROW(request.output),
     "where to (default: INPUT-DTYPE beside the input; for a model in the Hugging Face cache, "
     "REPO-DTYPE in the current folder)"},
    {"dtype", 0, "bf16|f16|f32", FQ_OPT_CHOICE, ROW(dtype),
     "what FP8 weights are cast to (default: bf16); other tensors stay as they are"},
    {"tensor", 0, "GLOB", FQ_OPT_LIST, ROW(tensors),
     "only FP8 weights of these full names, and nothing else of the model; repeatable"},
    {0},
};

static const dequant_options defaults = {.request.common = FQ_COMMON_DEFAULTS};

static fq_status run(const fq_call *call, fq_reply *reply, fq_error *err) {
    const dequant_options *options = call->options;
    fq_arena arena = {0};
    const fq_dequantize_options dequantize = {
        .dtype = dtypes[options->dtype].dtype,
        .globs = fq_opt_values(&options->tensors, &arena),
        .n_globs = options->tensors.n,
    };
    fq_request request =
        fq_request_make(&options->request, call->operand, dtypes[options->dtype].suffix);
    request.dequantize = &dequantize;
    const fq_status status =
        dequantize.globs ? fq_report_request(&request, reply, err) : fq_fail_memory(err);
    fq_arena_free(&arena);
    return status;
}

const fq_command fq_command_dequant = {
    .name = "dequant",
    .operand = "INPUT",
    .summary = "cast FP8 weights back to BF16, F16 or F32",
    .description =
        (const char *const[]){
            "Casts a block-scaled FP8 checkpoint back to a BF16, F16 or F32 checkpoint: multiplies "
            "every FP8 E4M3 weight by its block scales and rounds once to the chosen dtype. Scales "
            "and quantization_config go; everything else is copied. The scales of "
            "all makers that docs/formats.md names are read, whichever shard they are in; a "
            "missing scale is an error.",
            NULL,
        },
    .examples =
        (const fq_example[]){
            {"dequant DeepSeek-V3", "write DeepSeek-V3-bf16 beside it"},
            {"dequant Qwen3-8B-FP8 --dtype f32 -o full", "cast to F32"},
            {"dequant Qwen3-8B-FP8 --tensor '*.layers.0.*' -o layer0", "the first layer alone"},
            {0},
        },
    .tables = (const fq_opt *const[]){options_table, fq_request_table, fq_common_table, NULL},
    .defaults = &defaults,
    .options_nbytes = sizeof defaults,
    .run = run,
};
