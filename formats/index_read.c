// model.safetensors.index.json: one strict scan, its entries collected on the way.
#include "index_read.h"

#include "grow.h"
#include "json.h"
#include "name_list.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef enum section {
    OTHER_SECTION,
    WEIGHT_MAP,
    METADATA,
} section;

typedef struct reader {
    fq_index *out;
    fq_arena *arena;
    const char *text;
    const char *file;
    section section;
    const char *key;    // of the value that comes next, in weight_map and metadata
    size_t value_begin; // of a container in metadata
    size_t entries_capacity, metadata_capacity;
    fq_name_list no_names; // tensors that are mapped to something else than a string
} reader;

static fq_status add_entry(reader *r, const fq_json_event *event, fq_error *err) {
    fq_index *index = r->out;
    index->entries = fq_arena_grown(r->arena, index->entries, index->n_entries,
                                    &r->entries_capacity, sizeof *index->entries);
    if (!index->entries)
        return fq_fail_memory(err);
    fq_index_entry *entry = &index->entries[index->n_entries];
    // Most entries name the shard of the one before: its string then serves both.
    if (index->n_entries > 0 && strcmp(entry[-1].shard_name, event->text) == 0)
        entry->shard_name = entry[-1].shard_name;
    else
        entry->shard_name = fq_arena_strndup(r->arena, event->text, event->nbytes);
    if (!entry->shard_name)
        return fq_fail_memory(err);
    entry->tensor = r->key;
    index->n_entries++;
    return FQ_OK;
}

static fq_status on_weight_map_value(reader *r, const fq_json_event *event, fq_error *err) {
    if (event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END)
        return FQ_OK;
    if (event->kind == FQ_JSON_STRING && strlen(event->text) == event->nbytes)
        return add_entry(r, event, err);
    fq_name_list_add(&r->no_names, r->key);
    return FQ_OK;
}

static fq_status on_metadata_value(reader *r, const fq_json_event *event, fq_error *err) {
    fq_index *index = r->out;
    if (event->kind == FQ_JSON_OBJECT || event->kind == FQ_JSON_ARRAY) {
        r->value_begin = event->begin;
        return FQ_OK;
    }
    const bool ends = event->kind == FQ_JSON_OBJECT_END || event->kind == FQ_JSON_ARRAY_END;
    const size_t begin = ends ? r->value_begin : event->begin;
    const char *value = fq_arena_strndup(r->arena, r->text + begin, event->end - begin);
    if (!value)
        return fq_fail_memory(err);
    if (strcmp(r->key, "total_size") == 0) {
        index->total_size = value;
        return FQ_OK;
    }
    index->metadata = fq_arena_grown(r->arena, index->metadata, index->n_metadata,
                                     &r->metadata_capacity, sizeof *index->metadata);
    if (!index->metadata)
        return fq_fail_memory(err);
    index->metadata[index->n_metadata++] = (fq_index_metadata){r->key, value};
    return FQ_OK;
}

// A key or value of the top-level object.
static fq_status on_top(reader *r, const fq_json_event *event, fq_error *err) {
    if (event->kind == FQ_JSON_KEY) {
        const bool is_map = strcmp(event->text, "weight_map") == 0;
        const bool is_metadata = strcmp(event->text, "metadata") == 0;
        r->section = is_map ? WEIGHT_MAP : is_metadata ? METADATA : OTHER_SECTION;
        return FQ_OK;
    }
    if (event->kind == FQ_JSON_OBJECT || event->kind == FQ_JSON_OBJECT_END)
        return FQ_OK;
    if (r->section == WEIGHT_MAP)
        return fq_fail(err, FQ_BAD_INPUT, "%s: weight_map is no JSON object; download it again",
                       r->file);
    r->section = OTHER_SECTION; // metadata of another kind, null mostly, say nothing
    return FQ_OK;
}

static fq_status on_event(void *context, const fq_json_event *event, fq_error *err) {
    reader *r = context;
    if (event->depth == 0) {
        if (event->kind == FQ_JSON_OBJECT || event->kind == FQ_JSON_OBJECT_END)
            return FQ_OK;
        return fq_fail(err, FQ_BAD_INPUT, "%s: is no JSON object; download it again", r->file);
    }
    if (event->depth == 1)
        return on_top(r, event, err);
    if (event->depth > 2 || r->section == OTHER_SECTION)
        return FQ_OK;
    if (event->kind == FQ_JSON_KEY) {
        r->key = fq_arena_strndup(r->arena, event->text, event->nbytes);
        if (!r->key)
            return fq_fail_memory(err);
        if (strlen(r->key) != event->nbytes)
            return fq_fail(err, FQ_BAD_INPUT, "%s: %s: the name holds a NUL character", r->file,
                           r->key);
        return FQ_OK;
    }
    return r->section == WEIGHT_MAP ? on_weight_map_value(r, event, err)
                                    : on_metadata_value(r, event, err);
}

const char *fq_shard_name_problem(const char *name) {
    static const char extension[] = ".safetensors";
    const size_t nbytes = strlen(name);
    if (nbytes == 0)
        return "is empty";
    for (size_t i = 0; i < nbytes; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F)
            return "holds control characters";
    }
    if (name[0] == '/')
        return "is an absolute path";
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        const size_t n = strcspn(part, "/");
        if (n > NAME_MAX)
            return "is too long for a file name";
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && memcmp(part, "..", 2) == 0))
            return "is no plain path inside the folder";
    }
    if (nbytes < sizeof extension || strcmp(name + nbytes - (sizeof extension - 1), extension) != 0)
        return "does not end in .safetensors";
    return NULL;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_tensors(const void *a, const void *b) {
    return strcmp(((const fq_index_entry *)a)->tensor, ((const fq_index_entry *)b)->tensor);
}

// Fills shard_names, sorted and distinct, and the entries' numbers in it; sorts the entries.
static fq_status number_shards(fq_index *index, fq_arena *arena, fq_error *err) {
    size_t n = 0;
    if (index->n_entries == 0)
        return FQ_OK;
    index->shard_names = fq_arena_array(arena, index->n_entries, sizeof *index->shard_names);
    if (!index->shard_names)
        return fq_fail_memory(err);
    for (size_t i = 0; i < index->n_entries; i++) {
        const char *name = index->entries[i].shard_name;
        if (i == 0 || name != index->entries[i - 1].shard_name)
            index->shard_names[n++] = name;
    }
    qsort(index->shard_names, n, sizeof *index->shard_names, compare_names);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(index->shard_names[i], index->shard_names[i - 1]) != 0)
            index->shard_names[index->n_shard_names++] = index->shard_names[i];
    }
    for (size_t i = 0; i < index->n_entries; i++) {
        fq_index_entry *entry = &index->entries[i];
        const char **found = bsearch(&entry->shard_name, index->shard_names, index->n_shard_names,
                                     sizeof *index->shard_names, compare_names);
        entry->shard = (uint32_t)(found - index->shard_names);
    }
    qsort(index->entries, index->n_entries, sizeof *index->entries, compare_tensors);
    return FQ_OK;
}

// Takes out the entries whose shard is no file of the folder; one fault per such name.
static void drop_bad_names(fq_index *index, const char *file, fq_messages *faults) {
    const char *reported = NULL;
    size_t n = 0;
    for (size_t i = 0; i < index->n_entries; i++) {
        const fq_index_entry *entry = &index->entries[i];
        const char *problem = fq_shard_name_problem(entry->shard_name);
        if (!problem) {
            index->entries[n++] = *entry;
            continue;
        }
        if (reported != entry->shard_name)
            fq_messages_add(faults, "%s: %s: is mapped to \"%.100s\", which %s", file,
                            entry->tensor, entry->shard_name, problem);
        reported = entry->shard_name;
    }
    index->n_entries = n;
}

fq_status fq_index_read(fq_index *out, fq_arena *arena, const char *text, size_t nbytes,
                        const char *file, fq_messages *faults, fq_error *err) {
    reader r = {.out = out, .arena = arena, .text = text, .file = file};
    const fq_json_options options = {.file = file};
    *out = (fq_index){0};
    fq_status status = fq_json_scan(text, nbytes, &options, on_event, &r, err);
    if (status != FQ_OK) {
        *out = (fq_index){0}; // half an index is none
        return status;
    }
    if (r.no_names.n > 0)
        fq_messages_add(faults, "%s: mapped to something that is no file name: %s", file,
                        r.no_names.text);
    else if (out->n_entries == 0)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: has no weight_map, or an empty one; download it again, or remove it "
                       "to take every .safetensors file of the folder",
                       file);
    drop_bad_names(out, file, faults);
    return number_shards(out, arena, err);
}
