// Escaping: walks over UTF-8 and decides for each piece of it.
#include "escape.h"

#include "formats/utf8.h"

#include <stdbool.h>
#include <stdint.h>

// The piece of text that starts at the given place.
typedef struct piece {
    size_t nbytes;       // 1 where it is no valid UTF-8
    uint32_t code_point; // the byte itself where it is no valid UTF-8
    bool valid;
} piece;

static piece next_piece(const char *text, size_t n) {
    piece p = {.code_point = (unsigned char)*text};
    p.nbytes = fq_utf8_decode(&p.code_point, text, n);
    p.valid = p.nbytes > 0;
    if (!p.valid)
        p.nbytes = 1;
    return p;
}

static bool is_harmless(const piece *p) {
    const uint32_t c = p->code_point;
    if (!p->valid || c < 0x20 || (c >= 0x7F && c < 0xA0))
        return false;
    const bool bidi = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
                      (c >= 0x2066 && c <= 0x2069);
    const bool line_separator = c == 0x2028 || c == 0x2029;
    return !bidi && !line_separator;
}

// The escape for a piece that is not harmless; returns its length.
static size_t format_escape(char out[16], const piece *p) {
    const char *format = p->nbytes == 1 ? "\\x%02X" : "\\u{%X}";
    return (size_t)snprintf(out, 16, format, (unsigned)p->code_point);
}

// What stands for a character in HTML; NULL: itself.
static const char *entity_of(uint32_t c) {
    return c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&quot;"
           : c == '\'' ? "&#39;"
                       : NULL;
}

static void write_escaped(FILE *file, const char *text, size_t n, bool as_html) {
    size_t begin = 0; // of the harmless text that is not written yet
    for (size_t i = 0; i < n;) {
        const piece p = next_piece(text + i, n - i);
        const bool harmless = is_harmless(&p);
        const char *entity = as_html && harmless ? entity_of(p.code_point) : NULL;
        if (!harmless || entity) {
            char escape[16];
            fwrite(text + begin, 1, i - begin, file);
            if (!entity)
                format_escape(escape, &p);
            fputs(entity ? entity : escape, file);
            begin = i + p.nbytes;
        }
        i += p.nbytes;
    }
    fwrite(text + begin, 1, n - begin, file);
}

void fq_escape_write(FILE *file, const char *text, size_t n) {
    write_escaped(file, text, n, false);
}

void fq_escape_write_html(FILE *file, const char *text, size_t n) {
    write_escaped(file, text, n, true);
}

size_t fq_escape_width(const char *text, size_t n) {
    size_t width = 0;
    for (size_t i = 0; i < n;) {
        const piece p = next_piece(text + i, n - i);
        char escape[16];
        width += is_harmless(&p) ? 1 : format_escape(escape, &p);
        i += p.nbytes;
    }
    return width;
}
