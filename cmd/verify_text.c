// What verify shows to people.
#include "verify_report.h"

#include <inttypes.h>
#include <math.h>

enum { MAX_LISTED = 20 }; // weights that pass

static void print_figures(const fq_printer *printer, const fq_verify_tensor *tensor) {
    const fq_verify_weight *weight = &tensor->weight;
    if (!weight->has_errors)
        fq_print(printer, FQ_PLAIN, "%8s %8s %8s  ", "-", "-", "-");
    else
        fq_print(printer, FQ_PLAIN, "%7.3f%% %7.3f%% %8.1f  ", 100 * weight->rel_l2,
                 100 * weight->worst_block_rel_l2, weight->sqnr_db);
    if (tensor->has_gemm)
        fq_print(printer, FQ_PLAIN, "%7.3f%% %8.1e  ", 100 * tensor->gemm.rel_l2,
                 tensor->gemm.kernel_rel_l2);
    else
        fq_print(printer, FQ_PLAIN, "%8s %8s  ", "-", "-");
}

static void print_weight(const fq_printer *printer, const fq_verify_tensor *tensor) {
    const bool fails = tensor->reasons.n > 0;
    print_figures(printer, tensor);
    fq_print(printer, fails ? FQ_RED : FQ_GREEN, "%s", fails ? "FAIL" : "pass");
    fq_print_line(printer, "  %s", tensor->tensor->name);
    for (size_t i = 0; i < tensor->reasons.n; i++) {
        fq_print(printer, FQ_RED, "    %s", tensor->reasons.lines[i]);
        fq_print_newline(printer);
    }
}

static fq_status print_weights(const fq_printer *printer, const fq_verify *verify, fq_error *err) {
    fq_arena arena = {0};
    const fq_verify_tensor **worst = fq_verify_worst_first(&arena, verify);
    const fq_status status = worst ? FQ_OK : fq_fail_memory(err);
    size_t n_passed = 0;
    if (worst && verify->n_tensors > 0) {
        fq_print(printer, FQ_BOLD, "%8s %8s %8s  %8s %8s  %4s  %s", "ERROR", "BLOCK", "SQNR dB",
                 "GEMM", "KERNEL", "", "WEIGHT, THE WORST FIRST");
        fq_print_newline(printer);
    }
    for (size_t i = 0; worst && i < verify->n_tensors; i++) {
        n_passed += worst[i]->reasons.n == 0;
        if (n_passed <= MAX_LISTED)
            print_weight(printer, worst[i]);
    }
    if (n_passed > MAX_LISTED)
        fq_print_line(printer, "and %zu more that pass; --json lists all", n_passed - MAX_LISTED);
    fq_arena_free(&arena);
    return status;
}

static fq_status print_kinds(const fq_printer *printer, const fq_verify *verify, fq_error *err) {
    fq_arena arena = {0};
    size_t n;
    const fq_verify_kind *kinds = fq_verify_kinds(&arena, &n, verify);
    const fq_status status = kinds ? FQ_OK : fq_fail_memory(err);
    if (n > 0) {
        fq_print_newline(printer);
        fq_print(printer, FQ_BOLD, "%8s %8s %8s  %8s  %s", "ERROR", "WORST", "BLOCK", "FAIL",
                 "KIND OF LAYER");
        fq_print_newline(printer);
    }
    for (size_t i = 0; i < n; i++) {
        if (isnan(kinds[i].rel_l2))
            fq_print(printer, FQ_PLAIN, "%8s %8s %8s  ", "-", "-", "-");
        else
            fq_print(printer, FQ_PLAIN, "%7.3f%% %7.3f%% %7.3f%%  ", 100 * kinds[i].rel_l2,
                     100 * kinds[i].worst_rel_l2, 100 * kinds[i].worst_block_rel_l2);
        fq_print(printer, kinds[i].n_failed ? FQ_RED : FQ_PLAIN, "%8" PRIu64, kinds[i].n_failed);
        fq_print_line(printer, "  %s (%" PRIu64 ")", kinds[i].kind, kinds[i].n);
    }
    fq_arena_free(&arena);
    return status;
}

static void print_lines(const fq_printer *printer, fq_style style, const char *head,
                        const fq_messages *messages) {
    if (messages->n + messages->n_lost > 0)
        fq_print_newline(printer);
    for (size_t i = 0; i < messages->n; i++) {
        fq_print(printer, style, "%s", head);
        fq_print_line(printer, ": %s", messages->lines[i]);
    }
    if (messages->n_lost > 0)
        fq_print_line(printer, "%s: %zu more found no memory", head, messages->n_lost);
}

static void print_meaning(const fq_printer *printer, const fq_verify *verify) {
    if (isnan(verify->summary.weight_rel_l2))
        return;
    fq_print_newline(printer);
    fq_print_line(printer,
                  "ERROR is |stored - reference| / |reference| over a weight, BLOCK that of "
                  "its worst block.");
    fq_print_line(printer, "E4M3 alone costs about 2.65%% on weights with scales in FP32, 2.66%% "
                           "with powers of two,");
    fq_print_line(printer, "3.76%% where FP8 was quantized once more; a block of few values up to "
                           "5.9%%.");
}

static void print_verdict(const fq_printer *printer, const fq_verify_report *report) {
    const fq_verify_summary *summary = &report->verify->summary;
    const size_t n_problems = report->verify->problems.n + report->verify->problems.n_lost;
    fq_print_newline(printer);
    fq_print(printer, FQ_BOLD, "%s", report->verify->checkpoint->path);
    fq_print(printer, summary->passed ? FQ_GREEN : FQ_RED, ": %s",
             summary->passed ? "passes" : "FAILS");
    fq_print(printer, FQ_PLAIN, ": %" PRIu64 " weight%s, %" PRIu64 " failed", summary->n_tensors,
             fq_plural(summary->n_tensors), summary->n_failed);
    if (summary->n_copies > 0)
        fq_print(printer, FQ_PLAIN,
                 "; %" PRIu64 " other tensor%s, %" PRIu64 " not as the reference",
                 summary->n_copies, fq_plural(summary->n_copies), summary->n_copies_differ);
    fq_print_line(printer, "; %zu problem%s", n_problems, fq_plural(n_problems));
    if (!isnan(summary->weight_rel_l2))
        fq_print(printer, FQ_PLAIN, "Error of all weights %.4f%%, ", 100 * summary->weight_rel_l2);
    fq_print_line(printer, "%.2f s, device: %s (%s)", report->seconds, report->device,
                  report->device_description);
}

fq_status fq_verify_text(const fq_printer *printer, const fq_verify_report *report, fq_error *err) {
    const fq_verify *verify = report->verify;
    fq_status status = print_weights(printer, verify, err);
    if (!status)
        status = print_kinds(printer, verify, err);
    if (status)
        return status;
    print_lines(printer, FQ_RED, "problem", &verify->problems);
    print_lines(printer, FQ_DIM, "note", &verify->notes);
    print_meaning(printer, verify);
    print_verdict(printer, report);
    return FQ_OK;
}
