// The tables of verify's page: kinds of layers, and weights.
#include "lib/fold.h"
#include "verify_html.h"

#include <inttypes.h>
#include <math.h>

enum {
    MAX_ROWS = 2000, // of weights: a browser takes a second to show or sort as many
    MAX_KINDS = 100, // that have not failed
};

static void put_head(const fq_page *page, const char *text, bool is_number) {
    fprintf(page->file, "<th scope=\"col\"%s>%s</th>", is_number ? " class=\"n\"" : "", text);
}

static void put_percent(const fq_page *page, double share) {
    fputs("<td>", page->file);
    fq_html_percent(page->file, share);
    fputs("</td>", page->file);
}

// A table may be wider than a phone: it scrolls by itself, with the keyboard too.
static void begin_table(const fq_page *page, const char *caption) {
    fprintf(page->file,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">\n"
            "<table class=\"sortable\">\n<caption>%s</caption>\n<thead><tr>",
            caption, caption);
}

static void end_table(const fq_page *page) { fputs("</tbody>\n</table>\n</div>\n", page->file); }

// ---- Kinds

static void put_kind(const fq_page *page, const fq_verify_kind *kind) {
    fprintf(page->file, "<tr%s><th scope=\"row\">", kind->n_failed ? " class=\"f\"" : "");
    fq_html_name(page->file, kind->kind);
    fprintf(page->file, "</th><td>%" PRIu64 "</td><td class=\"v\">%" PRIu64 "</td>", kind->n,
            kind->n_failed);
    if (page->shown.errors) {
        put_percent(page, kind->rel_l2);
        put_percent(page, isnan(kind->rel_l2) ? (double)NAN : kind->worst_rel_l2);
        put_percent(page, isnan(kind->rel_l2) ? (double)NAN : kind->worst_block_rel_l2);
    }
    fputs("</tr>\n", page->file);
}

void fq_page_kinds(const fq_page *page, const fq_verify_kind *kinds, size_t n) {
    size_t n_passed = 0;
    begin_table(page, "Weights by kind of layer");
    put_head(page, "Kind", false);
    put_head(page, "Weights", true);
    put_head(page, "Failed", true);
    if (page->shown.errors) {
        put_head(page, "Error, %", true);
        put_head(page, "Worst weight, %", true);
        put_head(page, "Worst block, %", true);
    }
    fputs("</tr></thead>\n<tbody>\n", page->file);
    for (size_t i = 0; i < n; i++) {
        n_passed += kinds[i].n_failed == 0;
        if (kinds[i].n_failed > 0 || n_passed <= MAX_KINDS)
            put_kind(page, &kinds[i]);
    }
    end_table(page);
    if (n_passed > MAX_KINDS)
        fprintf(page->file, "<p>And %zu more kinds that pass.</p>\n", n_passed - MAX_KINDS);
}

// ---- Weights

static void put_weights_head(const fq_page *page) {
    put_head(page, "Weight", false);
    put_head(page, "Verdict", false);
    put_head(page, "Shape", true);
    put_head(page, "Scales", false);
    if (page->shown.errors) {
        put_head(page, "Error, %", true);
        put_head(page, "Worst block, %", true);
        put_head(page, "SQNR, dB", true);
        put_head(page, "Flushed to 0", true);
    }
    if (page->shown.products)
        put_head(page, "GEMM, %", true);
    if (page->shown.gemm)
        put_head(page, "Kernel", true);
    fputs("</tr></thead>\n<tbody>\n", page->file);
}

static void put_errors(const fq_page *page, const fq_verify_weight *weight) {
    if (!weight->has_errors) {
        fputs("<td>\u2013</td><td>\u2013</td><td>\u2013</td><td>\u2013</td>", page->file);
        return;
    }
    put_percent(page, weight->rel_l2);
    put_percent(page, weight->worst_block_rel_l2);
    if (isfinite(weight->sqnr_db))
        fprintf(page->file, "<td>%.1f</td>", weight->sqnr_db);
    else
        fputs("<td>\u2013</td>", page->file);
    fprintf(page->file, "<td>%" PRIu64 "</td>", weight->flushed_to_zero);
}

static void put_weight(const fq_page *page, const fq_verify_tensor *tensor) {
    const bool fails = tensor->reasons.n > 0;
    fprintf(page->file, "<tr%s><th scope=\"row\">", fails ? " class=\"f\"" : "");
    fq_html_name(page->file, tensor->tensor->name);
    if (fails)
        fq_page_reasons(page, tensor);
    fprintf(page->file, "</th><td class=\"v\">%s</td><td>", fails ? "\u2717 fails" : "passes");
    fq_page_shape(page, tensor->tensor);
    fprintf(page->file, "</td><td>%s</td>", tensor->scale_format ? tensor->scale_format : "\u2013");
    if (page->shown.errors)
        put_errors(page, &tensor->weight);
    if (page->shown.products)
        put_percent(page, tensor->has_gemm ? tensor->gemm.rel_l2 : (double)NAN);
    if (page->shown.gemm && tensor->has_gemm && isfinite(tensor->gemm.kernel_rel_l2))
        fprintf(page->file, "<td>%.1e</td>", tensor->gemm.kernel_rel_l2);
    else if (page->shown.gemm)
        fputs("<td>\u2013</td>", page->file);
    fputs("</tr>\n", page->file);
}

// The weights that found no row, folded: numbers that names differ in are written as a set.
static fq_status put_rest(fq_page *page, const fq_verify_tensor *const *rest, size_t n,
                          fq_error *err) {
    fq_fold_item *items = fq_arena_array(&page->arena, n, sizeof *items);
    fq_fold_line *lines;
    size_t n_lines;
    if (!items)
        return fq_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        items[i] =
            (fq_fold_item){rest[i]->tensor->name, rest[i]->reasons.n > 0 ? "fails" : "passes"};
    const fq_status status = fq_fold(&lines, &n_lines, &page->arena, items, n, err);
    if (status)
        return status;
    fputs("<details>\n<summary>The other ", page->file);
    fq_html_count(page->file, n);
    fputs(" weights, by name; <code>--json</code> has their figures</summary>\n<ul>\n", page->file);
    for (size_t i = 0; i < n_lines; i++) {
        fprintf(page->file, "<li>%s: ", lines[i].rest);
        fq_html_name(page->file, lines[i].pattern);
        fprintf(page->file, " (%" PRIu64 ")</li>\n", lines[i].n);
    }
    fputs("</ul>\n</details>\n", page->file);
    return FQ_OK;
}

fq_status fq_page_weights(fq_page *page, fq_error *err) {
    const size_t n = page->verify->n_tensors;
    const size_t n_rows = n <= MAX_ROWS ? n : MAX_ROWS;
    fq_status status = FQ_OK;
    if (n == 0)
        return status;
    fputs("<section id=\"weights\">\n<h2>Weights</h2>\n", page->file);
    begin_table(page, n_rows < n ? "The worst weights" : "Weights, the worst first");
    put_weights_head(page);
    for (size_t i = 0; i < n_rows; i++)
        put_weight(page, page->worst[i]);
    end_table(page);
    if (n_rows < n)
        status = put_rest(page, page->worst + n_rows, n - n_rows, err);
    fputs("</section>\n", page->file);
    return status;
}
