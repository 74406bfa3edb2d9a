// What several parts of verify's page say of a weight.
#include "verify_html.h"

#include <inttypes.h>

void fq_page_shape(const fq_page *page, const fq_tensor *tensor) {
    for (uint32_t i = 0; i < tensor->rank; i++)
        fprintf(page->file, "%s%" PRIu64, i > 0 ? " \u00d7 " : "", tensor->shape[i]);
}

void fq_page_reasons(const fq_page *page, const fq_verify_tensor *tensor) {
    const fq_messages *reasons = &tensor->reasons;
    fputs("<ul class=\"reasons\">", page->file);
    for (size_t i = 0; i < reasons->n; i++) {
        fputs("<li>", page->file);
        fq_html_text(page->file, reasons->lines[i]);
        fputs("</li>", page->file);
    }
    fputs("</ul>", page->file);
}
