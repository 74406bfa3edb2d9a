// quantization_config put into the text of config.json, or taken out, every other byte kept: the
// scanner tells where things stand, and only those places are cut and filled.
#include "config.h"

#include "config_style.h"
#include "json.h"

#include <stdlib.h>
#include <string.h>

typedef struct span {
    size_t begin, end;
} span;

typedef struct member {
    span key, value;
} member;

enum { N_DTYPE_KEYS = 2 }; // torch_dtype, and its new name dtype

// The text of the top-level object or of text_config.
typedef struct level {
    span inside; // between the braces
    size_t n_members;
    member last;
    member quant; // quantization_config, where has_quant
    bool has_quant;
    size_t quant_previous_end; // of the value before it; 0 if it is the first
    size_t quant_next_begin;   // of the key behind it; 0 if it is the last
    span float8_dtypes[N_DTYPE_KEYS];
    size_t n_float8_dtypes;
} level;

typedef enum key_kind { KEY_OTHER, KEY_TEXT_CONFIG, KEY_QUANT, KEY_DTYPE } key_kind;

typedef struct layout {
    level top, text;
    bool in_text; // text_config is open
    key_kind key; // the last one met in top or text
    size_t previous_end;
} layout;

static bool is_text(const fq_json_event *event, const char *text) {
    return event->nbytes == strlen(text) && memcmp(event->text, text, event->nbytes) == 0;
}

static key_kind kind_of(const fq_json_event *key) {
    return is_text(key, "text_config")                            ? KEY_TEXT_CONFIG
           : is_text(key, "quantization_config")                  ? KEY_QUANT
           : is_text(key, "torch_dtype") || is_text(key, "dtype") ? KEY_DTYPE
                                                                  : KEY_OTHER;
}

static bool names_float8(const fq_json_event *event) {
    static const char module[] = "torch.";
    const char *name = event->text;
    if (strncmp(name, module, sizeof module - 1) == 0)
        name += sizeof module - 1;
    return event->kind == FQ_JSON_STRING && strncmp(name, "float8", 6) == 0;
}

static void take_key(layout *l, level *at, const fq_json_event *event) {
    l->key = kind_of(event);
    l->previous_end = at->n_members > 0 ? at->last.value.end : 0;
    if (at->has_quant && at->quant_next_begin == 0)
        at->quant_next_begin = event->begin;
    at->last.key = (span){event->begin, event->end};
    at->n_members++;
}

// A scalar, or the end of a container whose begin is noted already.
static void end_value(layout *l, level *at, const fq_json_event *event) {
    at->last.value.end = event->end;
    if (l->key == KEY_QUANT) {
        at->quant = at->last;
        at->has_quant = true;
        at->quant_previous_end = l->previous_end;
    } else if (l->key == KEY_DTYPE && names_float8(event) && at->n_float8_dtypes < N_DTYPE_KEYS) {
        // One more would be a key twice, which the scanner refuses when the object ends.
        at->float8_dtypes[at->n_float8_dtypes++] = at->last.value;
    }
}

static fq_status take_event(void *context, const fq_json_event *event, fq_error *err) {
    (void)err;
    layout *l = context;
    const bool begins = event->kind == FQ_JSON_OBJECT || event->kind == FQ_JSON_ARRAY;
    const bool ends = event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END;
    if (event->depth == 0) {
        if (begins)
            l->top.inside.begin = event->end;
        else
            l->top.inside.end = event->begin;
        return FQ_OK;
    }
    if (event->depth == 1 && ends && l->in_text) {
        l->text.inside.end = event->begin;
        l->in_text = false;
        l->key = KEY_OTHER;
    }
    if (event->depth > (l->in_text ? 2u : 1u))
        return FQ_OK;
    level *at = event->depth == 1 ? &l->top : &l->text;
    if (event->kind == FQ_JSON_KEY) {
        take_key(l, at, event);
        return FQ_OK;
    }
    if (!ends)
        at->last.value.begin = event->begin;
    if (!begins)
        end_value(l, at, event);
    if (event->depth == 1 && event->kind == FQ_JSON_OBJECT && l->key == KEY_TEXT_CONFIG) {
        l->text.inside.begin = event->end;
        l->in_text = true;
    }
    return FQ_OK;
}

static fq_status find_layout(layout *out, const char *text, size_t nbytes, fq_error *err) {
    const fq_json_options options = {.file = "config.json", .allow_constants = true};
    return fq_json_scan(text, nbytes, &options, take_event, out, err);
}

// ---- Edits

typedef struct edit {
    span cut;
    const char *filling; // borrowed
    size_t filling_nbytes;
} edit;

static int compare_edits(const void *a, const void *b) {
    const edit *x = a, *y = b;
    return (x->cut.begin > y->cut.begin) - (x->cut.begin < y->cut.begin);
}

// Edits do not overlap; they are put in order here.
static fq_status apply(char **out, size_t *out_nbytes, const char *text, size_t nbytes, edit *edits,
                       size_t n_edits, fq_error *err) {
    qsort(edits, n_edits, sizeof *edits, compare_edits);
    fq_json_text edited = {0};
    size_t at = 0;
    for (size_t i = 0; i < n_edits; i++) {
        fq_json_put_bytes(&edited, text + at, edits[i].cut.begin - at);
        fq_json_put_bytes(&edited, edits[i].filling, edits[i].filling_nbytes);
        at = edits[i].cut.end;
    }
    fq_json_put_bytes(&edited, text + at, nbytes - at);
    if (edited.out_of_memory) {
        fq_json_text_free(&edited);
        return fq_fail_memory(err);
    }
    *out = edited.bytes;
    *out_nbytes = edited.n;
    return FQ_OK;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The style of the last top-level member, or what transformers writes where there is none.
static fq_config_style style_of(const level *top, const char *text) {
    if (top->n_members == 0) {
        const char *inside = text + top->inside.begin;
        const size_t n = top->inside.end - top->inside.begin;
        return (fq_config_style){
            .newline = memchr(inside, '\r', n) ? "\r\n" : "\n",
            .indent = "  ",
            .indent_nbytes = 2,
            .colon = ": ",
            .colon_nbytes = 2,
        };
    }
    const char *key = text + top->last.key.begin, *gap = key, *line = NULL;
    while (is_space(gap[-1])) { // stops at the brace or comma before it
        if (*--gap == '\n' && !line)
            line = gap + 1;
    }
    return (fq_config_style){
        .newline = !line                                 ? ""
                   : line - gap >= 2 && line[-2] == '\r' ? "\r\n"
                                                         : "\n",
        .indent = line,
        .indent_nbytes = line ? (size_t)(key - line) : 0,
        .gap = gap,
        .gap_nbytes = (size_t)(key - gap),
        .colon = text + top->last.key.end,
        .colon_nbytes = top->last.value.begin - top->last.key.end,
    };
}

fq_status fq_config_with_quantization(char **out, size_t *out_nbytes, const char *text,
                                      size_t nbytes, const fq_plan *plan, fq_error *err) {
    layout l = {0};
    const fq_status status = find_layout(&l, text, nbytes, err);
    if (status != FQ_OK)
        return status;
    const level *top = &l.top;
    const fq_config_style style = style_of(top, text);
    const bool is_empty = top->n_members == 0;
    fq_json_text filling = {0};
    edit added = {0};
    if (top->has_quant) {
        added.cut = top->quant.value;
    } else {
        const size_t place = is_empty ? top->inside.begin : top->last.value.end;
        added.cut = (span){place, place};
        if (!is_empty)
            fq_json_put(&filling, ",");
        fq_config_put_break(&filling, &style, 1, is_empty);
        fq_json_put(&filling, "\"quantization_config\"");
        fq_json_put_bytes(&filling, style.colon, style.colon_nbytes);
    }
    fq_config_put_quantization(&filling, &style, plan);
    if (is_empty && top->inside.begin == top->inside.end)
        fq_json_put(&filling, style.newline);
    if (filling.out_of_memory) {
        fq_json_text_free(&filling);
        return fq_fail_memory(err);
    }
    added.filling = filling.bytes;
    added.filling_nbytes = filling.n;
    const fq_status applied = apply(out, out_nbytes, text, nbytes, &added, 1, err);
    fq_json_text_free(&filling);
    return applied;
}

// What goes when quantization_config goes: its own text, one comma, and the white space that made
// the line.
static span removed_span(const level *at) {
    if (at->n_members == 1)
        return at->inside;
    if (at->quant_previous_end == 0)
        return (span){at->quant.key.begin, at->quant_next_begin};
    return (span){at->quant_previous_end, at->quant.value.end};
}

static const char *torch_name(fq_dtype dtype) {
    return dtype == FQ_BF16 ? "\"bfloat16\"" : dtype == FQ_F16 ? "\"float16\"" : "\"float32\"";
}

fq_status fq_config_without_quantization(char **out, size_t *out_nbytes, const char *text,
                                         size_t nbytes, fq_dtype dtype, fq_error *err) {
    layout l = {0};
    const fq_status status = find_layout(&l, text, nbytes, err);
    if (status != FQ_OK)
        return status;
    edit edits[2 * (1 + N_DTYPE_KEYS)];
    size_t n = 0;
    const level *const levels[] = {&l.top, &l.text};
    for (int i = 0; i < 2; i++) {
        const level *at = levels[i];
        if (at->has_quant)
            edits[n++] = (edit){removed_span(at), "", 0};
        for (size_t k = 0; k < at->n_float8_dtypes; k++)
            edits[n++] = (edit){at->float8_dtypes[k], torch_name(dtype), strlen(torch_name(dtype))};
    }
    return apply(out, out_nbytes, text, nbytes, edits, n, err);
}

fq_status fq_config_find_quantization(const char **out, size_t *out_nbytes, const char *text,
                                      size_t nbytes, fq_error *err) {
    layout l = {0};
    const fq_status status = find_layout(&l, text, nbytes, err);
    if (status != FQ_OK)
        return status;
    *out = NULL;
    *out_nbytes = 0;
    const level *const levels[] = {&l.top, &l.text};
    for (int i = 0; i < 2 && !*out; i++) {
        const span value = levels[i]->quant.value;
        if (levels[i]->has_quant && text[value.begin] == '{') { // null counts as absent
            *out = text + value.begin;
            *out_nbytes = value.end - value.begin;
        }
    }
    return FQ_OK;
}
