// JSON written into a growing text.
#include "json.h"

#include "utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Room for n more bytes and the NUL. False, for good, when there is none.
static bool reserve(fq_json_text *out, size_t n) {
    if (out->out_of_memory)
        return false;
    if (n < out->capacity - out->n)
        return true;
    size_t capacity = 0;
    if (__builtin_add_overflow(out->n, n, &capacity) ||
        __builtin_add_overflow(capacity, (size_t)64 + capacity / 2, &capacity)) {
        out->out_of_memory = true;
        return false;
    }
    char *bytes = realloc(out->bytes, capacity);
    if (!bytes) {
        out->out_of_memory = true;
        return false;
    }
    out->bytes = bytes;
    out->capacity = capacity;
    return true;
}

void fq_json_put_bytes(fq_json_text *out, const char *raw, size_t n) {
    if (!reserve(out, n))
        return;
    memcpy(out->bytes + out->n, raw, n);
    out->n += n;
    out->bytes[out->n] = '\0';
}

void fq_json_put(fq_json_text *out, const char *raw) { fq_json_put_bytes(out, raw, strlen(raw)); }

void fq_json_put_u64(fq_json_text *out, uint64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    fq_json_put(out, digits);
}

static void put_escape(fq_json_text *out, uint32_t unit) {
    char escape[8];
    snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unit & 0xFFFF));
    fq_json_put(out, escape);
}

static void put_point(fq_json_text *out, uint32_t point) {
    if (point == '"' || point == '\\') {
        const char escape[] = {'\\', (char)point};
        fq_json_put_bytes(out, escape, sizeof escape);
    } else if (point < 0x10000) {
        put_escape(out, point);
    } else { // RFC 8259, section 7: a pair of surrogates
        put_escape(out, 0xD800 + ((point - 0x10000) >> 10));
        put_escape(out, 0xDC00 + ((point - 0x10000) & 0x3FF));
    }
}

static bool is_plain(char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }

void fq_json_put_string(fq_json_text *out, const char *string, size_t n) {
    fq_json_put(out, "\"");
    for (size_t i = 0; i < n;) {
        size_t run = 0;
        while (i + run < n && is_plain(string[i + run]))
            run++;
        fq_json_put_bytes(out, string + i, run);
        i += run;
        if (i == n)
            break;
        uint32_t point = 0xFFFD;
        size_t length = fq_utf8_decode(&point, string + i, n - i);
        if (length == 0 && n - i >= 2 && memcmp(string + i, "\xC0\x80", 2) == 0) {
            point = 0;
            length = 2;
        }
        put_point(out, point);
        i += length > 0 ? length : 1;
    }
    fq_json_put(out, "\"");
}

void fq_json_text_free(fq_json_text *text) {
    free(text->bytes);
    memset(text, 0, sizeof *text);
}
