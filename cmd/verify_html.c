// verify's result as a page: its frame, the verdict, and what the figures mean.
#include "verify_html.h"

#include <math.h>
#include <string.h>
#include <time.h>

extern const char fq_page_css[], fq_page_js[]; // cmd/verify_page.css and .js

static const char *last_component(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static uint64_t count_problems(const fq_page *page) {
    const fq_messages *problems = &page->verify->problems;
    return problems->n + problems->n_lost;
}

// Nothing is fetched, and the policy sees to it that nothing can be.
static void put_head(const fq_page *page) {
    FILE *file = page->file;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta name=\"generator\" content=\"fp8q " FQ_VERSION "\">\n<title>",
          file);
    fputs(page->verify->summary.passed ? "passes: " : "FAILS: ", file);
    fq_html_text(file, last_component(page->verify->checkpoint->path));
    fprintf(file, " \u2013 fp8q verify</title>\n<style>\n%s</style>\n</head>\n<body>\n",
            fq_page_css);
}

static void put_fact(const fq_page *page, const char *term, const char *text) {
    fprintf(page->file, "<div><dt>%s</dt><dd>", term);
    fq_html_name(page->file, text);
    fputs("</dd></div>\n", page->file);
}

static void put_device(const fq_page *page, const char *name, const char *description) {
    fq_html_text(page->file, name);
    fputs(" (", page->file);
    fq_html_text(page->file, description);
    fputs(")", page->file);
}

static void put_facts(const fq_page *page) {
    const fq_verify *verify = page->verify;
    char date[40] = "";
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &parts);
    fputs("<dl class=\"facts\">\n", page->file);
    put_fact(page, "Checkpoint", verify->checkpoint->path);
    put_fact(page, "Original", verify->reference ? verify->reference->path : "none given");
    fputs("<div><dt>Checked</dt><dd>", page->file);
    fprintf(page->file, "%s, in %.2f&nbsp;s on ", date, page->report->seconds);
    put_device(page, page->report->device, page->report->device_description);
    fputs(", by fp8q " FQ_VERSION "</dd></div>\n</dl>\n", page->file);
}

static void put_lead(const fq_page *page) {
    const fq_verify_summary *summary = &page->verify->summary;
    const uint64_t n_problems = count_problems(page);
    fputs("<p class=\"lead\">", page->file);
    if (summary->passed) {
        fq_html_count(page->file, summary->n_tensors);
        fprintf(page->file, " FP8 weight%s and all that goes with %s: nothing is wrong",
                fq_plural(summary->n_tensors), summary->n_tensors == 1 ? "it" : "them");
        fputs(page->verify->reference ? ".</p>\n"
                                      : ", as far as can be told without the "
                                        "original.</p>\n",
              page->file);
        return;
    }
    fq_html_count(page->file, summary->n_failed);
    fputs(" of ", page->file);
    fq_html_count(page->file, summary->n_tensors);
    fprintf(page->file, " FP8 weight%s fail%s", fq_plural(summary->n_tensors),
            summary->n_failed == 1 ? "s" : "");
    if (n_problems > 0) {
        fputs("; ", page->file);
        fq_html_count(page->file, n_problems);
        fprintf(page->file, " other problem%s", fq_plural(n_problems));
    }
    fputs(".</p>\n", page->file);
}

static void put_header(const fq_page *page) {
    const bool passed = page->verify->summary.passed;
    fprintf(page->file,
            "<header>\n<p class=\"dim\">fp8q verify</p>\n<h1><span class=\"verdict %s\">%s</span> ",
            passed ? "good" : "bad", passed ? "\u2713 passes" : "\u2717 fails");
    fq_html_name(page->file, last_component(page->verify->checkpoint->path));
    fputs("</h1>\n", page->file);
    put_lead(page);
    put_facts(page);
    fputs("</header>\n", page->file);
}

// The sections that follow: see put_page for their order.
static void put_links(const fq_page *page) {
    const fq_verify_summary *summary = &page->verify->summary;
    const struct {
        const char *id, *title;
        bool is_there;
    } links[] = {
        {"wrong", "What is wrong", !summary->passed},
        {"meaning", "What the figures mean", page->shown.errors || page->shown.gemm},
        {"layers", "Kinds of layers", summary->n_tensors > 0},
        {"blocks", "Errors of blocks", page->shown.errors},
        {"maps", "Blocks of the worst weights", page->shown.errors},
        {"scales", "Scales", summary->n_tensors > 0},
        {"weights", "Weights", summary->n_tensors > 0},
    };
    fputs("<nav aria-label=\"Sections\"><ul>\n", page->file);
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        if (links[i].is_there)
            fprintf(page->file, "<li><a href=\"#%s\">%s</a></li>\n", links[i].id, links[i].title);
    }
    fputs("</ul></nav>\n", page->file);
}

// ---- The summary

// Ends with put_tile_note.
static void begin_tile(const fq_page *page, const char *term, bool is_bad) {
    fprintf(page->file, "<div class=\"card%s\"><dt>%s</dt><dd>", is_bad ? " bad" : "", term);
}

static void put_tile_note(const fq_page *page, const char *note) {
    fprintf(page->file, "</dd><dd class=\"dim\">%s</dd></div>\n", note);
}

static void put_count_tile(const fq_page *page, const char *term, uint64_t n, uint64_t n_bad,
                           const char *what) {
    begin_tile(page, term, n_bad > 0);
    fq_html_count(page->file, n);
    fputs("</dd><dd class=\"dim\">", page->file);
    if (n_bad == 0)
        fputs("none", page->file);
    else
        fq_html_count(page->file, n_bad);
    fprintf(page->file, " %s</dd></div>\n", what);
}

static void put_percent_tile(const fq_page *page, const char *term, double share, bool is_bad,
                             const char *note) {
    begin_tile(page, term, is_bad);
    fq_html_percent(page->file, share);
    fputs("&nbsp;%", page->file);
    put_tile_note(page, note);
}

static void put_summary(const fq_page *page) {
    const fq_verify_summary *summary = &page->verify->summary;
    fputs("<section id=\"summary\">\n<h2>Summary</h2>\n<dl class=\"tiles\">\n", page->file);
    put_count_tile(page, "FP8 weights", summary->n_tensors, summary->n_failed, "failed");
    if (summary->n_copies > 0)
        put_count_tile(page, "Other tensors", summary->n_copies, summary->n_copies_differ,
                       "not as in the original");
    begin_tile(page, "Problems", count_problems(page) > 0);
    fq_html_count(page->file, count_problems(page));
    put_tile_note(page, "of the checkpoint as a whole");
    if (page->shown.errors) {
        put_percent_tile(page, "Error of all weights", summary->weight_rel_l2, false,
                         "E4M3 alone costs about 2.65&nbsp;%");
        put_percent_tile(page, "Worst block", summary->worst_block_rel_l2,
                         !(summary->worst_block_rel_l2 <= FQ_PAGE_MOST) && summary->n_failed > 0,
                         "rounding alone: 5.9&nbsp;% at most");
    }
    if (page->shown.products)
        put_percent_tile(page, "Error of products", summary->gemm_rel_l2, false,
                         "about 3.7&nbsp;% on normal activations");
    fputs("</dl>\n</section>\n", page->file);
}

static void put_term(const fq_page *page, const char *term, const char *meaning) {
    fprintf(page->file, "<div><dt>%s</dt><dd>%s</dd></div>\n", term, meaning);
}

static const char *meaning_of_products(const fq_page *page) {
    const fq_activations_options *activations = page->report->activations;
    switch (activations ? activations->kind : FQ_ACTIVATIONS_NORMAL) {
    case FQ_ACTIVATIONS_OUTLIER:
        return "The error of the weight\u2019s product with normal activations that were quantized "
               "beside outliers; about 3.7&nbsp;% without these.";
    case FQ_ACTIVATIONS_CAPTURED:
        return "The error of the weight\u2019s product with captured activations, which are "
               "quantized too; about 3.7&nbsp;% with normal ones.";
    default:
        return "The error of the weight\u2019s product with normal activations, which are "
               "quantized too: about 3.7&nbsp;%, of which the weight has 2.65.";
    }
}

static void put_meaning(const fq_page *page) {
    if (!page->shown.errors && !page->shown.gemm)
        return;
    fputs("<section id=\"meaning\">\n<h2>What the figures mean</h2>\n<dl class=\"meaning\">\n",
          page->file);
    if (page->shown.errors) {
        put_term(page, "Error",
                 "|stored \u2212 original| / |original|, over all elements of a weight. E4M3 keeps "
                 "three bits behind the leading one: on ordinary weights that costs about "
                 "2.65&nbsp;% with scales in FP32, 2.66&nbsp;% with powers of two, and 3.76&nbsp;% "
                 "where FP8 was quantized a second time. It is the floor of the format, and no "
                 "fault.");
        put_term(page, "Worst block",
                 "The same over one block, the elements that share a scale. Rounding alone is "
                 "5.9&nbsp;% at most, in a block of few different values. More is right only in "
                 "blocks under the amax floor, which are next to zero.");
        put_term(page, "SQNR", "The error of a weight in decibels: 2.65&nbsp;% is 31.5&nbsp;dB.");
    }
    if (page->shown.products)
        put_term(page, "GEMM", meaning_of_products(page));
    if (page->shown.gemm)
        put_term(
            page, "Kernel",
            "What the GEMM\u2019s sums in FP32 add, against the exact product of the same FP8 "
            "operands. Much more than 10<sup>\u22124</sup> is a fault of the kernel, or of the "
            "layout of scales.");
    fputs("</dl>\n</section>\n", page->file);
}

static void put_lines(const fq_page *page, const char *title, const fq_messages *messages) {
    if (messages->n + messages->n_lost == 0)
        return;
    fprintf(page->file, "<section>\n<h2>%s</h2>\n<ul>\n", title);
    for (size_t i = 0; i < messages->n; i++) {
        fputs("<li>", page->file);
        fq_html_text(page->file, messages->lines[i]);
        fputs("</li>\n", page->file);
    }
    if (messages->n_lost > 0)
        fprintf(page->file, "<li>%zu more found no memory</li>\n", messages->n_lost);
    fputs("</ul>\n</section>\n", page->file);
}

static fq_status put_page(fq_page *page, fq_error *err) {
    put_head(page);
    put_header(page);
    put_links(page);
    fputs("<main>\n", page->file);
    put_summary(page);
    fq_page_failures(page);
    put_lines(page, "What was not checked", &page->verify->notes);
    put_lines(page, "Warnings", page->report->warnings);
    put_meaning(page);
    fq_status status = fq_page_layers(page, err);
    fq_page_block_errors(page);
    fq_page_maps(page);
    fq_page_scales(page);
    if (!status)
        status = fq_page_weights(page, err);
    fprintf(page->file, "</main>\n<script>\n%s</script>\n</body>\n</html>\n", fq_page_js);
    return status;
}

fq_status fq_verify_html(const fq_verify_report *report, FILE *file, fq_error *err) {
    fq_page page = {.report = report, .verify = report->verify, .file = file};
    page.shown = fq_verify_find_columns(page.verify);
    page.worst = fq_verify_worst_first(&page.arena, page.verify);
    const fq_status status = page.worst ? put_page(&page, err) : fq_fail_memory(err);
    fq_arena_free(&page.arena);
    return status;
}
