// The report for programs.
#include "emit.h"
#include "report.h"
#include "tally.h"

#include <string.h>

static const char *action_name(fq_action action) {
    static const char *const names[] = {
        [FQ_COPY] = "copy", [FQ_QUANTIZE] = "quantize", [FQ_DEQUANTIZE] = "dequantize"};
    return names[action];
}

// What was counted; null after a dry run, which counts nothing.
static void emit_counts(fq_emit *emit, const fq_session *session, const fq_step_counts *counts) {
    const struct {
        const char *key;
        uint64_t value;
    } figures[] = {
        {"saturated", counts->quantize.saturated + counts->dequantize.saturated},
        {"flushed_to_zero", counts->quantize.flushed_to_zero},
        {"zero_blocks", counts->quantize.zero_blocks},
        {"floored_blocks", counts->quantize.floored_blocks},
        {"nan_codes", counts->dequantize.nan_codes},
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        if (session->counts)
            fq_emit_u64(emit, figures[i].key, figures[i].value);
        else
            fq_emit_null(emit, figures[i].key);
    }
}

// The row of one tensor: as it is read where it is copied or split, as it is written otherwise.
static void emit_tensor(fq_emit *emit, const fq_session *session, const fq_step *step,
                        const fq_tensor *tensor, const char *action, const fq_step_counts *counts) {
    fq_emit_string(emit, "name", tensor->name);
    fq_emit_string(emit, "action", action);
    fq_emit_string(emit, "reason", step->reason);
    fq_emit_u64s(emit, "shape", tensor->shape, tensor->rank);
    fq_emit_string(emit, "dtype_in", fq_dtype_name(step->source->dtype));
    fq_emit_string(emit, "dtype_out", fq_dtype_name(step->target->dtype));
    emit_counts(emit, session, counts);
    if (session->request->checksum)
        fq_emit_string(
            emit, "checksum",
            step->action == FQ_COPY ? fq_checksums_find(&session->checksums, step->source) : NULL);
}

// A fused tensor: a row for it, and one for each matrix cut out of it.
static void emit_split(fq_emit *emit, const fq_session *session, const fq_row *row) {
    const fq_plan *plan = &session->plan;
    const fq_step *first = fq_row_step(row, plan, 0);
    const fq_step_counts sum = fq_row_counts(row, session, 0, row->n);
    fq_emit_begin(emit, NULL, '{');
    emit_tensor(emit, session, first, first->source, "split", &sum);
    fq_emit_begin(emit, "outputs", '[');
    for (size_t i = 0; i < row->n; i++)
        fq_emit_string(emit, NULL, fq_row_step(row, plan, i)->target->name);
    fq_emit_end(emit, ']');
    fq_emit_end(emit, '}');
    for (size_t i = 0; i < row->n; i++) {
        const fq_step *step = fq_row_step(row, plan, i);
        const fq_step_counts counts = fq_row_counts(row, session, i, 1);
        fq_emit_begin(emit, NULL, '{');
        emit_tensor(emit, session, step, step->target, action_name(step->action), &counts);
        fq_emit_string(emit, "source", step->source->name);
        fq_emit_end(emit, '}');
    }
}

static void emit_rows(fq_emit *emit, const fq_session *session) {
    fq_row row = {0};
    fq_emit_begin(emit, "tensors", '[');
    while (fq_row_next(&row, &session->plan)) {
        const fq_step *step = fq_row_step(&row, &session->plan, 0);
        if (step->split) {
            emit_split(emit, session, &row);
            continue;
        }
        const fq_step_counts counts = fq_row_counts(&row, session, 0, row.n);
        fq_emit_begin(emit, NULL, '{');
        emit_tensor(emit, session, step, step->target, action_name(step->action), &counts);
        fq_emit_end(emit, '}');
    }
    fq_emit_end(emit, ']');
}

static void emit_run(fq_emit *emit, const fq_session *session) {
    if (session->device) {
        fq_emit_double(emit, "seconds", session->seconds);
        fq_emit_double(emit, "gb_per_s", fq_gb_per_s(session));
    } else {
        fq_emit_null(emit, "seconds");
        fq_emit_null(emit, "gb_per_s");
    }
    fq_emit_string(emit, "device", session->device);
    fq_emit_string(emit, "device_name", session->device_description);
}

static void emit_summary(fq_emit *emit, const fq_session *session) {
    const fq_plan *plan = &session->plan;
    fq_tally tally;
    fq_tally_session(&tally, session);
    fq_emit_begin(emit, "summary", '{');
    fq_emit_u64(emit, "n_quantized", tally.n_quantized);
    fq_emit_u64(emit, "n_kept", tally.n_kept);
    fq_emit_u64(emit, "n_files", plan->n_shards);
    fq_emit_u64(emit, "n_files_resumed", session->n_taken);
    fq_emit_u64(emit, "bytes_in", plan->bytes_in);
    fq_emit_u64(emit, "bytes_out", plan->bytes_out);
    emit_run(emit, session);
    emit_counts(emit, session, &tally.counts);
    if (session->request->quantize) {
        fq_emit_string(emit, "scale_format", fq_scale_format_name(plan->scale_format));
        fq_emit_u64(emit, "scale_nbytes", tally.scale_nbytes);
        if (session->quantization_config)
            fq_emit_json(emit, "quantization_config", session->quantization_config,
                         strlen(session->quantization_config));
        else
            fq_emit_null(emit, "quantization_config");
    }
    fq_emit_end(emit, '}');
}

fq_status fq_report_json(const fq_session *session, const fq_reply *reply, fq_error *err) {
    fq_emit emit = {.file = stdout};
    fq_emit_begin(&emit, NULL, '{');
    fq_emit_string(&emit, "output", session->output_path);
    fq_emit_bool(&emit, "dry_run", session->request->dry_run);
    emit_rows(&emit, session);
    fq_emit_strings(&emit, "dropped", session->plan.dropped, session->plan.n_dropped);
    fq_emit_messages(&emit, "warnings", &reply->warnings);
    emit_summary(&emit, session);
    fq_emit_end(&emit, '}');
    return fq_emit_finish(&emit, err);
}
