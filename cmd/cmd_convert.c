// fp8q convert: BF16, F16 or F32 in, block-scaled FP8 out.
#include "emit.h"
#include "lib/fp8.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { ARCH_SM90, ARCH_SM100 };
enum { NONFINITE_ERROR, NONFINITE_KEEP };
enum { EXPERTS_SPLIT, EXPERTS_KEEP };

typedef struct convert_options {
    fq_request_options request;
    int arch;
    int scale_format; // fq_scale_format, or -1: the arch's own
    fq_opt_list rules;
    bool list_rules;
    bool checksum;
    int on_nonfinite;
    float amax_floor;
    int experts;
} convert_options;

#define ROW(member) offsetof(convert_options, member)

static const fq_opt options_table[] = {
    {"output", 'o', "OUTPUT", FQ_OPT_STRING, ROW(request.output),
     "where to (default: INPUT-fp8-ARCH beside the input; for a model in the Hugging Face cache, "
     "REPO-fp8-ARCH in the current folder)"},
    {"arch", 0, "sm90|sm100", FQ_OPT_CHOICE, ROW(arch),
     "what the scales are made for: Hopper, FP32 (default), or Blackwell, packed UE8M0"},
    {"scale-format", 0, "f32|pow2|e8m0|packed", FQ_OPT_CHOICE, ROW(scale_format),
     "how scales are stored, whatever the arch: FP32; FP32 powers of two, which serve Hopper and "
     "Blackwell; UE8M0 bytes; or DeepGEMM's packed operand, which no engine loads from a folder "
     "yet"},
    {"include", 0, "GLOB", FQ_OPT_LIST, ROW(rules),
     "quantize tensors of these full names, against the built-in rules; repeatable, the last "
     "match of --include and --exclude wins"},
    {"exclude", 0, "GLOB", FQ_OPT_LIST, ROW(rules),
     "keep tensors of these full names as they are; repeatable, as --include"},
    {"list-rules", 0, NULL, FQ_OPT_ALONE, ROW(list_rules), "print the built-in rules and stop"},
    {"experts", 0, "split|keep", FQ_OPT_CHOICE, ROW(experts),
     "fused 3-D expert weights become per-expert matrices (default), or stay as they are"},
    {"on-nonfinite", 0, "error|keep", FQ_OPT_CHOICE, ROW(on_nonfinite),
     "a tensor to be quantized that holds NaN or Inf ends the run (default), or is kept as it is"},
    {"amax-floor", 0, "X", FQ_OPT_FLOAT, ROW(amax_floor),
     "least amax of a block (default: 1e-4, as DeepSeek and DeepGEMM; 0: none)"},
    {"checksum", 0, NULL, FQ_OPT_FLAG, ROW(checksum),
     "record the XXH3-128 of every tensor that is copied in the metadata of its file, and compare "
     "the copies on disk with it"},
    {0},
};

static const convert_options defaults = {
    .request.common = FQ_COMMON_DEFAULTS,
    .scale_format = -1,
    .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
};

static void print_rules(const fq_printer *printer, const fq_component_rule *rules, size_t n) {
    fq_print_line(printer, "A tensor is kept where a whole dotted component of its name matches:");
    for (size_t i = 0; i < n; i++) {
        fq_print(printer, FQ_PLAIN, "  ");
        fq_print_padded(printer, 24, rules[i].glob);
        fq_print_line(printer, "  %s%s%s", rules[i].reason, *rules[i].where ? "; only " : "",
                      rules[i].where);
    }
}

static fq_status emit_rules(const fq_component_rule *rules, size_t n, fq_error *err) {
    fq_emit emit = {.file = stdout};
    fq_emit_begin(&emit, NULL, '{');
    fq_emit_begin(&emit, "rules", '[');
    for (size_t i = 0; i < n; i++) {
        fq_emit_begin(&emit, NULL, '{');
        fq_emit_string(&emit, "component", rules[i].glob);
        fq_emit_string(&emit, "where", rules[i].where);
        fq_emit_string(&emit, "reason", rules[i].reason);
        fq_emit_end(&emit, '}');
    }
    fq_emit_end(&emit, ']');
    fq_emit_end(&emit, '}');
    return fq_emit_finish(&emit, err);
}

static fq_status list_rules(const convert_options *options, fq_error *err) {
    size_t n;
    const fq_component_rule *rules = fq_policy_rules(&n);
    const fq_printer printer = fq_printer_make(stdout, (fq_color)options->request.common.color);
    if (options->request.common.json)
        return emit_rules(rules, n, err);
    print_rules(&printer, rules, n);
    return FQ_OK;
}

static fq_status convert(const convert_options *options, const fq_name_rule *rules,
                         const char *input, fq_reply *reply, fq_error *err) {
    const fq_scale_format arch_format =
        options->arch == ARCH_SM100 ? FQ_SCALE_PACKED : FQ_SCALE_F32;
    const fq_quantize_options quantize = {
        .scale_format =
            options->scale_format < 0 ? arch_format : (fq_scale_format)options->scale_format,
        .amax_floor = options->amax_floor,
        .arch = options->arch == ARCH_SM100 ? "sm100" : "sm90",
        .version = FQ_VERSION,
        .policy = {.rules = rules,
                   .n_rules = options->rules.n,
                   .keep_fused_experts = options->experts == EXPERTS_KEEP},
    };
    const char *suffix = options->arch == ARCH_SM100 ? "fp8-sm100" : "fp8-sm90";
    fq_request request = fq_request_make(&options->request, input, suffix);
    request.checksum = options->checksum;
    request.keep_nonfinite = options->on_nonfinite == NONFINITE_KEEP;
    request.quantize = &quantize;
    return fq_report_request(&request, reply, err);
}

static fq_status run(const fq_call *call, fq_reply *reply, fq_error *err) {
    const convert_options *options = call->options;
    if (options->list_rules)
        return list_rules(options, err);
    fq_name_rule *rules = calloc(options->rules.n + 1, sizeof *rules);
    if (!rules)
        return fq_fail_memory(err);
    for (size_t i = 0; i < options->rules.n; i++) {
        const fq_opt_item *item = &options->rules.items[i];
        rules[i].glob = item->value;
        rules[i].include = strcmp(item->name, "include") == 0;
    }
    const fq_status status = convert(options, rules, call->operand, reply, err);
    free(rules);
    return status;
}

const fq_command fq_command_convert = {
    .name = "convert",
    .operand = "INPUT",
    .summary = "quantize BF16, F16 or F32 weights to FP8",
    .description =
        (const char *const[]){
            "Quantizes the linear weights of a BF16, F16 or F32 checkpoint to FP8 E4M3 with one "
            "scale "
            "per 128 x 128 block, adds quantization_config to config.json, and copies everything "
            "else. "
            "Embeddings, norms, routers, output heads and other sensitive tensors are kept; the "
            "summary lists them with the reason.",
            "The output is built as OUTPUT.partial and gets its name by one rename, when it is "
            "complete. A run that was interrupted is resumed by the same command with "
            "--resume. GB/s counts bytes read and written.",
            NULL,
        },
    .examples =
        (const fq_example[]){
            {"convert Qwen3-8B --dry-run", "show what would be done, and how large the output is"},
            {"convert Qwen3-8B", "write Qwen3-8B-fp8-sm90 beside it"},
            {"convert Qwen3-8B --resume", "go on after an interruption"},
            {"convert Qwen3-8B -o out --scale-format pow2",
             "one checkpoint for Hopper and Blackwell"},
            {"convert model.safetensors --exclude '*.layers.0.*'", "keep the first layer as it is"},
            {0},
        },
    .tables = (const fq_opt *const[]){options_table, fq_request_table, fq_common_table, NULL},
    .defaults = &defaults,
    .options_nbytes = sizeof defaults,
    .run = run,
};
