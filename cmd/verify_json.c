// What verify tells programs.
#include "emit.h"
#include "verify_report.h"

#include <math.h>

static const char *verdict(bool passed) { return passed ? "pass" : "fail"; }

static void emit_place(fq_emit *emit, const char *key, fq_place place) {
    fq_emit_u64s(emit, key, (const uint64_t[]){place.row, place.col}, 2);
}

// The place of the first; null if nothing was found.
static void emit_first(fq_emit *emit, const char *key, const fq_finding *finding) {
    if (finding->n > 0)
        emit_place(emit, key, finding->first);
    else
        fq_emit_null(emit, key);
}

static void emit_finding(fq_emit *emit, const char *key, const char *first_key,
                         const fq_finding *finding, bool is_known) {
    if (is_known)
        fq_emit_u64(emit, key, finding->n);
    else
        fq_emit_null(emit, key);
    emit_first(emit, first_key, finding);
}

// A count that is null without a reference.
static void emit_count(fq_emit *emit, const char *key, uint64_t n, bool is_known) {
    if (is_known)
        fq_emit_u64(emit, key, n);
    else
        fq_emit_null(emit, key);
}

static void emit_weight(fq_emit *emit, const fq_verify_tensor *tensor) {
    const fq_verify_weight *weight = &tensor->weight;
    const bool known = weight->has_errors;
    if (!tensor->has_weight) {
        fq_emit_null(emit, "weight");
        return;
    }
    fq_emit_begin(emit, "weight", '{');
    fq_emit_double(emit, "rel_l2", known ? weight->rel_l2 : (double)NAN);
    fq_emit_double(emit, "sqnr_db", known ? weight->sqnr_db : (double)NAN);
    fq_emit_double(emit, "max_abs", known ? (double)weight->max_abs : (double)NAN);
    emit_count(emit, "saturated", weight->saturated, known);
    emit_count(emit, "flushed_to_zero", weight->flushed_to_zero, known);
    emit_finding(emit, "nan", "first_nan", &weight->nan_codes, true);
    emit_finding(emit, "elements_out_of_bound", "first_out_of_bound", &weight->out_of_bound, known);
    emit_finding(emit, "codes_differ", "first_code_differ", &weight->codes_differ, known);
    emit_finding(emit, "scales_differ", "first_scale_differ", &weight->scales_differ, known);
    emit_finding(emit, "bad_scales", "first_bad_scale", &weight->bad_scales, true);
    if (known)
        emit_place(emit, "worst_block", weight->worst_block);
    else
        fq_emit_null(emit, "worst_block");
    fq_emit_double(emit, "worst_block_rel_l2", known ? weight->worst_block_rel_l2 : (double)NAN);
    emit_count(emit, "zero_blocks", weight->zero_blocks, known);
    emit_count(emit, "floored_blocks", weight->floored_blocks, known);
    fq_emit_end(emit, '}');
}

static void emit_gemm(fq_emit *emit, const fq_verify_tensor *tensor) {
    if (!tensor->has_gemm) {
        fq_emit_null(emit, "gemm");
        return;
    }
    fq_emit_begin(emit, "gemm", '{');
    fq_emit_u64(emit, "tokens", tensor->gemm.tokens);
    fq_emit_double(emit, "rel_l2", tensor->gemm.rel_l2);
    fq_emit_double(emit, "kernel_rel_l2", tensor->gemm.kernel_rel_l2);
    fq_emit_end(emit, '}');
}

static void emit_tensor(fq_emit *emit, const fq_verify_tensor *tensor) {
    static const char *const rules[] = {[FQ_RULE_NONE] = "none",
                                        [FQ_RULE_EXACT] = "exact",
                                        [FQ_RULE_BOUND] = "bound",
                                        [FQ_RULE_REQUANTIZED] = "requantized"};
    fq_emit_begin(emit, NULL, '{');
    fq_emit_string(emit, "name", tensor->tensor->name);
    fq_emit_u64s(emit, "shape", tensor->tensor->shape, tensor->tensor->rank);
    fq_emit_string(emit, "kind", tensor->kind);
    fq_emit_string(emit, "scale_format", tensor->scale_format);
    fq_emit_string(emit, "rule", rules[tensor->rule]);
    emit_weight(emit, tensor);
    emit_gemm(emit, tensor);
    fq_emit_string(emit, "verdict", verdict(tensor->reasons.n == 0));
    fq_emit_messages(emit, "reasons", &tensor->reasons);
    fq_emit_string(emit, "cure", fq_verify_cure(tensor));
    fq_emit_end(emit, '}');
}

static void emit_activations(fq_emit *emit, const fq_activations_options *activations) {
    static const char *const kinds[] = {[FQ_ACTIVATIONS_NORMAL] = "normal",
                                        [FQ_ACTIVATIONS_OUTLIER] = "outlier",
                                        [FQ_ACTIVATIONS_CAPTURED] = "captured"};
    if (!activations) {
        fq_emit_null(emit, "activations");
        return;
    }
    const bool is_captured = activations->kind == FQ_ACTIVATIONS_CAPTURED;
    fq_emit_begin(emit, "activations", '{');
    fq_emit_string(emit, "kind", kinds[activations->kind]);
    emit_count(emit, "seed", activations->seed, !is_captured);
    fq_emit_double(emit, "magnitude",
                   activations->kind == FQ_ACTIVATIONS_OUTLIER ? activations->magnitude
                                                               : (double)NAN);
    fq_emit_string(emit, "file", is_captured ? activations->captured->path : NULL);
    fq_emit_end(emit, '}');
}

static void emit_summary(fq_emit *emit, const fq_verify_report *report) {
    const fq_verify_summary *summary = &report->verify->summary;
    fq_emit_begin(emit, "summary", '{');
    fq_emit_u64(emit, "n_tensors", summary->n_tensors);
    fq_emit_u64(emit, "n_failed", summary->n_failed);
    fq_emit_u64(emit, "n_copies", summary->n_copies);
    fq_emit_u64(emit, "n_copies_differ", summary->n_copies_differ);
    fq_emit_double(emit, "weight_rel_l2", summary->weight_rel_l2);
    fq_emit_double(emit, "gemm_rel_l2", summary->gemm_rel_l2);
    fq_emit_double(emit, "seconds", report->seconds);
    fq_emit_string(emit, "verdict", verdict(summary->passed));
    fq_emit_end(emit, '}');
}

fq_status fq_verify_json(const fq_verify_report *report, fq_error *err) {
    const fq_verify *verify = report->verify;
    fq_emit emit = {.file = stdout};
    fq_emit_begin(&emit, NULL, '{');
    fq_emit_string(&emit, "checkpoint", verify->checkpoint->path);
    fq_emit_string(&emit, "reference", verify->reference ? verify->reference->path : NULL);
    fq_emit_string(&emit, "device", report->device);
    fq_emit_string(&emit, "device_name", report->device_description);
    emit_activations(&emit, report->activations);
    fq_emit_begin(&emit, "tensors", '[');
    for (size_t i = 0; i < verify->n_tensors; i++)
        emit_tensor(&emit, &verify->tensors[i]);
    fq_emit_end(&emit, ']');
    fq_emit_messages(&emit, "problems", &verify->problems);
    fq_emit_messages(&emit, "notes", &verify->notes);
    fq_emit_messages(&emit, "warnings", report->warnings);
    emit_summary(&emit, report);
    fq_emit_end(&emit, '}');
    return fq_emit_finish(&emit, err);
}
