// Verdicts: why a tensor fails, and what all of them come to. See verify_work.h.
#include "verify_work.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *plural(uint64_t n) { return n == 1 ? "" : "s"; }

// "1 code differs … at row 3, column 5", "17 codes … first at …".
static void add_finding(fq_verify_tensor *tensor, const fq_finding *finding, const char *what,
                        const char *rest) {
    if (finding->n == 0)
        return;
    fq_messages_add(&tensor->reasons, "%" PRIu64 " %s%s %s, %sat row %" PRIu64 ", column %" PRIu64,
                    finding->n, what, plural(finding->n), rest, finding->n > 1 ? "first " : "",
                    finding->first.row, finding->first.col);
}

static void judge_scales(fq_verify_tensor *tensor) {
    const fq_verify_weight *weight = &tensor->weight;
    if (weight->bad_scales.n > 0)
        fq_messages_add(&tensor->reasons,
                        "%" PRIu64 " bad scale%s: that of block [%" PRIu64 ", %" PRIu64 "] is %s",
                        weight->bad_scales.n, plural(weight->bad_scales.n),
                        weight->bad_scales.first.row, weight->bad_scales.first.col,
                        fq_scale_flaw_text(weight->first_flaw));
}

static void judge_exact(fq_verify_tensor *tensor) {
    const fq_finding *scales = &tensor->weight.scales_differ;
    add_finding(tensor, &tensor->weight.codes_differ, "code",
                "not what fp8q makes of the reference");
    if (scales->n > 0)
        fq_messages_add(&tensor->reasons,
                        "%" PRIu64 " scale%s not what fp8q makes of the reference, %sof block "
                        "[%" PRIu64 ", %" PRIu64 "]",
                        scales->n, plural(scales->n), scales->n > 1 ? "first that " : "that ",
                        scales->first.row, scales->first.col);
}

static void judge_error(const fq_verify *verify, fq_verify_tensor *tensor) {
    const double asked_for = verify->options.limits.weight_rel_l2;
    const bool is_default = asked_for < 0;
    const double limit = is_default ? FQ_VERIFY_MAX_WEIGHT_ERROR : asked_for;
    const double error = is_default ? tensor->weight.judged_rel_l2 : tensor->weight.rel_l2;
    if (!(error <= limit))
        fq_messages_add(&tensor->reasons, "relative error %.4g is over %.4g (--max-weight-error)",
                        error, limit);
}

// Causes come before what follows from them.
void fq_verify_judge(const fq_verify *verify, fq_verify_tensor *tensor) {
    const fq_verify_weight *weight = &tensor->weight;
    judge_scales(tensor);
    add_finding(tensor, &weight->nan_codes, "NaN code", "stored");
    if (weight->has_errors) {
        add_finding(tensor, &weight->nonfinite, "element", "of the reference NaN or infinite");
        if (tensor->rule == FQ_RULE_EXACT)
            judge_exact(tensor);
        if (tensor->rule == FQ_RULE_BOUND)
            add_finding(tensor, &weight->out_of_bound, "element",
                        "further off than rounding explains");
        judge_error(verify, tensor);
    }
    fq_verify_judge_gemm(verify, tensor);
}

static double kernel_error(const fq_verify_tensor *tensor) {
    const bool is_known = tensor->has_gemm && !isnan(tensor->gemm.kernel_rel_l2);
    return is_known && !tensor->weight.has_errors ? tensor->gemm.kernel_rel_l2 : 0.0;
}

bool fq_verify_is_worse(const fq_verify_tensor *a, const fq_verify_tensor *b) {
    const bool a_fails = a->reasons.n > 0, b_fails = b->reasons.n > 0;
    if (a_fails != b_fails)
        return a_fails;
    const double a_error = a->weight.has_errors ? a->weight.rel_l2 : 0.0;
    const double b_error = b->weight.has_errors ? b->weight.rel_l2 : 0.0;
    if (a_error != b_error)
        return a_error > b_error;
    if (kernel_error(a) != kernel_error(b))
        return kernel_error(a) > kernel_error(b);
    return strcmp(a->tensor->name, b->tensor->name) < 0;
}

// Bytes of tensors that were to be copied.
static void report_copies(fq_verify *verify) {
    const fq_verify_work *work = verify->work;
    for (size_t s = 0; s < work->plan.n_shards; s++) {
        for (size_t i = 0; i < work->plan.shards[s].n_steps; i++) {
            const fq_tensor *tensor = work->plan.shards[s].steps[i].source;
            const fq_verify_step *beside = &work->steps[s][i];
            if (beside->tensor != SIZE_MAX || !beside->reference.source)
                continue;
            verify->summary.n_copies++;
            if (beside->n_bytes_differ == 0)
                continue;
            const uint64_t element = beside->first_byte_differs * 8 / fq_dtype_bits(tensor->dtype);
            const uint64_t cols = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
            verify->summary.n_copies_differ++;
            fq_messages_add(
                &verify->problems,
                "%s: %s: %" PRIu64 " byte%s differ%s from the reference, %sat row "
                "%" PRIu64 ", column %" PRIu64 "; copy that tensor anew",
                fq_tensor_file(verify->checkpoint, tensor), tensor->name, beside->n_bytes_differ,
                plural(beside->n_bytes_differ), beside->n_bytes_differ == 1 ? "s" : "",
                beside->n_bytes_differ > 1 ? "first " : "", element / cols, element % cols);
        }
    }
}

void fq_verify_sum_up(fq_verify *verify) {
    fq_verify_summary *summary = &verify->summary;
    double error2 = 0.0, weight2 = 0.0, gemm2 = 0.0;
    uint64_t n_weights = 0, n_gemms = 0;
    for (size_t i = 0; i < verify->n_tensors; i++) {
        const fq_verify_tensor *tensor = &verify->tensors[i];
        const fq_verify_weight *weight = &tensor->weight;
        summary->n_failed += tensor->reasons.n > 0;
        if (weight->has_errors) {
            n_weights++;
            error2 += weight->error2;
            weight2 += weight->weight2;
            summary->worst_block_rel_l2 =
                fmax(summary->worst_block_rel_l2, weight->worst_block_rel_l2);
        }
        if (tensor->has_gemm && !isnan(tensor->gemm.rel_l2)) {
            n_gemms++;
            gemm2 += tensor->gemm.rel_l2 * tensor->gemm.rel_l2;
        }
    }
    report_copies(verify);
    summary->n_tensors = verify->n_tensors;
    summary->weight_rel_l2 = n_weights == 0 ? NAN : error2 == 0.0 ? 0.0 : sqrt(error2 / weight2);
    summary->gemm_rel_l2 = n_gemms == 0 ? NAN : sqrt(gemm2 / (double)n_gemms);
    summary->passed = summary->n_failed == 0 && verify->problems.n + verify->problems.n_lost == 0;
}
