// Strict JSON: a scanner that checks every byte and reports events, and a writer of pure ASCII.
#ifndef FQ_FORMATS_JSON_H
#define FQ_FORMATS_JSON_H

#include "lib/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FQ_JSON_MAX_DEPTH = 127 }; // of open containers; as serde_json, the format's own reader

typedef enum fq_json_kind {
    FQ_JSON_OBJECT, // followed by its keys and values, then FQ_JSON_OBJECT_END
    FQ_JSON_OBJECT_END,
    FQ_JSON_ARRAY,
    FQ_JSON_ARRAY_END,
    FQ_JSON_KEY,
    FQ_JSON_STRING,
    FQ_JSON_NUMBER,
    FQ_JSON_TRUE,
    FQ_JSON_FALSE,
    FQ_JSON_NULL,
    FQ_JSON_CONSTANT, // Infinity, -Infinity, NaN; only with allow_constants
} fq_json_kind;

// One event. text points at the token's own bytes for numbers, and at unescaped, NUL-terminated
// UTF-8 for keys and strings (which may hold NULs of their own: see nbytes); valid until the
// handler returns. Other events have no text ("", 0).
typedef struct fq_json_event {
    fq_json_kind kind;
    uint32_t depth; // of open containers around the token; the container itself not counted
    const char *text;
    size_t nbytes;
    size_t begin, end; // the token's place in the input, quotes included; a bracket for containers
} fq_json_event;

// Returns other than FQ_OK to stop the scan with that status (and has then filled err).
typedef fq_status fq_json_handler(void *context, const fq_json_event *event, fq_error *err);

typedef struct fq_json_options {
    const char *file;     // for messages
    bool allow_constants; // bare Infinity, -Infinity and NaN
} fq_json_options;

// Scans nbytes of text (at most 2^32 - 1) by RFC 8259, strictly: UTF-8, escapes and surrogates,
// white space of the four kinds alone, at most FQ_JSON_MAX_DEPTH open containers, one value and
// nothing after it. Refused too: a number beyond the range of doubles, and a key twice in one
// object, compared after unescaping (reported when the object ends). O(n log n); memory of 8 bytes
// per key of the open objects and one copy of the longest string. FQ_BAD_INPUT names file, line
// and column, both counted from 1, columns in bytes.
fq_status fq_json_scan(const char *text, size_t nbytes, const fq_json_options *options,
                       fq_json_handler *handler, void *context, fq_error *err);

// The unsigned integer of a number token: digits only, no sign, fraction or exponent. False if it
// is none or exceeds 64 bits.
bool fq_json_u64(uint64_t *out, const char *text, size_t nbytes);

// True if a well-formed number token lies in the range of doubles. Decided on 17 digits.
bool fq_json_number_is_finite(const char *text, size_t nbytes);

// A growing text. Zeroed is empty.
typedef struct fq_json_text {
    char *bytes; // NUL-terminated, NULL as long as nothing was put; owned: fq_json_text_free
    size_t n, capacity;
    bool out_of_memory; // sticky: check once at the end
} fq_json_text;

void fq_json_put(fq_json_text *out, const char *raw);                     // as it is
void fq_json_put_bytes(fq_json_text *out, const char *raw, size_t n);     // as they are
void fq_json_put_u64(fq_json_text *out, uint64_t value);                  // in digits
void fq_json_put_string(fq_json_text *out, const char *string, size_t n); // quoted; see below
void fq_json_text_free(fq_json_text *text);

// Strings are written in pure ASCII: quotes and backslashes escaped, everything else outside
// 0x20..0x7E as \uXXXX. Equal to raw UTF-8 for every parser, and harmless on a terminal. A byte
// that is not UTF-8 becomes U+FFFD, but C0 80 becomes U+0000: so a NUL may be held in a C string.

#endif
