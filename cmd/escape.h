// Text from files and from the command line, made safe for a terminal or a page.
#ifndef FQ_CMD_ESCAPE_H
#define FQ_CMD_ESCAPE_H

#include <stddef.h>
#include <stdio.h>

// Writes n bytes of text to file. Valid UTF-8 passes as it is, but for C0, DEL, C1, bidi controls
// and line separators; those become \xNN (one byte) or \u{NNNN}, and every byte that is not part of
// valid UTF-8 becomes \xNN. Newlines and tabs are C0: they are escaped too.
void fq_escape_write(FILE *file, const char *text, size_t n);

// Like fq_escape_write, but for HTML: in text and in quoted attributes.
void fq_escape_write_html(FILE *file, const char *text, size_t n);

// Columns that fq_escape_write's output takes, every character counted as one.
size_t fq_escape_width(const char *text, size_t n);

#endif
