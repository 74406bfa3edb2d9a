// The JSON writer: see emit.h.
#include "emit.h"

#include <math.h>
#include <string.h>

enum { FLUSH_NBYTES = 1 << 16 };

// Writes out what has gathered, and keeps the buffer.
static void flush(fq_emit *emit) {
    if (!emit->text.out_of_memory)
        fwrite(emit->text.bytes, 1, emit->text.n, emit->file);
    emit->text.n = 0;
}

// What stands before a value: a comma, a line break where the reader's eye wants one, and the key.
static void put_lead(fq_emit *emit, const char *key) {
    if (emit->has_previous)
        fq_json_put(&emit->text, ",");
    const bool new_line = emit->depth == 1 || (emit->depth == 2 && !key);
    if (new_line)
        fq_json_put(&emit->text, "\n");
    else if (emit->has_previous)
        fq_json_put(&emit->text, " ");
    if (key) {
        fq_json_put_string(&emit->text, key, strlen(key));
        fq_json_put(&emit->text, ": ");
    }
    emit->has_previous = true;
    if (emit->text.n > FLUSH_NBYTES)
        flush(emit);
}

void fq_emit_begin(fq_emit *emit, const char *key, char bracket) {
    put_lead(emit, key);
    fq_json_put(&emit->text, (const char[]){bracket, '\0'});
    emit->depth++;
    emit->has_previous = false;
}

void fq_emit_end(fq_emit *emit, char bracket) {
    emit->depth--;
    if (emit->depth == 0)
        fq_json_put(&emit->text, "\n");
    fq_json_put(&emit->text, (const char[]){bracket, '\0'});
    emit->has_previous = true;
}

void fq_emit_string(fq_emit *emit, const char *key, const char *value) {
    put_lead(emit, key);
    if (value)
        fq_json_put_string(&emit->text, value, strlen(value));
    else
        fq_json_put(&emit->text, "null");
}

void fq_emit_u64(fq_emit *emit, const char *key, uint64_t value) {
    put_lead(emit, key);
    fq_json_put_u64(&emit->text, value);
}

void fq_emit_double(fq_emit *emit, const char *key, double value) {
    char digits[32];
    put_lead(emit, key);
    snprintf(digits, sizeof digits, "%.9g", value);
    fq_json_put(&emit->text, isfinite(value) ? digits : "null");
}

void fq_emit_bool(fq_emit *emit, const char *key, bool value) {
    put_lead(emit, key);
    fq_json_put(&emit->text, value ? "true" : "false");
}

void fq_emit_null(fq_emit *emit, const char *key) { fq_emit_string(emit, key, NULL); }

void fq_emit_strings(fq_emit *emit, const char *key, const char *const *values, size_t n) {
    fq_emit_begin(emit, key, '[');
    for (size_t i = 0; i < n; i++)
        fq_emit_string(emit, NULL, values[i]);
    fq_emit_end(emit, ']');
}

void fq_emit_messages(fq_emit *emit, const char *key, const fq_messages *messages) {
    fq_emit_strings(emit, key, (const char *const *)messages->lines, messages->n);
    if (messages->n_lost > 0)
        emit->text.out_of_memory = true;
}

void fq_emit_u64s(fq_emit *emit, const char *key, const uint64_t *values, size_t n) {
    fq_emit_begin(emit, key, '[');
    for (size_t i = 0; i < n; i++)
        fq_emit_u64(emit, NULL, values[i]);
    fq_emit_end(emit, ']');
}

// Emits one event of a scan, and holds the key until its value comes.
typedef struct copier {
    fq_emit *emit;
    const char *key;    // of the whole value
    const char *source; // the text scanned
    bool after_key;
} copier;

static fq_status copy_event(void *context, const fq_json_event *event, fq_error *err) {
    (void)err;
    copier *copy = context;
    fq_emit *emit = copy->emit;
    if (event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END) {
        fq_emit_end(emit, event->kind == FQ_JSON_OBJECT_END ? '}' : ']');
        return FQ_OK;
    }
    if (!copy->after_key)
        put_lead(emit, event->depth == 0 ? copy->key : NULL);
    copy->after_key = event->kind == FQ_JSON_KEY;
    switch (event->kind) {
    case FQ_JSON_OBJECT:
    case FQ_JSON_ARRAY:
        fq_json_put(&emit->text, event->kind == FQ_JSON_OBJECT ? "{" : "[");
        emit->depth++;
        emit->has_previous = false;
        break;
    case FQ_JSON_NUMBER:
        fq_json_put_bytes(&emit->text, event->text, event->nbytes);
        break;
    case FQ_JSON_TRUE:
    case FQ_JSON_FALSE:
        fq_json_put(&emit->text, event->kind == FQ_JSON_TRUE ? "true" : "false");
        break;
    case FQ_JSON_NULL:
        fq_json_put(&emit->text, "null");
        break;
    case FQ_JSON_CONSTANT:
        fq_json_put_string(&emit->text, copy->source + event->begin, event->end - event->begin);
        break;
    default:
        fq_json_put_string(&emit->text, event->text, event->nbytes);
    }
    if (event->kind == FQ_JSON_KEY)
        fq_json_put(&emit->text, ": ");
    return FQ_OK;
}

static fq_status ignore_event(void *context, const fq_json_event *event, fq_error *err) {
    (void)context, (void)event, (void)err;
    return FQ_OK;
}

void fq_emit_json(fq_emit *emit, const char *key, const char *text, size_t nbytes) {
    const fq_json_options options = {.file = "", .allow_constants = true};
    copier copy = {.emit = emit, .key = key, .source = text};
    fq_error err = {0};
    if (fq_json_scan(text, nbytes, &options, ignore_event, NULL, &err) == FQ_OK)
        fq_json_scan(text, nbytes, &options, copy_event, &copy, &err);
    else if (err.status == FQ_BAD_INPUT)
        fq_emit_string(emit, key, text);
    if (err.status == FQ_DEVICE)
        emit->text.out_of_memory = true;
}

fq_status fq_emit_finish(fq_emit *emit, fq_error *err) {
    fq_json_put(&emit->text, "\n");
    const bool ok = !emit->text.out_of_memory;
    flush(emit);
    fq_json_text_free(&emit->text);
    return ok ? FQ_OK : fq_fail_memory(err);
}
