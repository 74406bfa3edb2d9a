// What verify shows to people.
#include "verify_report.h"

#include <inttypes.h>
#include <math.h>

// Beyond these --json has all: what fails as a whole would fill the terminal many times.
enum {
    MAX_PASSED = 20, // weights
    MAX_FAILED = 100,
    MAX_PROBLEMS = 100,
};

static void print_head(const fq_printer *printer, const fq_verify_columns *shown) {
    if (shown->errors)
        fq_print(printer, FQ_BOLD, "%8s %8s %8s  ", "ERROR", "BLOCK", "SQNR dB");
    if (shown->products)
        fq_print(printer, FQ_BOLD, "%8s ", "GEMM");
    if (shown->gemm)
        fq_print(printer, FQ_BOLD, "%8s  ", "KERNEL");
    fq_print(printer, FQ_BOLD, "%4s  WEIGHT, THE WORST FIRST", "");
    fq_print_newline(printer);
}

static void print_figures(const fq_printer *printer, const fq_verify_tensor *tensor,
                          const fq_verify_columns *shown) {
    const fq_verify_weight *weight = &tensor->weight;
    if (shown->errors && weight->has_errors)
        fq_print(printer, FQ_PLAIN, "%7.3f%% %7.3f%% %8.1f  ", 100 * weight->rel_l2,
                 100 * weight->worst_block_rel_l2, weight->sqnr_db);
    else if (shown->errors)
        fq_print(printer, FQ_PLAIN, "%8s %8s %8s  ", "-", "-", "-");
    if (shown->products && isfinite(tensor->gemm.rel_l2) && tensor->has_gemm)
        fq_print(printer, FQ_PLAIN, "%7.3f%% ", 100 * tensor->gemm.rel_l2);
    else if (shown->products)
        fq_print(printer, FQ_PLAIN, "%8s ", "-");
    if (shown->gemm && isfinite(tensor->gemm.kernel_rel_l2) && tensor->has_gemm)
        fq_print(printer, FQ_PLAIN, "%8.1e  ", tensor->gemm.kernel_rel_l2);
    else if (shown->gemm)
        fq_print(printer, FQ_PLAIN, "%8s  ", "-");
}

// The cure is told once where it is the one of the weight before: weights often share their fault.
static void print_weight(const fq_printer *printer, const fq_verify_tensor *tensor,
                         const fq_verify_columns *shown, const char **last_cure) {
    const bool fails = tensor->reasons.n > 0;
    const char *cure = fq_verify_cure(tensor);
    print_figures(printer, tensor, shown);
    fq_print(printer, fails ? FQ_RED : FQ_GREEN, "%s", fails ? "FAIL" : "pass");
    fq_print_line(printer, "  %s", tensor->tensor->name);
    for (size_t i = 0; i < tensor->reasons.n; i++) {
        fq_print(printer, FQ_RED, "    %s", tensor->reasons.lines[i]);
        fq_print_newline(printer);
    }
    if (cure && cure != *last_cure)
        fq_print_line(printer, "    %s", cure);
    *last_cure = cure;
}

// Weights that pass are worth a line for their figures alone.
static fq_status print_weights(const fq_printer *printer, const fq_verify *verify,
                               const fq_verify_columns *shown, size_t max_passed, fq_error *err) {
    fq_arena arena = {0};
    const fq_verify_tensor **worst = fq_verify_worst_first(&arena, verify);
    const fq_status status = worst ? FQ_OK : fq_fail_memory(err);
    const char *last_cure = NULL;
    size_t n_printed = 0, n_passed = 0, n_failed = 0;
    for (size_t i = 0; worst && i < verify->n_tensors; i++) {
        const bool fails = worst[i]->reasons.n > 0;
        n_failed += fails;
        n_passed += !fails;
        if (fails ? n_failed > MAX_FAILED : n_passed > max_passed)
            continue;
        if (n_printed++ == 0)
            print_head(printer, shown);
        print_weight(printer, worst[i], shown, &last_cure);
    }
    if (n_failed > MAX_FAILED)
        fq_print_line(printer, "and %zu more that fail; --json lists all", n_failed - MAX_FAILED);
    if (max_passed > 0 && n_passed > max_passed)
        fq_print_line(printer, "and %zu more that pass; --json lists all", n_passed - max_passed);
    fq_arena_free(&arena);
    return status;
}

static fq_status print_kinds(const fq_printer *printer, const fq_verify *verify, fq_error *err) {
    fq_arena arena = {0};
    size_t n;
    const fq_verify_kind *kinds = fq_verify_kinds(&arena, &n, verify);
    const fq_status status = kinds ? FQ_OK : fq_fail_memory(err);
    fq_print_newline(printer);
    fq_print(printer, FQ_BOLD, "%8s %8s %8s  %8s  %s", "ERROR", "WORST", "BLOCK", "FAILED",
             "KIND OF LAYER");
    fq_print_newline(printer);
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
    const size_t n = messages->n < MAX_PROBLEMS ? messages->n : MAX_PROBLEMS;
    for (size_t i = 0; i < n; i++) {
        fq_print(printer, style, "%s", head);
        fq_print_line(printer, ": %s", messages->lines[i]);
    }
    if (n < messages->n)
        fq_print_line(printer, "and %zu more %ss; --json lists all", messages->n - n, head);
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

// Captured activations may be fewer than --tokens asks for, and of another number for each width.
static void print_tokens(const fq_printer *printer, const fq_verify *verify) {
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < verify->n_tensors; i++) {
        if (!verify->tensors[i].has_gemm)
            continue;
        const uint64_t tokens = verify->tensors[i].gemm.tokens;
        least = tokens < least ? tokens : least;
        most = tokens > most ? tokens : most;
    }
    if (least < most)
        fq_print(printer, FQ_PLAIN, "%" PRIu64 " to ", least);
    fq_print(printer, FQ_PLAIN, "%" PRIu64 " token%s", most, fq_plural(most));
}

static void print_meaning_of_products(const fq_printer *printer, const fq_verify_report *report) {
    const fq_activations_options *activations = report->activations;
    fq_print_newline(printer);
    fq_print(printer, FQ_PLAIN, "GEMM is the error of the product with ");
    print_tokens(printer, report->verify);
    fq_print(printer, FQ_PLAIN, " of ");
    switch (activations->kind) {
    case FQ_ACTIVATIONS_NORMAL:
        fq_print_line(printer, "normal activations, quantized too: about 3.7%%.");
        break;
    case FQ_ACTIVATIONS_OUTLIER:
        fq_print_line(printer, "normal activations, quantized beside");
        fq_print_line(printer, "outliers of %g; about 3.7%% without these.",
                      activations->magnitude);
        break;
    case FQ_ACTIVATIONS_CAPTURED:
        fq_print_line(printer, "captured activations, quantized too;");
        fq_print_line(printer, "about 3.7%% with normal ones.");
    }
    fq_print_line(printer, "KERNEL is what the sums in FP32 add to it; rounding to BF16, as "
                           "engines do, adds 0.17%%.");
}

static void print_verdict(const fq_printer *printer, const fq_verify_report *report) {
    const fq_verify_summary *summary = &report->verify->summary;
    const size_t n_problems = report->verify->problems.n + report->verify->problems.n_lost;
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
    if (!isnan(summary->gemm_rel_l2))
        fq_print(printer, FQ_PLAIN, "of products %.4f%%, ", 100 * summary->gemm_rel_l2);
    fq_print_line(printer, "%.2f s, device: %s (%s)", report->seconds, report->device,
                  report->device_description);
}

fq_status fq_verify_text(const fq_printer *printer, const fq_verify_report *report, bool quiet,
                         fq_error *err) {
    const fq_verify *verify = report->verify;
    const fq_verify_columns shown = fq_verify_find_columns(verify);
    const size_t max_passed = !quiet && (shown.errors || shown.gemm) ? MAX_PASSED : 0;
    fq_status status = print_weights(printer, verify, &shown, max_passed, err);
    if (!status && !quiet && shown.errors)
        status = print_kinds(printer, verify, err);
    if (status)
        return status;
    print_lines(printer, FQ_RED, "problem", &verify->problems);
    if (quiet)
        return FQ_OK;
    print_lines(printer, FQ_DIM, "note", &verify->notes);
    print_meaning(printer, verify);
    if (shown.products && report->activations)
        print_meaning_of_products(printer, report);
    print_verdict(printer, report);
    return FQ_OK;
}
