// The printer: formats into a buffer, escapes, and adds colours last.
#include "print.h"

#include "escape.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

fq_printer fq_printer_make(FILE *file, fq_color color) {
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    const bool is_terminal = isatty(fileno(file)) == 1;
    const bool wanted =
        is_terminal && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0);
    return (fq_printer){
        .file = file,
        .is_terminal = is_terminal,
        .color = color == FQ_COLOR_ALWAYS || (color == FQ_COLOR_AUTO && wanted),
    };
}

uint32_t fq_printer_width(const fq_printer *printer) {
    enum { DEFAULT_WIDTH = 80, MIN_WIDTH = 20, MAX_WIDTH = 10000 };
    struct winsize size;
    long width = 0;
    const char *columns = getenv("COLUMNS");
    if (columns)
        width = strtol(columns, NULL, 10);
    else if (printer->is_terminal && ioctl(fileno(printer->file), TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width <= 0 || width > MAX_WIDTH)
        return DEFAULT_WIDTH;
    return width < MIN_WIDTH ? MIN_WIDTH : (uint32_t)width;
}

static const char *style_code(fq_style style) {
    static const char *const codes[] = {
        [FQ_PLAIN] = "",       [FQ_BOLD] = "\033[1m",    [FQ_DIM] = "\033[2m",
        [FQ_RED] = "\033[31m", [FQ_YELLOW] = "\033[33m", [FQ_GREEN] = "\033[32m",
    };
    return codes[style];
}

static bool was_cut;

bool fq_print_was_cut(void) { return was_cut; }

// Formats into a buffer on the stack, or a larger one where that is too small. A line that finds no
// memory is cut.
static void print_args(const fq_printer *printer, const char *format, va_list args) {
    char small[1024];
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && (size_t)n < sizeof small) {
        fq_escape_write(printer->file, small, (size_t)n);
    } else if (n >= 0) {
        char *large = malloc((size_t)n + 1);
        if (large)
            vsnprintf(large, (size_t)n + 1, format, again);
        else if (printer->file == stdout)
            was_cut = true;
        fq_escape_write(printer->file, large ? large : small, large ? (size_t)n : sizeof small - 1);
        free(large);
    }
    va_end(again);
}

void fq_print(const fq_printer *printer, fq_style style, const char *format, ...) {
    const bool styled = printer->color && style != FQ_PLAIN;
    va_list args;
    va_start(args, format);
    if (styled)
        fputs(style_code(style), printer->file);
    print_args(printer, format, args);
    if (styled)
        fputs("\033[0m", printer->file);
    va_end(args);
}

void fq_print_padded(const fq_printer *printer, size_t width, const char *text) {
    const size_t n = strlen(text);
    fq_escape_write(printer->file, text, n);
    const size_t used = fq_escape_width(text, n);
    if (used < width)
        fprintf(printer->file, "%*s", (int)(width - used), "");
}

void fq_print_line(const fq_printer *printer, const char *format, ...) {
    va_list args;
    va_start(args, format);
    print_args(printer, format, args);
    va_end(args);
    fq_print_newline(printer);
}

void fq_print_newline(const fq_printer *printer) { putc('\n', printer->file); }

const char *fq_format_nbytes(char out[FQ_SIZE_TEXT], uint64_t nbytes) {
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    if (nbytes < 1000) {
        snprintf(out, FQ_SIZE_TEXT, "%" PRIu64 " B", nbytes);
        return out;
    }
    double value = (double)nbytes / 1000;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, FQ_SIZE_TEXT, "%.*f %s", digits, value, units[unit]);
    return out;
}
