// Reads config.json: a handler that follows the path of keys to each value it knows.
#include "config.h"

#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef enum config_key {
    KEY_OTHER,
    KEY_ELEMENT, // no key: an element of a list
    KEY_TEXT_CONFIG,
    KEY_MODEL_TYPE,
    KEY_HIDDEN_SIZE,
    KEY_MOE_INTERMEDIATE_SIZE,
    KEY_TIE_WORD_EMBEDDINGS,
    KEY_QUANTIZATION_CONFIG,
    KEY_QUANT_METHOD,
    KEY_FMT,
    KEY_WEIGHT_BLOCK_SIZE,
    KEY_SCALE_FMT,
    KEY_FP8Q,
    KEY_SCALE_FORMAT,
    KEY_COUNT
} config_key;

static const char *const key_names[KEY_COUNT] = {
    [KEY_OTHER] = "",
    [KEY_ELEMENT] = "",
    [KEY_TEXT_CONFIG] = "text_config",
    [KEY_MODEL_TYPE] = "model_type",
    [KEY_HIDDEN_SIZE] = "hidden_size",
    [KEY_MOE_INTERMEDIATE_SIZE] = "moe_intermediate_size",
    [KEY_TIE_WORD_EMBEDDINGS] = "tie_word_embeddings",
    [KEY_QUANTIZATION_CONFIG] = "quantization_config",
    [KEY_QUANT_METHOD] = "quant_method",
    [KEY_FMT] = "fmt",
    [KEY_WEIGHT_BLOCK_SIZE] = "weight_block_size",
    [KEY_SCALE_FMT] = "scale_fmt",
    [KEY_FP8Q] = "fp8q",
    [KEY_SCALE_FORMAT] = "scale_format",
};

enum {
    MAX_PATH = 4, // text_config.quantization_config.fp8q.scale_format
};
static const uint64_t MAX_BLOCK = UINT64_C(1) << 31;
static const char no_block[] = "is no list of two whole numbers from 1 to 2^31";

// What the top level says, or text_config.
typedef struct level {
    fq_model model;
    bool has_tie;
    uint32_t n_block; // elements of weight_block_size met
} level;

typedef struct reader {
    fq_arena *arena;
    const char *file;
    config_key path[MAX_PATH]; // [depth]: the key at hand in each open container
    level top, text;
} reader;

static config_key key_of(const fq_json_event *event) {
    for (config_key key = KEY_TEXT_CONFIG; key < KEY_COUNT; key++) {
        if (strlen(key_names[key]) == event->nbytes &&
            memcmp(key_names[key], event->text, event->nbytes) == 0)
            return key;
    }
    return KEY_OTHER;
}

// A fault of the value at hand, named by its path.
static fq_status fail_value(const reader *r, const fq_json_event *event, const char *what,
                            fq_error *err) {
    char name[128] = "";
    for (uint32_t i = 0; i < event->depth && r->path[i] != KEY_ELEMENT; i++) {
        const size_t n = strlen(name);
        snprintf(name + n, sizeof name - n, "%s%s", n ? "." : "", key_names[r->path[i]]);
    }
    return fq_fail(err, FQ_BAD_INPUT, "%s: %s: %s; repair the file", r->file, name, what);
}

static fq_status take_string(reader *r, const char **out, const fq_json_event *event,
                             fq_error *err) {
    if (event->kind == FQ_JSON_NULL)
        return FQ_OK;
    if (event->kind != FQ_JSON_STRING || strlen(event->text) != event->nbytes)
        return fail_value(r, event, "is no string, or one with a NUL character", err);
    const char *copy = fq_arena_strndup(r->arena, event->text, event->nbytes);
    if (!copy)
        return fq_fail_memory(err);
    *out = copy;
    return FQ_OK;
}

static fq_status take_size(const reader *r, uint64_t *out, const fq_json_event *event,
                           fq_error *err) {
    if (event->kind == FQ_JSON_NULL || event->kind == FQ_JSON_ARRAY)
        return FQ_OK;
    if (event->kind != FQ_JSON_NUMBER || !fq_json_u64(out, event->text, event->nbytes))
        return fail_value(r, event, "is no whole number", err);
    return FQ_OK;
}

static fq_status take_object(const reader *r, const fq_json_event *event, fq_error *err) {
    if (event->kind == FQ_JSON_NULL || event->kind == FQ_JSON_OBJECT)
        return FQ_OK;
    return fail_value(r, event, "is no object", err);
}

static fq_status take_model_value(reader *r, level *at, config_key key, const fq_json_event *event,
                                  fq_error *err) {
    fq_model *model = &at->model;
    switch (key) {
    case KEY_MODEL_TYPE:
        return take_string(r, &model->model_type, event, err);
    case KEY_HIDDEN_SIZE:
        return take_size(r, &model->hidden_size, event, err);
    case KEY_MOE_INTERMEDIATE_SIZE:
        return take_size(r, &model->moe_intermediate_size, event, err);
    case KEY_TIE_WORD_EMBEDDINGS:
        if (event->kind != FQ_JSON_TRUE && event->kind != FQ_JSON_FALSE &&
            event->kind != FQ_JSON_NULL)
            return fail_value(r, event, "is neither true nor false", err);
        at->has_tie = event->kind != FQ_JSON_NULL;
        model->tie_word_embeddings = event->kind == FQ_JSON_TRUE;
        return FQ_OK;
    case KEY_QUANTIZATION_CONFIG:
        model->quant.present = event->kind == FQ_JSON_OBJECT;
        return take_object(r, event, err);
    default:
        return FQ_OK;
    }
}

static fq_status take_quant_value(reader *r, level *at, config_key key, const fq_json_event *event,
                                  fq_error *err) {
    fq_quant_config *quant = &at->model.quant;
    const char *scale_fmt = "";
    fq_status status;
    switch (key) {
    case KEY_QUANT_METHOD:
        return take_string(r, &quant->method, event, err);
    case KEY_FMT:
        return take_string(r, &quant->fmt, event, err);
    case KEY_SCALE_FMT:
        status = take_string(r, &scale_fmt, event, err);
        quant->ue8m0 = strcmp(scale_fmt, "ue8m0") == 0;
        return status;
    case KEY_WEIGHT_BLOCK_SIZE:
        if (event->kind != FQ_JSON_ARRAY && event->kind != FQ_JSON_NULL)
            return fail_value(r, event, no_block, err);
        quant->has_block = event->kind == FQ_JSON_ARRAY;
        return FQ_OK;
    case KEY_FP8Q:
        return take_object(r, event, err);
    default:
        return FQ_OK;
    }
}

static fq_status take_block_element(reader *r, level *at, const fq_json_event *event,
                                    fq_error *err) {
    fq_block *block = &at->model.quant.block;
    uint64_t n;
    if (at->n_block == 2 || event->kind != FQ_JSON_NUMBER ||
        !fq_json_u64(&n, event->text, event->nbytes) || n == 0 || n > MAX_BLOCK)
        return fail_value(r, event, no_block, err);
    *(at->n_block == 0 ? &block->rows : &block->cols) = n;
    at->n_block++;
    return FQ_OK;
}

// A scalar, or the start of an object or a list. The path says where it stands.
static fq_status take_value(reader *r, const fq_json_event *event, fq_error *err) {
    const bool in_text = r->path[0] == KEY_TEXT_CONFIG;
    level *at = in_text ? &r->text : &r->top;
    const config_key *path = r->path + in_text;
    const uint32_t n_path = event->depth - in_text;
    if (n_path == 1)
        return take_model_value(r, at, path[0], event, err);
    if (n_path == 0 || path[0] != KEY_QUANTIZATION_CONFIG)
        return FQ_OK;
    if (n_path == 2)
        return take_quant_value(r, at, path[1], event, err);
    if (n_path == 3 && path[1] == KEY_WEIGHT_BLOCK_SIZE)
        return take_block_element(r, at, event, err);
    if (n_path == 3 && path[1] == KEY_FP8Q && path[2] == KEY_SCALE_FORMAT)
        return take_string(r, &at->model.quant.scale_format, event, err);
    return FQ_OK;
}

static fq_status take_event(void *context, const fq_json_event *event, fq_error *err) {
    reader *r = context;
    const uint32_t depth = event->depth;
    if (event->kind == FQ_JSON_KEY) {
        if (depth <= MAX_PATH)
            r->path[depth - 1] = key_of(event);
        return FQ_OK;
    }
    if (event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END)
        return FQ_OK;
    if (depth == 0 && event->kind != FQ_JSON_OBJECT)
        return fq_fail(err, FQ_BAD_INPUT, "%s: is no JSON object; repair the file", r->file);
    if (depth > 0 && depth <= MAX_PATH) {
        const fq_status status = take_value(r, event, err);
        if (status != FQ_OK)
            return status;
    }
    if (depth < MAX_PATH) // what the value's own members are, until a key says more
        r->path[depth] = event->kind == FQ_JSON_ARRAY ? KEY_ELEMENT : KEY_OTHER;
    return FQ_OK;
}

// Takes from text_config what the top level does not say.
static void merge(level *top, const level *text) {
    fq_model *model = &top->model;
    if (!*model->model_type)
        model->model_type = text->model.model_type;
    if (model->hidden_size == 0)
        model->hidden_size = text->model.hidden_size;
    if (model->moe_intermediate_size == 0)
        model->moe_intermediate_size = text->model.moe_intermediate_size;
    if (!top->has_tie)
        model->tie_word_embeddings = text->model.tie_word_embeddings;
    if (!model->quant.present)
        model->quant = text->model.quant;
}

static bool has_whole_block(const level *at) {
    return !at->model.quant.has_block || at->n_block == 2;
}

fq_status fq_config_read(fq_model *out, fq_arena *arena, const char *text, size_t nbytes,
                         const char *file, fq_error *err) {
    fq_model empty = fq_model_unknown();
    empty.has_config = true;
    reader r = {.arena = arena, .file = file, .top.model = empty, .text.model = empty};
    const fq_json_options options = {.file = file, .allow_constants = true};
    const fq_status status = fq_json_scan(text, nbytes, &options, take_event, &r, err);
    if (status != FQ_OK)
        return status;
    if (!has_whole_block(&r.top) || !has_whole_block(&r.text))
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: quantization_config.weight_block_size: %s; repair the file", file,
                       no_block);
    merge(&r.top, &r.text);
    *out = r.top.model;
    return FQ_OK;
}
