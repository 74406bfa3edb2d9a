// The report for people: what was quantized, what was kept and why, bytes and seconds.
#include "report.h"

#include "escape.h"
#include "tally.h"

#include <inttypes.h>
#include <string.h>

fq_status fq_report_folded(const fq_printer *printer, const fq_fold_item *head,
                           const fq_fold_item *items, size_t n, fq_error *err) {
    enum { MAX_COLUMN = 72 }; // longer patterns stand out alone
    fq_arena arena = {0};
    fq_fold_line *lines = NULL;
    size_t n_lines = 0, column = 0;
    const fq_status status = fq_fold(&lines, &n_lines, &arena, items, n, err);
    for (size_t i = 0; i < n_lines; i++) {
        const size_t width = fq_escape_width(lines[i].pattern, strlen(lines[i].pattern));
        if (width > column && width <= MAX_COLUMN)
            column = width;
    }
    if (head && n_lines > 0) {
        fq_print(printer, FQ_BOLD, "%8s  %-*s%s", "COUNT", (int)column + 2, head->name, head->rest);
        fq_print_newline(printer);
    }
    for (size_t i = 0; i < n_lines; i++) {
        fq_print(printer, FQ_PLAIN, "%8" PRIu64 "  ", lines[i].n);
        fq_print_padded(printer, *lines[i].rest ? column + 2 : 0, lines[i].pattern);
        fq_print_line(printer, "%s", lines[i].rest);
    }
    fq_arena_free(&arena);
    return status;
}

// "BF16 [4096, 4096] -> F8_E4M3: note", of one source tensor.
static const char *describe_row(fq_arena *arena, const fq_row *row, const fq_plan *plan) {
    char shape[FQ_SHAPE_TEXT], part_shape[FQ_SHAPE_TEXT], parts[FQ_SHAPE_TEXT + 32] = "";
    const fq_step *step = fq_row_step(row, plan, 0);
    const fq_tensor *source = step->source;
    const char *separator = *step->reason ? ": " : "";
    fq_shape_format(shape, sizeof shape, source->shape, source->rank);
    if (step->action == FQ_COPY)
        return fq_arena_printf(arena, "%s %s%s%s", fq_dtype_name(source->dtype), shape, separator,
                               step->reason);
    if (step->split)
        snprintf(parts, sizeof parts, "%zu x %s ", row->n,
                 fq_shape_format(part_shape, sizeof part_shape, step->target->shape,
                                 step->target->rank));
    return fq_arena_printf(arena, "%s %s -> %s%s%s%s", fq_dtype_name(source->dtype), shape, parts,
                           fq_dtype_name(step->target->dtype), separator, step->reason);
}

// Lists the rows that are copied, or those that are not.
static fq_status print_rows(const fq_printer *printer, const fq_session *session, bool copied,
                            fq_error *err) {
    const fq_plan *plan = &session->plan;
    fq_arena arena = {0};
    fq_status status = FQ_OK;
    size_t n = 0;
    fq_fold_item *items =
        fq_arena_array(&arena, session->input.checkpoint.n_tensors, sizeof *items);
    fq_row row = {0};
    while (items && fq_row_next(&row, plan)) {
        const fq_step *step = fq_row_step(&row, plan, 0);
        if ((step->action == FQ_COPY) != copied)
            continue;
        items[n].name = step->source->name;
        items[n].rest = describe_row(&arena, &row, plan);
        if (!items[n++].rest)
            break;
    }
    if (!items || (n > 0 && !items[n - 1].rest))
        status = fq_fail_memory(err);
    else
        status = fq_report_folded(printer, NULL, items, n, err);
    fq_arena_free(&arena);
    return status;
}

static fq_status print_dropped(const fq_printer *printer, const fq_plan *plan, fq_error *err) {
    if (plan->n_dropped == 0)
        return FQ_OK;
    fq_arena arena = {0};
    fq_fold_item *items = fq_arena_array(&arena, plan->n_dropped, sizeof *items);
    fq_status status = FQ_OK;
    if (!items) {
        status = fq_fail_memory(err);
    } else {
        for (size_t i = 0; i < plan->n_dropped; i++)
            items[i] = (fq_fold_item){.name = plan->dropped[i], .rest = ""};
        fq_print(printer, FQ_BOLD, "Left out");
        fq_print_line(printer, ": %zu tensor%s for FP8 inference only", plan->n_dropped,
                      fq_plural(plan->n_dropped));
        status = fq_report_folded(printer, NULL, items, plan->n_dropped, err);
    }
    fq_arena_free(&arena);
    return status;
}

static void print_changed(const fq_printer *printer, const fq_session *session,
                          const fq_tally *tally) {
    char in[FQ_SIZE_TEXT], out[FQ_SIZE_TEXT], scales[FQ_SIZE_TEXT];
    fq_format_nbytes(in, tally->quantized_nbytes_in);
    fq_format_nbytes(out, tally->quantized_nbytes_out);
    const bool dry = session->request->dry_run;
    if (session->request->quantize) {
        fq_print(printer, FQ_BOLD, "%s", dry ? "Quantize" : "Quantized");
        fq_print_line(printer, ": %" PRIu64 " tensor%s, %s -> %s, and %s of scales (%s)",
                      tally->n_quantized, fq_plural(tally->n_quantized), in, out,
                      fq_format_nbytes(scales, tally->scale_nbytes),
                      fq_scale_format_name(session->plan.scale_format));
        if (tally->n_split > 0)
            fq_print_line(printer,
                          "Split: %" PRIu64 " fused expert tensor%s into %" PRIu64 " matri%s",
                          tally->n_split, fq_plural(tally->n_split), tally->n_split_matrices,
                          tally->n_split_matrices == 1 ? "x" : "ces");
    } else {
        fq_print(printer, FQ_BOLD, "Cast back");
        fq_print_line(printer, ": %" PRIu64 " tensor%s, %s -> %s", tally->n_quantized,
                      fq_plural(tally->n_quantized), in, out);
    }
}

static double percent(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

// Rounding and range, as far as there is anything to say.
static void print_counts(const fq_printer *printer, const fq_tally *tally) {
    const fq_quantize_counts *q = &tally->counts.quantize;
    const fq_dequantize_counts *d = &tally->counts.dequantize;
    if (q->flushed_to_zero)
        fq_print_line(printer,
                      "Flushed to zero: %" PRIu64 " element%s (%.3g%%), most in %s (%.3g%%)",
                      q->flushed_to_zero, fq_plural(q->flushed_to_zero),
                      percent(q->flushed_to_zero, tally->n_elements),
                      tally->most_flushed->target->name, 100 * tally->most_flushed_share);
    if (q->zero_blocks)
        fq_print_line(printer, "Blocks of zeros: %" PRIu64, q->zero_blocks);
    if (q->floored_blocks)
        fq_print_line(printer, "Blocks under --amax-floor: %" PRIu64, q->floored_blocks);
    if (q->saturated + d->saturated)
        fq_print_line(printer, "Saturated: %" PRIu64 " element%s", q->saturated + d->saturated,
                      fq_plural(q->saturated + d->saturated));
}

// The config, where the user has to put it to use, as it goes into a config.json: none came with
// the input.
static void print_config(const fq_printer *printer, const fq_session *session) {
    const char *line = session->quantization_config;
    if (!line || session->input.config_text)
        return;
    fq_print_line(printer, "%s",
                  session->input.checkpoint.is_folder
                      ? "For a config.json:"
                      : "In the file's metadata, and for a config.json:");
    for (const char *lead = "  \"quantization_config\": "; *line; lead = "") {
        const size_t n = strcspn(line, "\n");
        fq_print_line(printer, "%s%.*s", lead, (int)n, line);
        line += n + (line[n] == '\n');
    }
}

// What a dry run says of the config that would be written.
static void print_config_shortly(const fq_printer *printer, const fq_session *session) {
    if (!session->quantization_config || !session->input.config_text)
        return;
    fq_print(printer, FQ_BOLD, "config.json");
    fq_print_line(printer,
                  ": quantization_config of FP8 E4M3 in 128 x 128 blocks%s, %zu module%s "
                  "not converted",
                  fq_scale_format_is_ue8m0(session->plan.scale_format) ? ", scale_fmt ue8m0" : "",
                  session->plan.n_modules, fq_plural(session->plan.n_modules));
}

// What this run did, and what another had done before it.
static void print_work(const fq_printer *printer, const fq_session *session) {
    char in[FQ_SIZE_TEXT], out[FQ_SIZE_TEXT];
    const fq_plan *plan = &session->plan;
    fq_format_nbytes(in, plan->bytes_in - session->taken_nbytes_in);
    fq_format_nbytes(out, plan->bytes_out - session->taken_nbytes_out);
    if (session->n_taken > 0)
        fq_print_line(printer, "Finished by the interrupted run: %zu of %zu weight file%s",
                      session->n_taken, plan->n_shards, fq_plural(plan->n_shards));
    if (session->device)
        fq_print_line(printer, "Read %s, wrote %s in %.2f s, %.2f GB/s, on %s (%s)", in, out,
                      session->seconds, fq_gb_per_s(session), session->device,
                      session->device_description);
}

static void print_end(const fq_printer *printer, const fq_session *session) {
    char out[FQ_SIZE_TEXT];
    const fq_plan *plan = &session->plan;
    fq_format_nbytes(out, plan->bytes_out);
    const char *plural = fq_plural(plan->n_shards);
    if (session->request->dry_run) {
        fq_print(printer, FQ_BOLD, "Would write");
        fq_print_line(printer, ": %s, %s (%" PRIu64 " bytes) in %zu weight file%s",
                      session->output_path, out, plan->bytes_out, plan->n_shards, plural);
        return;
    }
    fq_print(printer, FQ_BOLD, "Wrote");
    fq_print_line(printer, ": %s, %s in %zu weight file%s", session->output_path, out,
                  plan->n_shards, plural);
    print_work(printer, session);
}

static fq_status report_text(const fq_session *session, fq_error *err) {
    char kept[FQ_SIZE_TEXT];
    const fq_printer printer = fq_printer_make(stdout, (fq_color)session->request->common->color);
    fq_tally tally;
    fq_tally_session(&tally, session);
    fq_status status = FQ_OK;
    print_changed(&printer, session, &tally);
    if (session->request->dry_run)
        status = print_rows(&printer, session, false, err);
    fq_print(&printer, FQ_BOLD, "%s", session->request->dry_run ? "Keep" : "Kept");
    fq_print_line(&printer, ": %" PRIu64 " tensor%s, %s", tally.n_kept, fq_plural(tally.n_kept),
                  fq_format_nbytes(kept, tally.kept_nbytes));
    if (!status)
        status = print_rows(&printer, session, true, err);
    if (session->request->checksum && session->counts)
        fq_print_line(&printer, "Checked: they are on disk as they are in the input");
    if (!status)
        status = print_dropped(&printer, &session->plan, err);
    print_counts(&printer, &tally);
    print_config(&printer, session);
    if (session->request->dry_run)
        print_config_shortly(&printer, session);
    print_end(&printer, session);
    return status;
}

fq_status fq_report_request(const fq_request *request, fq_reply *reply, fq_error *err) {
    fq_session session = {0};
    reply->color = (fq_color)request->common->color;
    fq_status status = fq_session_run(&session, request, reply, err);
    if (!status)
        fq_tally_warn(&session, &reply->warnings);
    if (!status && request->common->json)
        status = fq_report_json(&session, reply, err);
    else if (!status && (request->dry_run || !request->common->quiet))
        status = report_text(&session, err);
    if (!status && request->dry_run)
        status = fq_session_check_output(&session, err);
    fq_session_close(&session);
    return status;
}
