// Sums over the steps of a plan.
#include "tally.h"

#include <inttypes.h>
#include <string.h>

bool fq_row_next(fq_row *row, const fq_plan *plan) {
    row->first += row->n;
    while (row->shard < plan->n_shards && row->first == plan->shards[row->shard].n_steps) {
        row->shard++;
        row->first = 0;
    }
    if (row->shard == plan->n_shards)
        return false;
    const fq_plan_shard *shard = &plan->shards[row->shard];
    const fq_tensor *source = shard->steps[row->first].source;
    row->n = 1;
    while (row->first + row->n < shard->n_steps &&
           shard->steps[row->first + row->n].source == source)
        row->n++;
    return true;
}

const fq_step *fq_row_step(const fq_row *row, const fq_plan *plan, size_t i) {
    return &plan->shards[row->shard].steps[row->first + i];
}

fq_step_counts fq_row_counts(const fq_row *row, const fq_session *session, size_t i, size_t n) {
    fq_step_counts sum = {0};
    for (size_t k = i; session->counts && k < i + n; k++)
        fq_step_counts_add(&sum, &session->counts[row->shard][row->first + k]);
    return sum;
}

static uint64_t n_elements(const fq_step *step) {
    return step->source_matrix.rows * step->source_matrix.cols;
}

static void add_matrix(fq_tally *tally, const fq_step *step, const fq_step_counts *counts) {
    const uint64_t n = n_elements(step);
    tally->n_elements += n;
    tally->quantized_nbytes_in += n * fq_dtype_size(step->source->dtype);
    tally->quantized_nbytes_out += n * fq_dtype_size(step->target->dtype);
    tally->scale_nbytes += step->target_scale ? step->target_scale->nbytes : 0;
    fq_step_counts_add(&tally->counts, counts);
    const double share = n ? (double)counts->quantize.flushed_to_zero / (double)n : 0;
    if (share > tally->most_flushed_share) {
        tally->most_flushed_share = share;
        tally->most_flushed = step;
    }
}

void fq_tally_session(fq_tally *out, const fq_session *session) {
    memset(out, 0, sizeof *out);
    fq_row row = {0};
    while (fq_row_next(&row, &session->plan)) {
        const fq_step *first = fq_row_step(&row, &session->plan, 0);
        if (first->action == FQ_COPY) {
            out->n_kept++;
            out->kept_nbytes += first->source->nbytes;
            continue;
        }
        out->n_quantized += first->split ? row.n : 1;
        out->n_split += first->split;
        out->n_split_matrices += first->split ? row.n : 0;
        for (size_t i = 0; i < row.n; i++) {
            const fq_step_counts counts = fq_row_counts(&row, session, i, 1);
            add_matrix(out, fq_row_step(&row, &session->plan, i), &counts);
        }
    }
}

void fq_tally_warn(const fq_session *session, fq_messages *warnings) {
    const fq_checkpoint *checkpoint = &session->input.checkpoint;
    bool any_quantized = false;
    fq_row row = {0};
    while (fq_row_next(&row, &session->plan)) {
        const fq_step *step = fq_row_step(&row, &session->plan, 0);
        const fq_step_counts counts = fq_row_counts(&row, session, 0, row.n);
        any_quantized = any_quantized || step->action != FQ_COPY;
        if (counts.dequantize.nan_codes > 0)
            fq_messages_add(warnings, "%s: %s: holds %" PRIu64 " NaN code%s; NaN stays NaN",
                            fq_tensor_file(checkpoint, step->source), step->source->name,
                            counts.dequantize.nan_codes, fq_plural(counts.dequantize.nan_codes));
    }
    if (!any_quantized)
        fq_messages_add(warnings, "%s: no tensor is quantized; the reasons are listed",
                        checkpoint->path);
}

double fq_gb_per_s(const fq_session *session) {
    const fq_plan *plan = &session->plan;
    const uint64_t nbytes =
        plan->bytes_in - session->taken_nbytes_in + plan->bytes_out - session->taken_nbytes_out;
    return session->seconds > 0 ? (double)nbytes / session->seconds / 1e9 : 0;
}
