// fp8q verify: an accuracy report, and an exit code.
#include "activations_option.h"
#include "device.h"
#include "formats/document.h"
#include "kernels/kernels.h"
#include "lib/clock.h"
#include "progress.h"
#include "session.h"
#include "signals.h"
#include "verify_report.h"

#include <inttypes.h>
#include <string.h>

typedef struct verify_options {
    fq_common_options common;
    const char *reference;
    float max_weight_error; // negative: the default
    float max_gemm_error;   // likewise
    bool no_gemm;
    uint32_t tokens;
    uint64_t seed;
    const char *activations;
    fq_opt_list tensors;
    uint32_t tensor_parallel;
    const char *html;
} verify_options;

#define ROW(member) offsetof(verify_options, member)

static const fq_opt options_table[] = {
    {"reference", 0, "ORIGINAL", FQ_OPT_STRING, ROW(reference),
     "the unquantized checkpoint that QUANTIZED was made from; without it the structure, the "
     "scales and the codes are checked alone"},
    {"max-weight-error", 0, "X", FQ_OPT_FLOAT, ROW(max_weight_error),
     "fail weights with a greater relative error (default: 0.07, of the blocks that do not lie "
     "under the amax floor)"},
    {"no-gemm", 0, NULL, FQ_OPT_FLAG, ROW(no_gemm), "do not multiply the weights with activations"},
    {"tokens", 0, "M", FQ_OPT_COUNT, ROW(tokens), "rows of activations, 1 to 1024 (default: 128)"},
    {"seed", 0, "S", FQ_OPT_NUMBER, ROW(seed),
     "of the activations that are made up (default: 0): the same everywhere"},
    {"activations", 0, "normal|outlier[:MAG]|FILE", FQ_OPT_STRING, ROW(activations),
     "normal: of the standard normal distribution (default). outlier: with 8 of 7168 channels MAG "
     "times as large (default: 1000); the error is then that of the others. FILE.safetensors: "
     "captured ones, [tokens, columns] of BF16, F16 or F32, under the name of the weight or of its "
     "module, else the only ones of its width"},
    {"max-gemm-error", 0, "X", FQ_OPT_FLOAT, ROW(max_gemm_error),
     "fail weights whose product has a greater relative error (default: 0.1, for 32 or more tokens "
     "of normal activations, and weights without blocks under the amax floor)"},
    {"tensor", 0, "GLOB", FQ_OPT_LIST, ROW(tensors),
     "only tensors of these full names; repeatable"},
    {"tp", 0, "N", FQ_OPT_COUNT, ROW(tensor_parallel),
     "would engines load this at tensor parallelism N"},
    {"html", 0, "FILE", FQ_OPT_STRING, ROW(html),
     "write the report as a page too, with plots; a FILE that is there is replaced, but none of a "
     "checkpoint"},
    {0},
};

static const verify_options defaults = {
    .common = FQ_COMMON_DEFAULTS,
    .max_weight_error = -1.0f,
    .max_gemm_error = -1.0f,
    .tokens = 128,
    .activations = "normal",
};

// What one run holds.
typedef struct verification {
    const verify_options *options;
    fq_input input, reference;
    fq_activations_request activations;
    fq_document page; // of --html
    fq_verify verify;
    const fq_backend *backend;
    fq_device *device;
    const fq_gemm *gemm; // NULL: no GEMM check
} verification;

// Both are opened; what is said of the files beside the reference's shards is of no interest.
static fq_status open_inputs(verification *v, const char *path, fq_reply *reply, fq_error *err) {
    const fq_input_options with_findings = {.findings = &v->verify.problems}, plain = {0};
    fq_messages unwanted = {0};
    fq_status status =
        fq_input_open(&v->input, path, &with_findings, &reply->faults, &reply->warnings, err);
    if (!status && v->options->reference)
        status = fq_input_open(&v->reference, v->options->reference, &plain, &reply->faults,
                               &unwanted, err);
    fq_messages_free(&unwanted);
    if (!status)
        status = fq_reply_check_faults(reply, err);
    if (!status)
        status = fq_activations_request_open(&v->activations, v->options->activations,
                                             v->options->tokens, v->options->seed, reply, err);
    return status;
}

// A limit that nothing is held to must not look like one that all have kept.
static void warn_of_idle_limits(const verify_options *options, fq_messages *warnings) {
    if (options->max_weight_error >= 0 && !options->reference)
        fq_messages_add(warnings, "--max-weight-error limits nothing without --reference, from "
                                  "which the errors of weights come");
    if (options->max_gemm_error >= 0 && options->no_gemm)
        fq_messages_add(warnings, "--max-gemm-error limits nothing with --no-gemm");
    else if (options->max_gemm_error >= 0 && !options->reference)
        fq_messages_add(warnings, "--max-gemm-error limits nothing without --reference, with whose "
                                  "products those of weights are compared");
}

static fq_status open_page(verification *v, fq_error *err) {
    const fq_input *const inputs[] = {&v->input, &v->reference, &v->activations.file};
    if (!v->options->html)
        return FQ_OK;
    return fq_document_open(&v->page, v->options->html, inputs, sizeof inputs / sizeof inputs[0],
                            err);
}

static fq_status write_page(const void *report, FILE *file, fq_error *err) {
    return fq_verify_html(report, file, err);
}

static fq_status plan(verification *v, fq_arena *arena, fq_error *err) {
    const verify_options *options = v->options;
    const bool has_reference = options->reference != NULL;
    const fq_verify_options chosen = {
        .globs = fq_opt_values(&options->tensors, arena),
        .n_globs = options->tensors.n,
        .tensor_parallel = options->tensor_parallel,
        .limits = {.weight_rel_l2 = (double)options->max_weight_error,
                   .gemm_rel_l2 = (double)options->max_gemm_error,
                   .kernel_rel_l2 = -1.0},
    };
    if (!chosen.globs)
        return fq_fail_memory(err);
    return fq_verify_plan(&v->verify, &v->input.checkpoint, &v->input.model,
                          has_reference ? &v->reference.checkpoint : NULL, &v->reference.model,
                          &chosen, err);
}

// Elements of weights times tokens. An FP8 weight has a byte for each element.
static double count_products(const verification *v) {
    double n = 0;
    for (size_t i = 0; i < v->verify.n_tensors && !v->options->no_gemm; i++)
        n += v->verify.tensors[i].has_weight ? (double)v->verify.tensors[i].tensor->nbytes : 0;
    return n * (double)v->options->tokens;
}

static fq_status open_device(verification *v, const fq_staging *staging, fq_messages *warnings,
                             fq_error *err) {
    const fq_device_needs needs = {
        .device = v->options->common.device,
        .staging = staging,
        .nbytes = v->options->reference ? fq_verify_nbytes(&v->verify) : 0,
        .n_products = count_products(v),
        .for_checks = true,
    };
    const fq_status status = fq_device_open(&v->device, &v->backend, &needs, warnings, err);
    if (!status && !v->options->no_gemm)
        v->gemm = fq_gemm_find(v->backend);
    return status;
}

static fq_status check(verification *v, fq_messages *warnings, fq_error *err) {
    const fq_staging staging = fq_common_staging(&v->options->common);
    fq_progress progress = {0};
    fq_progress_view *view = NULL;
    fq_status status = open_device(v, &staging, warnings, err);
    if (status)
        return status;
    const fq_verify_run_options run = {
        .backend = v->backend,
        .checker = fq_checker_find(v->backend),
        .device = v->device,
        .gemm = v->gemm,
        .activations = &v->activations.options,
        .n_lanes = staging.n_lanes,
        .band_elements = staging.band_elements,
        .progress = &progress,
        .cancelled = &fq_signals_caught,
    };
    fq_progress_start(&view, &v->options->common, &progress, fq_verify_nbytes(&v->verify));
    status = fq_verify_run(&v->verify, &run, err);
    fq_progress_stop(view);
    if (!status)
        status = fq_input_check_unchanged(&v->input, err);
    if (!status)
        status = fq_input_check_unchanged(&v->reference, err);
    return status;
}

static fq_status report(const verification *v, double seconds, const fq_reply *reply,
                        fq_error *err) {
    const fq_common_options *common = &v->options->common;
    const fq_verify_report found = {.verify = &v->verify,
                                    .activations = v->gemm ? &v->activations.options : NULL,
                                    .device = v->backend->name,
                                    .device_description = v->backend->describe(v->device),
                                    .seconds = seconds,
                                    .warnings = &reply->warnings};
    const fq_printer printer = fq_printer_make(stdout, (fq_color)common->color);
    fq_status status = FQ_OK, shown = FQ_OK;
    if (v->options->html)
        status = fq_document_write(&v->page, write_page, &found, err);
    if (!common->json) // what took minutes is shown even where the page could not be written
        shown = fq_verify_text(&printer, &found, common->quiet, err);
    else if (!status)
        shown = fq_verify_json(&found, err);
    if (!status)
        status = shown;
    const fq_verify_summary *summary = &v->verify.summary;
    if (status || summary->passed)
        return status;
    const size_t n_problems = v->verify.problems.n + v->verify.problems.n_lost;
    return fq_fail(err, FQ_VERIFY_FAILED,
                   "%s: verification failed: %" PRIu64 " of %" PRIu64 " weights, %zu other "
                   "problem%s; the report says what to do about each",
                   v->input.checkpoint.path, summary->n_failed, summary->n_tensors, n_problems,
                   fq_plural(n_problems));
}

static fq_status run(const fq_call *call, fq_reply *reply, fq_error *err) {
    const double start = fq_clock_seconds();
    verification v = {.options = call->options};
    fq_arena arena = {0};
    v.input.folder_fd = v.reference.folder_fd = v.activations.file.folder_fd = -1;
    v.reference.model = fq_model_unknown();
    reply->color = (fq_color)v.options->common.color;
    fq_status status = open_inputs(&v, call->operand, reply, err);
    warn_of_idle_limits(v.options, &reply->warnings);
    if (!status)
        status = open_page(&v, err);
    if (!status)
        status = plan(&v, &arena, err);
    if (!status)
        status = check(&v, &reply->warnings, err);
    if (!status)
        status = report(&v, fq_clock_seconds() - start, reply, err);
    if (v.device)
        v.backend->close(v.device);
    fq_document_close(&v.page);
    fq_verify_free(&v.verify);
    fq_activations_request_close(&v.activations);
    fq_input_close(&v.reference);
    fq_input_close(&v.input);
    fq_arena_free(&arena);
    return status;
}

const fq_command fq_command_verify = {
    .name = "verify",
    .operand = "QUANTIZED",
    .summary = "check FP8 weights, and against the original",
    .description =
        (const char *const[]){
            "Checks the scales, codes, names, index and config of an FP8 checkpoint, and says what "
            "engines would refuse. With --reference every code and scale is computed anew from the "
            "original and compared; the report gives the error of each weight, the worst first.",
            "Every weight is also multiplied with activations by the block-scaled FP8 GEMM, and "
            "the "
            "product held against the one of the original weights, and against the exact one of "
            "the same FP8 operands.",
            "In a checkpoint that fp8q made of the reference every byte of every tensor must be "
            "right. Codes of other tools may differ by what rounding explains. Other files, the "
            "tokenizer say, are not compared. The exit code is 1 if anything fails.",
            NULL,
        },
    .examples =
        (const fq_example[]){
            {"verify Qwen3-8B-fp8-sm90 --reference Qwen3-8B",
             "every tensor, and the error it costs"},
            {"verify Qwen3-8B-fp8-sm90 --tp 8", "would it load on eight GPUs"},
            {"verify Qwen3-8B-fp8-sm90 --reference Qwen3-8B --json", "the same for programs"},
            {"verify Qwen3-8B-fp8-sm90 --reference Qwen3-8B --html report.html",
             "the same as a page, with plots"},
            {0},
        },
    .tables = (const fq_opt *const[]){options_table, fq_common_table, NULL},
    .defaults = &defaults,
    .options_nbytes = sizeof defaults,
    .run = run,
};
