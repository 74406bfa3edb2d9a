// Text and numbers for an HTML page: see html.h.
#include "html.h"

#include "escape.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void fq_html_text(FILE *file, const char *text) { fq_escape_write_html(file, text, strlen(text)); }

void fq_html_name(FILE *file, const char *name) {
    fputs("<bdi>", file);
    for (const char *part = name; *part;) {
        const size_t n = strcspn(part, "./");
        const size_t n_with_dot = part[n] ? n + 1 : n;
        fq_escape_write_html(file, part, n_with_dot);
        part += n_with_dot;
        if (*part)
            fputs("<wbr>", file);
    }
    fputs("</bdi>", file);
}

void fq_html_count(FILE *file, uint64_t n) {
    char digits[24];
    const size_t n_digits = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, n);
    for (size_t i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0)
            fputc(',', file);
        fputc(digits[i], file);
    }
}

void fq_html_percent(FILE *file, double share) {
    const double percent = 100 * share;
    if (!isfinite(percent))
        fputs("\u2013", file);
    else
        fprintf(file, percent < 999.9995 ? "%.3f" : "%.3g", percent);
}
