// Writes JSON to a file as it comes: pure ASCII, one line per element of the outer lists.
#ifndef FQ_CMD_EMIT_H
#define FQ_CMD_EMIT_H

#include "formats/json.h"

#include <stdio.h>

// Zeroed, with file set, is ready to begin. In all functions key is NULL inside arrays.
typedef struct fq_emit {
    FILE *file;
    fq_json_text text; // not written yet
    uint32_t depth;    // of open containers
    bool has_previous; // a comma is due before the next value
} fq_emit;

void fq_emit_begin(fq_emit *emit, const char *key, char bracket);       // '{' or '['
void fq_emit_end(fq_emit *emit, char bracket);                          // '}' or ']'
void fq_emit_string(fq_emit *emit, const char *key, const char *value); // NULL: null
void fq_emit_u64(fq_emit *emit, const char *key, uint64_t value);
void fq_emit_double(fq_emit *emit, const char *key, double value); // not finite: null
void fq_emit_bool(fq_emit *emit, const char *key, bool value);
void fq_emit_null(fq_emit *emit, const char *key);
void fq_emit_strings(fq_emit *emit, const char *key, const char *const *values, size_t n);

// The lines of a list. One that has lost any makes the whole end as out of memory.
void fq_emit_messages(fq_emit *emit, const char *key, const fq_messages *messages);

void fq_emit_u64s(fq_emit *emit, const char *key, const uint64_t *values, size_t n);

// A value that is JSON text already, from a file: copied event by event. Infinity and NaN, which
// JSON does not know, become strings; text that is no JSON becomes one string. text is
// NUL-terminated too.
void fq_emit_json(fq_emit *emit, const char *key, const char *text, size_t nbytes);

// Writes what is left, and a newline. FQ_DEVICE when memory ran out on the way.
fq_status fq_emit_finish(fq_emit *emit, fq_error *err);

#endif
