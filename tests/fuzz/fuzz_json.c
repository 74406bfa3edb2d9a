// Any bytes through the JSON scanner: no fault of memory, well-formed events, and a text that was
// accepted is accepted again when written anew from its events. The tree of a text says the same.
//
// Under test: formats/json_scan.c formats/json_number.c formats/json_text.c formats/json_tree.c
#include "formats/json_tree.h"

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

static void check_same(const fq_json_text *text, const fq_json_text *expected) {
    rewriter again;
    DEMAND(rewrite(&again, text->bytes, text->n) == FQ_OK);
    DEMAND(again.text.n == expected->n);
    DEMAND(memcmp(again.text.bytes, expected->bytes, expected->n) == 0);
    fq_json_text_free(&again.text);
}

static void put_node(fq_json_text *out, const cJSON *node) {
    if (cJSON_IsObject(node) || cJSON_IsArray(node)) {
        fq_json_put(out, cJSON_IsObject(node) ? "{" : "[");
        for (const cJSON *child = node->child; child; child = child->next) {
            if (cJSON_IsObject(node)) {
                fq_json_put_string(out, child->string, strlen(child->string));
                fq_json_put(out, ":");
            }
            put_node(out, child);
            if (child->next)
                fq_json_put(out, ",");
        }
        fq_json_put(out, cJSON_IsObject(node) ? "}" : "]");
    } else if (cJSON_IsString(node)) {
        fq_json_put_string(out, node->valuestring, strlen(node->valuestring));
    } else if (cJSON_IsRaw(node)) {
        fq_json_put(out, node->valuestring);
    } else {
        fq_json_put(out, cJSON_IsTrue(node) ? "true" : cJSON_IsFalse(node) ? "false" : "null");
    }
}

// The getters take any tree, and any type under their key.
static void check_getters(const cJSON *tree) {
    const fq_json_object top = {.node = tree, .file = "F"};
    const char *keys[] = {"v", "a", ""};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *string = NULL;
        bool truth;
        uint64_t number;
        fq_json_object object;
        fq_error err = {0};
        const bool is_there = fq_json_get(&top, keys[i]);
        // A value has one of these types at most.
        const int n_taken = (fq_json_get_string(&string, &top, keys[i], &err) == FQ_OK) +
                            (fq_json_get_bool(&truth, &top, keys[i], &err) == FQ_OK) +
                            (fq_json_get_u64(&number, &top, keys[i], &err) == FQ_OK) +
                            (fq_json_get_object(&object, &top, keys[i], &err) == FQ_OK);
        DEMAND(is_there ? n_taken <= 1 : n_taken == 4);
    }
}

static void check_tree(const char *text, size_t nbytes, const char *verbatim,
                       const fq_json_text *expected) {
    const fq_json_tree_options options = {.scan = {.file = "F", .allow_constants = true},
                                          .verbatim = verbatim};
    fq_error err = {0};
    fq_json_text printed = {0};
    cJSON *tree = NULL;
    const fq_status status = fq_json_parse(&tree, text, nbytes, &options, &err);
    // What the scanner takes the tree refuses for a NUL in a key alone.
    DEMAND(status == FQ_OK || !expected || strstr(expected->bytes, "\\u0000"));
    if (status == FQ_OK) {
        DEMAND(expected);
        put_node(&printed, tree);
        check_same(&printed, expected);
        check_getters(tree);
    }
    fq_json_text_free(&printed);
    cJSON_Delete(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    rewriter first;
    const bool accepted = rewrite(&first, text, size) == FQ_OK;
    if (accepted)
        check_same(&first.text, &first.text);
    check_tree(text, size, NULL, accepted ? &first.text : NULL);
    check_tree(text, size, "v", accepted ? &first.text : NULL);
    fq_json_text_free(&first.text);
    return 0;
}
