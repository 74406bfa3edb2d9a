// UTF-8, one character at a time: decoded strictly, and encoded.
#ifndef FQ_FORMATS_UTF8_H
#define FQ_FORMATS_UTF8_H

#include <stddef.h>
#include <stdint.h>

// Decodes the character that text starts with; nbytes is at least 1. Returns its length in bytes,
// or 0 where it is cut, overlong, a surrogate or beyond U+10FFFF (RFC 3629).
static inline size_t fq_utf8_decode(uint32_t *out, const char *text, size_t nbytes) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; // by length: less is overlong
    const unsigned char *bytes = (const unsigned char *)text;
    if (bytes[0] < 0x80) {
        *out = bytes[0];
        return 1;
    }
    const size_t n = bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : 2;
    if (bytes[0] < 0xC2 || bytes[0] > 0xF4 || n > nbytes)
        return 0;
    uint32_t point = bytes[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        point = point << 6 | (bytes[i] & 0x3Fu);
    }
    if (point < least[n] || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
        return 0;
    *out = point;
    return n;
}

// Encodes a character, at most U+10FFFF. Returns the number of bytes written, 1 to 4.
static inline size_t fq_utf8_encode(char out[4], uint32_t point) {
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    const size_t n = point >= 0x10000 ? 4 : point >= 0x800 ? 3 : 2;
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    out[0] = (char)((0xF00u >> n & 0xFFu) | point); // as many ones as bytes, then a zero
    return n;
}

#endif
