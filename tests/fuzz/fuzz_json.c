// Any bytes through the JSON scanner: no fault of memory, well-formed events, and a text that was
// accepted is accepted again when written anew from its events.
#include "formats/json.h"

#include "fuzz.h"

#include <string.h>

typedef struct rewriter {
    fq_json_text text;
    uint32_t depth;
    size_t input_nbytes;
    size_t at; // end of the last event
} rewriter;

static void check_place(rewriter *r, const fq_json_event *event) {
    const bool begins = event->kind == FQ_JSON_OBJECT || event->kind == FQ_JSON_ARRAY;
    const bool ends = event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END;
    DEMAND(event->begin >= r->at && event->begin < event->end && event->end <= r->input_nbytes);
    DEMAND(event->kind == FQ_JSON_NUMBER || event->text[event->nbytes] == '\0');
    r->at = event->end;
    r->depth -= ends;
    DEMAND(event->depth == r->depth && r->depth <= FQ_JSON_MAX_DEPTH);
    r->depth += begins;
}

static fq_status rewrite_event(void *context, const fq_json_event *event, fq_error *err) {
    static const char *const fixed[] = {
        [FQ_JSON_OBJECT] = "{",    [FQ_JSON_OBJECT_END] = "}", [FQ_JSON_ARRAY] = "[",
        [FQ_JSON_ARRAY_END] = "]", [FQ_JSON_TRUE] = "true",    [FQ_JSON_FALSE] = "false",
        [FQ_JSON_NULL] = "null",   [FQ_JSON_CONSTANT] = "NaN",
    };
    (void)err;
    rewriter *r = context;
    check_place(r, event);
    fq_json_text *text = &r->text;
    const bool ends = event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END;
    if (text->n > 0 && !strchr("{[:", text->bytes[text->n - 1]) && !ends)
        fq_json_put(text, ",");
    if (event->kind == FQ_JSON_KEY || event->kind == FQ_JSON_STRING)
        fq_json_put_string(text, event->text, event->nbytes);
    else if (event->kind == FQ_JSON_NUMBER)
        fq_json_put_bytes(text, event->text, event->nbytes);
    else
        fq_json_put(text, fixed[event->kind]);
    if (event->kind == FQ_JSON_KEY)
        fq_json_put(text, ":");
    return FQ_OK;
}

static fq_status rewrite(rewriter *out, const char *text, size_t nbytes) {
    const fq_json_options options = {.file = "F", .allow_constants = true};
    fq_error err = {0};
    memset(out, 0, sizeof *out);
    out->input_nbytes = nbytes;
    const fq_status status = fq_json_scan(text, nbytes, &options, rewrite_event, out, &err);
    DEMAND(status == FQ_OK || (status == FQ_BAD_INPUT && err.status == status));
    DEMAND(status != FQ_OK || out->depth == 0);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    rewriter first, second = {0};
    if (rewrite(&first, (const char *)data, size) == FQ_OK) {
        DEMAND(rewrite(&second, first.text.bytes, first.text.n) == FQ_OK);
        DEMAND(second.text.n == first.text.n);
        DEMAND(memcmp(first.text.bytes, second.text.bytes, first.text.n) == 0);
    }
    fq_json_text_free(&first.text);
    fq_json_text_free(&second.text);
    return 0;
}
