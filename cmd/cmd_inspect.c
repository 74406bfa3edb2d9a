// fp8q inspect: what a checkpoint holds.
#include "inspect.h"
#include "progress.h"
#include "session.h"
#include "signals.h"

#include <string.h>

typedef struct inspect_options {
    fq_common_options common;
    fq_opt_list tensors;
    bool stats;
    int sort; // fq_survey_order, or -1
} inspect_options;

#define ROW(member) offsetof(inspect_options, member)

static const fq_opt options_table[] = {
    {"tensor", 0, "GLOB", FQ_OPT_LIST, ROW(tensors),
     "only tensors of these full names; repeatable"},
    {"stats", 0, NULL, FQ_OPT_FLAG, ROW(stats),
     "read the values: range, zeros, NaN and Inf; of FP8 weights the values of the codes, before "
     "scaling, how many codes differ, and the range of the scales"},
    {"sort", 0, "name|size|dtype", FQ_OPT_CHOICE, ROW(sort),
     "list every tensor, in this order (default: by name, folded above 200 tensors)"},
    {0},
};

static const inspect_options defaults = {.common = FQ_COMMON_DEFAULTS, .sort = -1};

static fq_status read_stats(fq_survey *survey, const inspect_options *options,
                            const fq_input *input, fq_reply *reply, fq_error *err) {
    fq_progress progress = {0};
    fq_progress_view *view;
    fq_progress_start(&view, &options->common, &progress, fq_survey_stats_nbytes(survey));
    const fq_status status = fq_survey_read_stats(survey, input, &progress.bytes_read,
                                                  &fq_signals_caught, &reply->warnings, err);
    fq_progress_stop(view);
    return status;
}

static fq_status report(const fq_survey *survey, const inspect_options *options,
                        const fq_input *input, const fq_reply *reply, fq_error *err) {
    enum { FOLD_ABOVE = 200 }; // tensors: a few screens
    if (options->common.json)
        return fq_inspect_json(survey, input, &reply->warnings, err);
    const fq_printer printer = fq_printer_make(stdout, (fq_color)options->common.color);
    const bool all_asked_for = options->tensors.n > 0 || options->sort >= 0 || options->stats;
    return fq_inspect_text(&printer, survey, input, survey->n > FOLD_ABOVE && !all_asked_for, err);
}

static fq_status run(const fq_call *call, fq_reply *reply, fq_error *err) {
    const inspect_options *options = call->options;
    const fq_opt_list no_files = {0};
    const fq_survey_order order = options->sort < 0 ? FQ_SORT_NAME : (fq_survey_order)options->sort;
    fq_input input = {0};
    fq_survey survey = {0};
    fq_arena arena = {0};
    const char **globs = fq_opt_values(&options->tensors, &arena);
    reply->color = (fq_color)options->common.color;
    fq_status status = globs ? fq_session_open_input(&input, call->operand, &no_files, reply, err)
                             : fq_fail_memory(err);
    if (!status)
        status = fq_survey_make(&survey, &input, globs, options->tensors.n, order, &reply->warnings,
                                err);
    if (survey.scale_format && strcmp(survey.scale_format, "packed") == 0)
        fq_session_warn_packed(&reply->warnings, "");
    if (!status && options->stats)
        status = read_stats(&survey, options, &input, reply, err);
    if (!status)
        status = fq_input_check_unchanged(&input, err);
    if (!status)
        status = report(&survey, options, &input, reply, err);
    fq_survey_free(&survey);
    fq_input_close(&input);
    fq_arena_free(&arena);
    return status;
}

const fq_command fq_command_inspect = {
    .name = "inspect",
    .operand = "INPUT",
    .summary = "show what a checkpoint holds",
    .description =
        (const char *const[]){
            "Lists the tensors of a checkpoint, pairs FP8 weights with their scales, and sums up "
            "dtypes, block size and scale format. What is wrong with scales is a warning here; a "
            "file that cannot be read is an error.",
            NULL,
        },
    .examples =
        (const fq_example[]){
            {"inspect Qwen3-8B", "the tensors, folded, and a summary"},
            {"inspect Qwen3-8B --sort size", "every tensor, the largest first"},
            {"inspect model.safetensors --tensor '*norm*' --stats", "the values of the norms"},
            {0},
        },
    .tables = (const fq_opt *const[]){options_table, fq_common_table, NULL},
    .defaults = &defaults,
    .options_nbytes = sizeof defaults,
    .run = run,
};
