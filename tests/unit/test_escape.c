// Escaping stands between the text of files and the terminal: no control byte may pass, and
// everything readable must.
#include "cmd/escape.c"
#include "tests/check.h"

#include <stdlib.h>

// Escapes n bytes into a buffer, and checks that the width is what was written.
static const char *escaped(const char *text, size_t n) {
    static char buffer[4096];
    memset(buffer, 0, sizeof buffer);
    FILE *file = fmemopen(buffer, sizeof buffer, "w");
    if (!CHECK(file != NULL))
        exit(1);
    fq_escape_write(file, text, n);
    fclose(file);
    return buffer;
}

#define CHECK_ESCAPED(text, expected) CHECK_STR(escaped(text, sizeof text - 1), expected)

static void test_readable_text_passes(void) {
    CHECK_ESCAPED("model.layers.0.weight", "model.layers.0.weight");
    CHECK_ESCAPED("\xC3\xA9\xE6\xA8\xA1\xF0\x9F\x98\x80", "\xC3\xA9\xE6\xA8\xA1\xF0\x9F\x98\x80");
    CHECK_ESCAPED("", "");
}

static void test_controls(void) {
    CHECK_ESCAPED("a\x1B[31mb", "a\\x1B[31mb");
    CHECK_ESCAPED("a\nb\tc\rd", "a\\x0Ab\\x09c\\x0Dd");
    CHECK_ESCAPED("\0\x7F", "\\x00\\x7F");
    CHECK_ESCAPED("\xC2\x85\xC2\x9B", "\\u{85}\\u{9B}"); // C1
    CHECK_ESCAPED("\xC2\xA0", "\xC2\xA0");               // the first character after C1
}

static void test_bidi_controls_and_separators(void) {
    CHECK_ESCAPED("\xE2\x80\xAA\xE2\x80\xAE", "\\u{202A}\\u{202E}");
    CHECK_ESCAPED("\xE2\x81\xA6\xE2\x81\xA9", "\\u{2066}\\u{2069}");
    CHECK_ESCAPED("\xE2\x80\x8F\xD8\x9C", "\\u{200F}\\u{61C}");
    CHECK_ESCAPED("\xE2\x80\xA8", "\\u{2028}");
    CHECK_ESCAPED("\xE2\x80\xAF", "\xE2\x80\xAF"); // U+202F, a space
}

static void test_invalid_utf8(void) {
    CHECK_ESCAPED("\xFF", "\\xFF");
    CHECK_ESCAPED("a\x80z", "a\\x80z");
    CHECK_ESCAPED("\xC0\xAF", "\\xC0\\xAF");                   // overlong
    CHECK_ESCAPED("\xE0\x80\x80", "\\xE0\\x80\\x80");          // overlong
    CHECK_ESCAPED("\xED\xA0\x80", "\\xED\\xA0\\x80");          // surrogate
    CHECK_ESCAPED("\xF4\x90\x80\x80", "\\xF4\\x90\\x80\\x80"); // over U+10FFFF
    CHECK_ESCAPED("\xE2\x82", "\\xE2\\x82");                   // cut
}

// Whatever the bytes are, the output is printable, and as wide as announced.
static void test_every_pair_of_bytes(void) {
    for (unsigned pair = 0; pair < 65536; pair++) {
        const char text[2] = {(char)(pair >> 8), (char)pair};
        const char *out = escaped(text, 2);
        bool printable = true;
        size_t width = 0;
        for (const unsigned char *at = (const unsigned char *)out; *at; at++) {
            printable = printable && *at >= 0x20 && *at != 0x7F;
            width += (*at & 0xC0) != 0x80;
        }
        if (!CHECK(printable) || !CHECK(width == fq_escape_width(text, 2)))
            break;
    }
}

int main(void) {
    test_readable_text_passes();
    test_controls();
    test_bidi_controls_and_separators();
    test_invalid_utf8();
    test_every_pair_of_bytes();
    return check_result();
}
