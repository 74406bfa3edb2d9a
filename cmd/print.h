// Text for people: escaped, coloured where wanted, buffered.
#ifndef FQ_CMD_PRINT_H
#define FQ_CMD_PRINT_H

#include "lib/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// --color; the order is that of the option's argument.
typedef enum fq_color { FQ_COLOR_AUTO, FQ_COLOR_ALWAYS, FQ_COLOR_NEVER } fq_color;

typedef enum fq_style { FQ_PLAIN, FQ_BOLD, FQ_DIM, FQ_RED, FQ_YELLOW, FQ_GREEN } fq_style;

typedef struct fq_printer {
    FILE *file;
    bool is_terminal;
    bool color;
} fq_printer;

// auto: colours on a terminal, unless NO_COLOR is set or TERM is "dumb".
fq_printer fq_printer_make(FILE *file, fq_color color);

// Columns of the terminal behind the printer, as it is now; or of COLUMNS; or 80. 20 at least.
uint32_t fq_printer_width(const fq_printer *printer);

// Formats and escapes: everything, newlines too. Colours are added around the result.
void fq_print(const fq_printer *printer, fq_style style, const char *format, ...) FQ_PRINTF(3, 4);

// Like fq_print, then spaces up to width columns.
void fq_print_padded(const fq_printer *printer, size_t width, const char *text);

// Like fq_print in FQ_PLAIN, then ends the line.
void fq_print_line(const fq_printer *printer, const char *format, ...) FQ_PRINTF(2, 3);

void fq_print_newline(const fq_printer *printer);

// True if a line for standard output was cut because it found no memory.
bool fq_print_was_cut(void);

// What a noun ends in behind that number.
static inline const char *fq_plural(uint64_t n) { return n == 1 ? "" : "s"; }

enum { FQ_SIZE_TEXT = 16 };

// "512 B", "1.50 kB", "15.3 GB": decimal units, three digits. Returns out.
const char *fq_format_nbytes(char out[FQ_SIZE_TEXT], uint64_t nbytes);

#endif
