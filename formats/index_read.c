// model.safetensors.index.json: weight_map and metadata taken from its tree.
#include "index_read.h"

#include "json_tree.h"
#include "lib/names.h"
#include "name_list.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static fq_status read_weight_map(fq_index *out, fq_arena *arena, const cJSON *map,
                                 fq_name_list *no_names, fq_error *err) {
    const size_t n = (size_t)cJSON_GetArraySize(map);
    const char *shard_name = "";
    out->entries = fq_arena_array(arena, n, sizeof *out->entries);
    if (!out->entries)
        return fq_fail_memory(err);
    for (const cJSON *value = map->child; value; value = value->next) {
        if (!cJSON_IsString(value)) {
            fq_name_list_add(no_names, value->string);
            continue;
        }
        // Most entries name the shard of the one before: its copy then serves both.
        if (out->n_entries == 0 || strcmp(shard_name, value->valuestring) != 0)
            shard_name = fq_arena_strndup(arena, value->valuestring, strlen(value->valuestring));
        const char *tensor = fq_arena_strndup(arena, value->string, strlen(value->string));
        if (!shard_name || !tensor)
            return fq_fail_memory(err);
        out->entries[out->n_entries++] =
            (fq_index_entry){.tensor = tensor, .shard_name = shard_name};
    }
    return FQ_OK;
}

static fq_status read_metadata(fq_index *out, fq_arena *arena, const cJSON *metadata,
                               fq_error *err) {
    const size_t n = (size_t)cJSON_GetArraySize(metadata);
    out->metadata = fq_arena_array(arena, n, sizeof *out->metadata);
    if (!out->metadata)
        return fq_fail_memory(err);
    for (const cJSON *item = metadata->child; item; item = item->next) {
        const char *key = fq_arena_strndup(arena, item->string, strlen(item->string));
        const char *value = fq_arena_strndup(arena, item->valuestring, strlen(item->valuestring));
        if (!key || !value)
            return fq_fail_memory(err);
        if (strcmp(key, "total_size") == 0)
            out->total_size = value;
        else
            out->metadata[out->n_metadata++] = (fq_index_metadata){key, value};
    }
    return FQ_OK;
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
    if (nbytes < sizeof extension || !fq_has_suffix(name, extension))
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

static fq_status read_tree(fq_index *out, fq_arena *arena, const cJSON *root, const char *file,
                           fq_messages *faults, fq_error *err) {
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(root, "metadata");
    fq_name_list no_names = {0};
    fq_status status = FQ_OK;
    if (!cJSON_IsObject(root))
        return fq_fail(err, FQ_BAD_INPUT, "%s: is no JSON object; download it again", file);
    if (map && !cJSON_IsObject(map))
        return fq_fail(err, FQ_BAD_INPUT, "%s: weight_map is no JSON object; download it again",
                       file);
    if (!map || !map->child)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: has no weight_map, or an empty one; download it again, or remove it "
                       "to take every .safetensors file of the folder",
                       file);
    if (cJSON_IsObject(metadata)) // of another kind, null mostly, they say nothing
        status = read_metadata(out, arena, metadata, err);
    if (status == FQ_OK)
        status = read_weight_map(out, arena, map, &no_names, err);
    if (status != FQ_OK)
        return status;
    if (no_names.n > 0)
        fq_messages_add(faults, "%s: mapped to something that is no file name: %s", file,
                        no_names.text);
    drop_bad_names(out, file, faults);
    return number_shards(out, arena, err);
}

fq_status fq_index_read(fq_index *out, fq_arena *arena, const char *text, size_t nbytes,
                        const char *file, fq_messages *faults, fq_error *err) {
    const fq_json_tree_options options = {.scan.file = file, .verbatim = "metadata"};
    cJSON *root = NULL;
    *out = (fq_index){0};
    fq_status status = fq_json_parse(&root, text, nbytes, &options, err);
    if (status == FQ_OK)
        status = read_tree(out, arena, root, file, faults, err);
    cJSON_Delete(root);
    if (status != FQ_OK)
        *out = (fq_index){0}; // half an index is none
    return status;
}
