// A handler for the events of a safetensors header: depth 1 holds the entries, depth 2 their
// fields, depth 3 the numbers of shape and data_offsets.
#include "safetensors_entries.h"

#include "json.h"
#include "safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum field {
    FIELD_OTHER, // unknown fields are ignored, as the reference implementation does
    FIELD_DTYPE,
    FIELD_SHAPE,
    FIELD_OFFSETS,
    FIELD_COUNT
} field;

static const char *const field_names[FIELD_COUNT] = {
    [FIELD_DTYPE] = "dtype",
    [FIELD_SHAPE] = "shape",
    [FIELD_OFFSETS] = "data_offsets",
};

typedef struct reader {
    fq_entries *out;
    fq_arena *arena;
    const char *file;
    char *strings;    // room for every name, key and value: each is shorter than its token
    const char *name; // of the entry at hand
    bool is_metadata; // it is __metadata__
    field field;      // at hand
    bool has[FIELD_COUNT];
    fq_dtype dtype;
    uint64_t shape[FQ_MAX_RANK];
    uint32_t rank;
    uint64_t offsets[2];
    uint32_t n_offsets;
} reader;

fq_status fq_entries_fail(fq_error *err, const char *file, const char *tensor, const char *what,
                          ...) {
    char text[FQ_ERROR_TEXT_SIZE];
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    return fq_fail(err, FQ_BAD_INPUT,
                   "%s: %.200s: %.1000s; fetch the file again, or tell who made it", file, tensor,
                   text);
}

static fq_status fail_entry(const reader *r, fq_error *err, const char *what) {
    return fq_entries_fail(err, r->file, r->name, "%s", what);
}

static char *keep_string(reader *r, const char *text, size_t n) {
    char *copy = r->strings;
    memcpy(copy, text, n);
    copy[n] = '\0';
    r->strings += n + 1;
    return copy;
}

// Values are C strings: a NUL becomes C0 80, which is shorter than the \u0000 it was.
static char *keep_value(reader *r, const char *text, size_t n) {
    char *copy = r->strings, *end = copy;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\0')
            *end++ = '\xC0';
        *end++ = text[i] == '\0' ? '\x80' : text[i];
    }
    *end++ = '\0';
    r->strings = end;
    return copy;
}

// Makes room for one more item. NULL when out of memory, and then items are still there.
static void *grow(void *items, size_t n, size_t *capacity, size_t item_size) {
    if (n < *capacity)
        return items;
    const size_t more = *capacity ? 2 * *capacity : 256;
    void *grown = realloc(items, more * item_size);
    if (grown)
        *capacity = more;
    return grown;
}

static fq_status begin_entry(reader *r, const fq_json_event *event, fq_error *err) {
    if (memchr(event->text, '\0', event->nbytes))
        return fq_entries_fail(err, r->file, event->text, "the name holds a NUL character");
    if (event->nbytes > FQ_SAFETENSORS_MAX_NAME)
        return fq_entries_fail(err, r->file, event->text,
                               "the name has %zu bytes, at most %d are taken", event->nbytes,
                               FQ_SAFETENSORS_MAX_NAME);
    r->name = keep_string(r, event->text, event->nbytes);
    r->is_metadata = strcmp(r->name, "__metadata__") == 0;
    memset(r->has, 0, sizeof r->has);
    r->rank = 0;
    r->n_offsets = 0;
    return FQ_OK;
}

static fq_status end_tensor(reader *r, fq_error *err) {
    for (field f = FIELD_DTYPE; f < FIELD_COUNT; f++) {
        if (!r->has[f])
            return fq_entries_fail(err, r->file, r->name, "%s is missing", field_names[f]);
    }
    if (r->n_offsets != 2)
        return fail_entry(r, err, "data_offsets are not two numbers");
    if (r->offsets[1] < r->offsets[0])
        return fail_entry(r, err, "data_offsets end before they begin");
    uint64_t nbytes;
    if (!fq_tensor_nbytes(&nbytes, r->dtype, r->shape, r->rank))
        return fail_entry(r, err, "the shape overflows 64 bits or fills no whole number of bytes");
    if (nbytes != r->offsets[1] - r->offsets[0])
        return fq_entries_fail(err, r->file, r->name,
                               "dtype and shape need %" PRIu64 " bytes, data_offsets give %" PRIu64,
                               nbytes, r->offsets[1] - r->offsets[0]);
    fq_entries *out = r->out;
    fq_tensor *tensors =
        grow(out->tensors, out->n_tensors, &out->tensors_capacity, sizeof *tensors);
    uint64_t *shape = fq_arena_array(r->arena, r->rank, sizeof *shape);
    if (tensors)
        out->tensors = tensors;
    if (!tensors || !shape)
        return fq_fail_memory(err);
    memcpy(shape, r->shape, r->rank * sizeof *shape);
    out->tensors[out->n_tensors++] = (fq_tensor){
        .name = r->name,
        .dtype = r->dtype,
        .rank = r->rank,
        .shape = shape,
        .nbytes = nbytes,
        .offset = r->offsets[0],
    };
    return FQ_OK;
}

// An event between the braces of the header: a name, or what stands under it.
static fq_status take_entry(reader *r, const fq_json_event *event, fq_error *err) {
    if (event->kind == FQ_JSON_KEY)
        return begin_entry(r, event, err);
    if (event->kind == FQ_JSON_OBJECT)
        return FQ_OK;
    if (event->kind == FQ_JSON_OBJECT_END)
        return r->is_metadata ? FQ_OK : end_tensor(r, err);
    if (r->is_metadata && event->kind == FQ_JSON_NULL)
        return FQ_OK; // as absent; the reference implementation takes it too
    return fail_entry(r, err,
                      r->is_metadata ? "is no object of strings" : "the entry is no object");
}

static fq_status take_metadata(reader *r, const fq_json_event *event, fq_error *err) {
    fq_entries *out = r->out;
    if (event->kind == FQ_JSON_STRING) {
        out->metadata[out->n_metadata - 1].value = keep_value(r, event->text, event->nbytes);
        return FQ_OK;
    }
    if (event->kind != FQ_JSON_KEY)
        return fail_entry(r, err, "a value is no string");
    if (memchr(event->text, '\0', event->nbytes))
        return fail_entry(r, err, "a key holds a NUL character");
    fq_metadata *metadata =
        grow(out->metadata, out->n_metadata, &out->metadata_capacity, sizeof *metadata);
    if (!metadata)
        return fq_fail_memory(err);
    out->metadata = metadata;
    metadata[out->n_metadata++] =
        (fq_metadata){.key = keep_string(r, event->text, event->nbytes), .value = ""};
    return FQ_OK;
}

static field field_of(const fq_json_event *key) {
    for (field f = FIELD_DTYPE; f < FIELD_COUNT; f++) {
        if (strlen(field_names[f]) == key->nbytes &&
            memcmp(field_names[f], key->text, key->nbytes) == 0)
            return f;
    }
    return FIELD_OTHER;
}

// An event between the braces of a tensor's entry.
static fq_status take_field(reader *r, const fq_json_event *event, fq_error *err) {
    if (event->kind == FQ_JSON_KEY) {
        r->field = field_of(event);
        r->has[r->field] = true;
        return FQ_OK;
    }
    if (r->field == FIELD_OTHER)
        return FQ_OK;
    if (r->field != FIELD_DTYPE)
        return event->kind == FQ_JSON_ARRAY || event->kind == FQ_JSON_ARRAY_END
                   ? FQ_OK
                   : fail_entry(r, err,
                                r->field == FIELD_SHAPE ? "the shape is no list"
                                                        : "data_offsets are no list");
    if (event->kind != FQ_JSON_STRING)
        return fail_entry(r, err, "the dtype is no string");
    if (!fq_dtype_from_name(&r->dtype, event->text, event->nbytes))
        return fq_entries_fail(err, r->file, r->name,
                               "the dtype \"%.40s\" is none of the safetensors format",
                               event->text);
    return FQ_OK;
}

// An event between the brackets of shape or data_offsets, or inside an unknown field.
static fq_status take_number(reader *r, const fq_json_event *event, fq_error *err) {
    if (r->field == FIELD_OTHER)
        return FQ_OK;
    const bool is_shape = r->field == FIELD_SHAPE;
    uint64_t number;
    if (event->kind != FQ_JSON_NUMBER || !fq_json_u64(&number, event->text, event->nbytes))
        return fail_entry(r, err,
                          is_shape ? "the shape holds something else than whole numbers of 64 bits"
                                   : "data_offsets are no whole numbers of 64 bits");
    if (is_shape) {
        if (r->rank == FQ_MAX_RANK)
            return fail_entry(r, err, "the shape has more than 64 dimensions");
        r->shape[r->rank++] = number;
    } else {
        if (r->n_offsets == 2)
            return fail_entry(r, err, "data_offsets are more than two numbers");
        r->offsets[r->n_offsets++] = number;
    }
    return FQ_OK;
}

static fq_status take_event(void *context, const fq_json_event *event, fq_error *err) {
    reader *r = context;
    switch (event->depth) {
    case 0:
        if (event->kind == FQ_JSON_OBJECT || event->kind == FQ_JSON_OBJECT_END)
            return FQ_OK;
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: the header is no JSON object; is this a safetensors file?", r->file);
    case 1:
        return take_entry(r, event, err);
    case 2:
        return r->is_metadata ? take_metadata(r, event, err) : take_field(r, event, err);
    default:
        return take_number(r, event, err);
    }
}

fq_status fq_entries_read(fq_entries *out, fq_arena *arena, const char *json, size_t nbytes,
                          const char *file, fq_error *err) {
    reader r = {.out = out, .arena = arena, .file = file};
    r.strings = fq_arena_alloc(arena, nbytes);
    const fq_json_options options = {.file = fq_arena_printf(arena, "%s: header", file)};
    if (!r.strings || !options.file)
        return fq_fail_memory(err);
    return fq_json_scan(json, nbytes, &options, take_event, &r, err);
}

void fq_entries_free(fq_entries *entries) {
    free(entries->tensors);
    free(entries->metadata);
    memset(entries, 0, sizeof *entries);
}
