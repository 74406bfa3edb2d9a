// quantization_config put into the text of config.json, or taken out, every other byte kept: the
// scanner tells where things stand, and only those places are cut and filled.
#include "config.h"

#include "config_style.h"
#include "grow.h"
#include "json.h"

#include <stdlib.h>
#include <string.h>

typedef struct span {
    size_t begin, end;
} span;

typedef struct member {
    span key, value;
} member;

// An edit takes the span out and puts the filling in its place.
typedef struct edit {
    span cut;
    const char *filling; // borrowed
} edit;

typedef enum key_kind { KEY_OTHER, KEY_TEXT_CONFIG, KEY_QUANT, KEY_DTYPE } key_kind;

// The text of an open container. A list has no keys, and so no members here.
typedef struct level {
    span inside; // between the brackets
    size_t n_members;
    member last;
    key_kind key; // of last
    member quant; // quantization_config, where has_quant
    bool has_quant;
    size_t previous_end;       // of the value before last; 0 if last is the first
    size_t quant_previous_end; // of the value before quant; 0 if it is the first
    size_t quant_next_begin;   // of the key behind quant; 0 if it is the last
    bool in_quant;             // lies in a quantization_config, which goes or stays as a whole
} level;

// Which quantization_config counts: the lowest rank, and of those the first.
enum { RANK_TOP, RANK_TEXT, RANK_OTHER, RANK_NONE };

typedef struct layout {
    const char *text;
    const char *dtype_filling;       // for a dtype that names a float8 type
    level levels[FQ_JSON_MAX_DEPTH]; // by depth; the first one stays when it is closed
    span found;                      // the object quantization_config that counts
    int found_rank;
    edit *edits; // [n_edits]: what takes out every quantization_config. Memory from arena
    size_t n_edits, capacity;
    fq_arena arena;
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

static fq_status add_edit(layout *l, span cut, const char *filling, fq_error *err) {
    l->edits = fq_arena_grown(&l->arena, l->edits, l->n_edits, &l->capacity, sizeof *l->edits);
    if (!l->edits)
        return fq_fail_memory(err);
    l->edits[l->n_edits++] = (edit){cut, filling};
    return FQ_OK;
}

static void take_key(level *at, const fq_json_event *event) {
    at->key = kind_of(event);
    at->previous_end = at->n_members > 0 ? at->last.value.end : 0;
    if (at->has_quant && at->quant_next_begin == 0)
        at->quant_next_begin = event->begin;
    at->last.key = (span){event->begin, event->end};
    at->n_members++;
}

static void take_quant(layout *l, level *at, uint32_t depth) {
    at->quant = at->last;
    at->has_quant = true;
    at->quant_previous_end = at->previous_end;
    const int rank = depth == 1                                          ? RANK_TOP
                     : depth == 2 && l->levels[0].key == KEY_TEXT_CONFIG ? RANK_TEXT
                                                                         : RANK_OTHER;
    const bool is_object = l->text[at->last.value.begin] == '{'; // null counts as absent
    if (is_object && !at->in_quant && rank < l->found_rank) {
        l->found = at->last.value;
        l->found_rank = rank;
    }
}

// A scalar, or the end of a container whose begin is noted already.
static fq_status end_value(layout *l, const fq_json_event *event, fq_error *err) {
    level *at = &l->levels[event->depth - 1];
    at->last.value.end = event->end;
    if (at->key == KEY_QUANT)
        take_quant(l, at, event->depth);
    else if (at->key == KEY_DTYPE && !at->in_quant && names_float8(event))
        return add_edit(l, at->last.value, l->dtype_filling, err);
    return FQ_OK;
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

static fq_status take_event(void *context, const fq_json_event *event, fq_error *err) {
    layout *l = context;
    const bool begins = event->kind == FQ_JSON_OBJECT || event->kind == FQ_JSON_ARRAY;
    const bool ends = event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END;
    level *parent = event->depth > 0 ? &l->levels[event->depth - 1] : NULL;
    if (event->kind == FQ_JSON_KEY) {
        take_key(parent, event);
        return FQ_OK;
    }
    if (parent && !ends)
        parent->last.value.begin = event->begin;
    if (begins) {
        l->levels[event->depth] = (level){
            .inside.begin = event->end,
            .in_quant = parent && (parent->in_quant || parent->key == KEY_QUANT),
        };
        return FQ_OK;
    }
    if (ends) {
        level *at = &l->levels[event->depth];
        at->inside.end = event->begin;
        if (at->has_quant && !at->in_quant) {
            const fq_status status = add_edit(l, removed_span(at), "", err);
            if (status != FQ_OK)
                return status;
        }
    }
    return parent ? end_value(l, event, err) : FQ_OK;
}

// dtype is for the edits: the type that a float8 type becomes. The arena is to be freed after any
// outcome.
static fq_status find_layout(layout *out, const char *text, size_t nbytes, fq_dtype dtype,
                             fq_error *err) {
    const fq_json_options options = {.file = "config.json", .allow_constants = true};
    *out = (layout){.text = text, .found_rank = RANK_NONE};
    out->dtype_filling = dtype == FQ_BF16  ? "\"bfloat16\""
                         : dtype == FQ_F16 ? "\"float16\""
                                           : "\"float32\"";
    return fq_json_scan(text, nbytes, &options, take_event, out, err);
}

// ---- Edits

static int compare_edits(const void *a, const void *b) {
    const edit *x = a, *y = b;
    return (x->cut.begin > y->cut.begin) - (x->cut.begin < y->cut.begin);
}

// Edits do not overlap; they are put in order here.
static fq_status apply(char **out, size_t *out_nbytes, const char *text, size_t nbytes, edit *edits,
                       size_t n_edits, fq_error *err) {
    if (n_edits > 0)
        qsort(edits, n_edits, sizeof *edits, compare_edits);
    fq_json_text edited = {0};
    size_t at = 0;
    for (size_t i = 0; i < n_edits; i++) {
        fq_json_put_bytes(&edited, text + at, edits[i].cut.begin - at);
        fq_json_put(&edited, edits[i].filling);
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
    layout l;
    fq_json_text filling = {0};
    fq_status status = find_layout(&l, text, nbytes, FQ_BF16, err);
    if (status != FQ_OK)
        goto out;
    const level *top = &l.levels[0];
    const fq_config_style style = style_of(top, text);
    const bool is_empty = top->n_members == 0;
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
        status = fq_fail_memory(err);
        goto out;
    }
    added.filling = filling.bytes;
    status = apply(out, out_nbytes, text, nbytes, &added, 1, err);
out:
    fq_json_text_free(&filling);
    fq_arena_free(&l.arena);
    return status;
}

fq_status fq_config_without_quantization(char **out, size_t *out_nbytes, const char *text,
                                         size_t nbytes, fq_dtype dtype, fq_error *err) {
    layout l;
    fq_status status = find_layout(&l, text, nbytes, dtype, err);
    if (status == FQ_OK)
        status = apply(out, out_nbytes, text, nbytes, l.edits, l.n_edits, err);
    fq_arena_free(&l.arena);
    return status;
}

fq_status fq_config_find_quantization(const char **out, size_t *out_nbytes, const char *text,
                                      size_t nbytes, fq_error *err) {
    layout l;
    const fq_status status = find_layout(&l, text, nbytes, FQ_BF16, err);
    fq_arena_free(&l.arena);
    if (status != FQ_OK)
        return status;
    *out = l.found_rank != RANK_NONE ? text + l.found.begin : NULL;
    *out_nbytes = l.found.end - l.found.begin;
    return FQ_OK;
}
