// Text and numbers for an HTML page. Markup is written as it stands, with fputs and fprintf.
#ifndef FQ_CMD_HTML_H
#define FQ_CMD_HTML_H

#include <stdint.h>
#include <stdio.h>

// Text from a file or from the command line, escaped: see escape.h.
void fq_html_text(FILE *file, const char *text);

// Like fq_html_text, as a name or path: it does not turn the text around it about if it is written
// from right to left, and lines break behind its dots and slashes.
void fq_html_name(FILE *file, const char *name);

// "1,234,567".
void fq_html_count(FILE *file, uint64_t n);

// A share in percent, without the sign: "2.653"; an en dash where it is not finite.
void fq_html_percent(FILE *file, double share);

#endif
