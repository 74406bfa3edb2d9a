// A cJSON tree made of the scanner's events. cJSON's own parser takes text that is no JSON, drops
// what follows a NUL, and turns numbers into doubles; its nodes serve as they are.
#include "json_tree.h"

#include <stdio.h>
#include <string.h>

typedef struct builder {
    const char *text;
    const fq_json_tree_options *options;
    cJSON *root;
    cJSON *open[FQ_JSON_MAX_DEPTH]; // [depth]: the containers around the event at hand
    fq_json_text key;               // of the value that comes next, in an object
    fq_json_text token;             // a Raw node's text, with its NUL
    bool is_verbatim;               // the members of the open top-level object are
    size_t verbatim_begin;          // of an object or list among them
    size_t n_values;
} builder;

static fq_status take_key(builder *b, const fq_json_event *event, fq_error *err) {
    if (strlen(event->text) != event->nbytes)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: %.200s: the name holds a NUL character; repair the file",
                       b->options->scan.file, event->text);
    b->key.n = 0;
    fq_json_put_bytes(&b->key, event->text, event->nbytes);
    return b->key.out_of_memory ? fq_fail_memory(err) : FQ_OK;
}

// NULL when out of memory, as all of cJSON's constructors.
static cJSON *raw_node(builder *b, size_t begin, size_t end) {
    b->token.n = 0;
    fq_json_put_bytes(&b->token, b->text + begin, end - begin);
    return b->token.out_of_memory ? NULL : cJSON_CreateRaw(b->token.bytes);
}

static cJSON *node_of(builder *b, const fq_json_event *event) {
    switch (event->kind) {
    case FQ_JSON_OBJECT:
        return cJSON_CreateObject();
    case FQ_JSON_ARRAY:
        return cJSON_CreateArray();
    case FQ_JSON_TRUE:
        return cJSON_CreateTrue();
    case FQ_JSON_FALSE:
        return cJSON_CreateFalse();
    case FQ_JSON_NULL:
        return cJSON_CreateNull();
    case FQ_JSON_STRING:
        return strlen(event->text) == event->nbytes ? cJSON_CreateString(event->text)
                                                    : raw_node(b, event->begin, event->end);
    default: // a number or a constant
        return raw_node(b, event->begin, event->end);
    }
}

// Hangs the node, which it owns from now on, into the container around it.
static fq_status add_node(builder *b, uint32_t depth, cJSON *node, fq_error *err) {
    if (!node)
        return fq_fail_memory(err);
    if (depth == 0) {
        b->root = node;
        return FQ_OK;
    }
    cJSON *parent = b->open[depth - 1];
    if (cJSON_IsObject(parent) ? cJSON_AddItemToObject(parent, b->key.bytes, node)
                               : cJSON_AddItemToArray(parent, node))
        return FQ_OK;
    cJSON_Delete(node);
    return fq_fail_memory(err);
}

// An event within the object whose members are kept as text.
static fq_status take_verbatim(builder *b, const fq_json_event *event, fq_error *err) {
    if (event->depth > 2)
        return FQ_OK;
    switch (event->kind) {
    case FQ_JSON_KEY:
        return take_key(b, event, err);
    case FQ_JSON_OBJECT:
    case FQ_JSON_ARRAY:
        b->verbatim_begin = event->begin;
        return FQ_OK;
    case FQ_JSON_OBJECT_END:
    case FQ_JSON_ARRAY_END:
        return add_node(b, event->depth, raw_node(b, b->verbatim_begin, event->end), err);
    default:
        return add_node(b, event->depth, raw_node(b, event->begin, event->end), err);
    }
}

static fq_status take_event(void *context, const fq_json_event *event, fq_error *err) {
    builder *b = context;
    const bool is_key = event->kind == FQ_JSON_KEY;
    const bool ends = event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END;
    b->n_values += !is_key && !ends;
    if (b->n_values > FQ_JSON_MAX_VALUES)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: holds more than %d values, which no model needs; fetch it again",
                       b->options->scan.file, FQ_JSON_MAX_VALUES);
    if (event->depth < 2)
        b->is_verbatim = false;
    if (b->is_verbatim)
        return take_verbatim(b, event, err);
    if (is_key)
        return take_key(b, event, err);
    if (ends)
        return FQ_OK;
    cJSON *node = node_of(b, event);
    const fq_status status = add_node(b, event->depth, node, err);
    if (status != FQ_OK || (!cJSON_IsObject(node) && !cJSON_IsArray(node)))
        return status;
    b->open[event->depth] = node;
    b->is_verbatim = event->depth == 1 && cJSON_IsObject(node) && node->string &&
                     b->options->verbatim && strcmp(node->string, b->options->verbatim) == 0;
    return FQ_OK;
}

fq_status fq_json_parse(cJSON **out, const char *text, size_t nbytes,
                        const fq_json_tree_options *options, fq_error *err) {
    builder b = {.text = text, .options = options};
    const fq_status status = fq_json_scan(text, nbytes, &options->scan, take_event, &b, err);
    if (status == FQ_OK)
        *out = b.root;
    else
        cJSON_Delete(b.root);
    fq_json_text_free(&b.key);
    fq_json_text_free(&b.token);
    return status;
}

// ---- Getters

const cJSON *fq_json_get(const fq_json_object *in, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(in->node, key);
    return cJSON_IsNull(value) ? NULL : value;
}

bool fq_json_is_u64(uint64_t *out, const cJSON *node) {
    return cJSON_IsRaw(node) && fq_json_u64(out, node->valuestring, strlen(node->valuestring));
}

fq_status fq_json_fail_value(const fq_json_object *in, const char *key, const char *what,
                             fq_error *err) {
    return fq_fail(err, FQ_BAD_INPUT, "%s: %s%s: %s; repair the file", in->file, in->path, key,
                   what);
}

fq_status fq_json_get_string(const char **out, const fq_json_object *in, const char *key,
                             fq_error *err) {
    const cJSON *value = fq_json_get(in, key);
    if (value && !cJSON_IsString(value))
        return fq_json_fail_value(in, key, "is no string, or one with a NUL character", err);
    if (value)
        *out = value->valuestring;
    return FQ_OK;
}

fq_status fq_json_get_bool(bool *out, const fq_json_object *in, const char *key, fq_error *err) {
    const cJSON *value = fq_json_get(in, key);
    if (value && !cJSON_IsBool(value))
        return fq_json_fail_value(in, key, "is neither true nor false", err);
    if (value)
        *out = cJSON_IsTrue(value);
    return FQ_OK;
}

fq_status fq_json_get_u64(uint64_t *out, const fq_json_object *in, const char *key, fq_error *err) {
    const cJSON *value = fq_json_get(in, key);
    if (value && !fq_json_is_u64(out, value))
        return fq_json_fail_value(in, key, "is no whole number", err);
    return FQ_OK;
}

fq_status fq_json_get_object(fq_json_object *out, const fq_json_object *in, const char *key,
                             fq_error *err) {
    const cJSON *value = fq_json_get(in, key);
    if (value && !cJSON_IsObject(value))
        return fq_json_fail_value(in, key, "is no object", err);
    const size_t n = strlen(in->path);
    *out = *in;
    out->node = value;
    snprintf(out->path + n, sizeof out->path - n, "%s.", key);
    return FQ_OK;
}
