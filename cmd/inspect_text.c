// What inspect shows to people.
#include "inspect.h"
#include "report.h"

#include <inttypes.h>
#include <math.h>

static const char *role_text(const fq_survey_row *row) {
    return row->role == FQ_ROLE_WEIGHT ? "weight" : row->role == FQ_ROLE_SCALE ? "scale" : "";
}

static void print_stats(const fq_printer *printer, const fq_survey_row *row) {
    const fq_stats *stats = &row->stats;
    if (!row->has_stats)
        return;
    fq_print(printer, FQ_DIM,
             "    min %.6g  max %.6g  amax %.6g  zeros %" PRIu64 "  NaN %" PRIu64 "  Inf %" PRIu64,
             stats->min, stats->max, fmax(fabs(stats->min), fabs(stats->max)), stats->n_zeros,
             stats->n_nans, stats->n_infs);
    if (stats->n_codes)
        fq_print(printer, FQ_DIM, "  codes %u", (unsigned)stats->n_codes);
    if (row->has_scale_stats)
        fq_print(printer, FQ_DIM, "  scales %.6g to %.6g", (double)row->scale_stats.min,
                 (double)row->scale_stats.max);
    fq_print_newline(printer);
}

static void print_list(const fq_printer *printer, const fq_survey *survey) {
    char shape[FQ_SHAPE_TEXT], size[FQ_SIZE_TEXT];
    const bool has_scales = survey->n_quantized > 0;
    if (survey->n > 0) {
        fq_print(printer, FQ_BOLD, "%-10s%9s  %-20s%s  NAME", "DTYPE", "SIZE", "SHAPE",
                 has_scales ? "  ROLE   SCALES" : "");
        fq_print_newline(printer);
    }
    for (size_t i = 0; i < survey->n; i++) {
        const fq_survey_row *row = &survey->rows[i];
        const fq_tensor *tensor = row->tensor;
        fq_print_padded(printer, 10, fq_dtype_name(tensor->dtype));
        fq_print(printer, FQ_PLAIN, "%9s  ", fq_format_nbytes(size, tensor->nbytes));
        fq_print_padded(printer, 20,
                        fq_shape_format(shape, sizeof shape, tensor->shape, tensor->rank));
        if (has_scales)
            fq_print(printer, FQ_PLAIN, "  %-6s %-6s", role_text(row),
                     row->scale_format ? row->scale_format : "");
        fq_print_line(printer, "  %s", tensor->name);
        print_stats(printer, row);
    }
}

static fq_status print_folded(const fq_printer *printer, const fq_survey *survey, fq_error *err) {
    const fq_fold_item head = {.name = "NAME",
                               .rest = survey->n_quantized > 0 ? "DTYPE SHAPE ROLE, SCALES"
                                                               : "DTYPE SHAPE"};
    char shape[FQ_SHAPE_TEXT];
    fq_arena arena = {0};
    fq_fold_item *items = fq_arena_array(&arena, survey->n, sizeof *items);
    bool ok = items != NULL;
    for (size_t i = 0; i < survey->n && ok; i++) {
        const fq_survey_row *row = &survey->rows[i];
        const fq_tensor *tensor = row->tensor;
        items[i].name = tensor->name;
        items[i].rest = fq_arena_printf(
            &arena, "%s %s%s%s%s%s", fq_dtype_name(tensor->dtype),
            fq_shape_format(shape, sizeof shape, tensor->shape, tensor->rank),
            *role_text(row) ? " " : "", role_text(row), row->scale_format ? ", " : "",
            row->scale_format ? row->scale_format : "");
        ok = items[i].rest != NULL;
    }
    const fq_status status =
        ok ? fq_report_folded(printer, &head, items, survey->n, err) : fq_fail_memory(err);
    fq_arena_free(&arena);
    return status;
}

static void print_fp8(const fq_printer *printer, const fq_survey *survey) {
    if (survey->n_quantized == 0)
        return;
    fq_print(printer, FQ_BOLD, "FP8 weights");
    fq_print(printer, FQ_PLAIN, ": %" PRIu64 ", %.1f%% of the bytes", survey->n_quantized,
             survey->nbytes ? 100.0 * (double)survey->quantized_nbytes / (double)survey->nbytes
                            : 0.0);
    if (survey->block.rows)
        fq_print(printer, FQ_PLAIN, ", blocks of %" PRIu64 " x %" PRIu64, survey->block.rows,
                 survey->block.cols);
    if (survey->scale_format)
        fq_print(printer, FQ_PLAIN, ", scales %s", survey->scale_format);
    fq_print_newline(printer);
}

static void print_config(const fq_printer *printer, const fq_survey *survey,
                         const fq_input *input) {
    const fq_quant_config *quant = &input->model.quant;
    if (*input->model.model_type)
        fq_print_line(printer, "model_type: %s", input->model.model_type);
    if (!survey->config)
        return;
    fq_print(printer, FQ_BOLD, "quantization_config");
    if (!quant->present) {
        fq_print_line(printer, ": cannot be read; --json shows it");
        return;
    }
    fq_print(printer, FQ_PLAIN, ": quant_method %s", *quant->method ? quant->method : "absent");
    if (*quant->fmt)
        fq_print(printer, FQ_PLAIN, ", fmt %s", quant->fmt);
    if (quant->has_block)
        fq_print(printer, FQ_PLAIN, ", weight_block_size %" PRIu64 " x %" PRIu64, quant->block.rows,
                 quant->block.cols);
    fq_print_line(printer, "%s", quant->ue8m0 ? ", scale_fmt ue8m0" : "");
}

static void print_summary(const fq_printer *printer, const fq_survey *survey,
                          const fq_input *input) {
    char size[FQ_SIZE_TEXT];
    const size_t n_shards = input->checkpoint.n_shards;
    fq_print(printer, FQ_BOLD, "%s", input->checkpoint.path);
    fq_print_line(printer, ": %zu tensor%s, %s, %zu file%s", survey->n, fq_plural(survey->n),
                  fq_format_nbytes(size, survey->nbytes), n_shards, fq_plural(n_shards));
    for (int dtype = 0; dtype < FQ_DTYPE_COUNT; dtype++) {
        if (survey->dtype_n[dtype] > 0)
            fq_print_line(printer, "  %-12s %8" PRIu64 "  %s", fq_dtype_name((fq_dtype)dtype),
                          survey->dtype_n[dtype],
                          fq_format_nbytes(size, survey->dtype_nbytes[dtype]));
    }
    print_fp8(printer, survey);
    print_config(printer, survey, input);
}

fq_status fq_inspect_text(const fq_printer *printer, const fq_survey *survey, const fq_input *input,
                          bool folded, fq_error *err) {
    fq_status status = FQ_OK;
    if (folded)
        status = print_folded(printer, survey, err);
    else
        print_list(printer, survey);
    if (survey->n > 0)
        fq_print_newline(printer);
    print_summary(printer, survey, input);
    if (folded)
        fq_print_line(printer, "Names that differ in numbers alone share a line; --sort name "
                               "lists every tensor.");
    return status;
}
