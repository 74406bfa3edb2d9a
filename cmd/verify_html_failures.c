// The part of verify's page that says what is wrong, and what to do.
#include "verify_html.h"

#include <inttypes.h>

enum { MAX_CARDS = 100 }; // weights told at length

static void put_card(const fq_page *page, const fq_verify_tensor *tensor) {
    fputs("<li class=\"card bad\"><h4>", page->file);
    fq_html_name(page->file, tensor->tensor->name);
    fputs("</h4>\n<p class=\"dim\">", page->file);
    fq_page_shape(page, tensor->tensor);
    if (tensor->scale_format)
        fprintf(page->file, ", scales %s", tensor->scale_format);
    if (tensor->weight.has_errors) {
        fputs(", error ", page->file);
        fq_html_percent(page->file, tensor->weight.rel_l2);
        fputs("&nbsp;%, worst block ", page->file);
        fq_html_percent(page->file, tensor->weight.worst_block_rel_l2);
        fputs("&nbsp;%", page->file);
    }
    fputs("</p>\n", page->file);
    fq_page_reasons(page, tensor);
    fprintf(page->file, "\n<p class=\"cure\"><strong>What to do:</strong> %s</p></li>\n",
            fq_verify_cure(tensor));
}

static void put_cards(const fq_page *page) {
    const uint64_t n_failed = page->verify->summary.n_failed;
    const uint64_t n = n_failed < MAX_CARDS ? n_failed : MAX_CARDS;
    fputs("<h3>Weights that fail</h3>\n", page->file);
    if (n < n_failed) {
        fprintf(page->file, "<p>The worst %" PRIu64 " of ", n);
        fq_html_count(page->file, n_failed);
        fputs(" are told here; <a href=\"#weights\">Weights</a> has all.</p>\n", page->file);
    }
    fputs("<ol class=\"cards\">\n", page->file);
    for (uint64_t i = 0; i < n; i++) // what fails comes first
        put_card(page, page->worst[i]);
    fputs("</ol>\n", page->file);
}

static void put_problems(const fq_page *page) {
    const fq_messages *problems = &page->verify->problems;
    fputs("<h3>Problems of the checkpoint</h3>\n<ul class=\"cards\">\n", page->file);
    for (size_t i = 0; i < problems->n; i++) {
        fputs("<li class=\"card bad\">", page->file);
        fq_html_text(page->file, problems->lines[i]);
        fputs("</li>\n", page->file);
    }
    if (problems->n_lost > 0)
        fprintf(page->file, "<li class=\"card bad\">%zu more found no memory</li>\n",
                problems->n_lost);
    fputs("</ul>\n", page->file);
}

void fq_page_failures(const fq_page *page) {
    const fq_messages *problems = &page->verify->problems;
    if (page->verify->summary.passed)
        return;
    fputs("<section id=\"wrong\">\n<h2>What is wrong</h2>\n", page->file);
    if (problems->n + problems->n_lost > 0)
        put_problems(page);
    if (page->verify->summary.n_failed > 0)
        put_cards(page);
    fputs("</section>\n", page->file);
}
