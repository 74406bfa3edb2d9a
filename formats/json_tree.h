// JSON documents as trees of cJSON: built from the scanner's events, read by few checked getters.
#ifndef FQ_FORMATS_JSON_TREE_H
#define FQ_FORMATS_JSON_TREE_H

#include "json.h"

#include <cjson/cJSON.h>

// Of one document. A value's node takes 80 bytes of heap, its key and its string 32 at least: 151
// MB at most, and what strings are longer lies within the length of the text. The 64 MiB that an
// index may have are filled by 0.7 million tensors with names of the usual length.
enum { FQ_JSON_MAX_VALUES = 1 << 20 };

typedef struct fq_json_tree_options {
    fq_json_options scan;
    const char *verbatim; // a top-level key whose object's members are kept as text; or NULL
} fq_json_tree_options;

// Scans text like fq_json_scan, and builds a tree from what the scanner reports. The tree says
// exactly what the text says: what a double or a C string would change is a Raw node, whose
// valuestring is the token as it stands. These are numbers, Infinity and NaN, strings that hold a
// NUL, and all members of the object under `verbatim`. *out is owned by the caller (cJSON_Delete),
// and untouched on failure. FQ_BAD_INPUT also for more than FQ_JSON_MAX_VALUES values, and for a
// key that holds a NUL.
fq_status fq_json_parse(cJSON **out, const char *text, size_t nbytes,
                        const fq_json_tree_options *options, fq_error *err);

// An object of a tree, and its place for messages. Where node is NULL or no object, every key is
// absent.
typedef struct fq_json_object {
    const cJSON *node; // borrowed from the tree
    const char *file;
    char path[64]; // the keys that lead to node, each with a dot behind it; "" for the top level
} fq_json_object;

// The value under a key; NULL if it is absent or null. The case of keys counts.
const cJSON *fq_json_get(const fq_json_object *in, const char *key);

// True if node is an unsigned integer of 64 bits: digits alone, as fq_json_u64 takes them.
bool fq_json_is_u64(uint64_t *out, const cJSON *node);

// Typed getters: *out stays as it is where the key is absent or null; a value of another type is
// FQ_BAD_INPUT, naming file and path. Strings are borrowed from the tree. An object that is absent
// has a NULL node.
fq_status fq_json_get_string(const char **out, const fq_json_object *in, const char *key,
                             fq_error *err);
fq_status fq_json_get_bool(bool *out, const fq_json_object *in, const char *key, fq_error *err);
fq_status fq_json_get_u64(uint64_t *out, const fq_json_object *in, const char *key, fq_error *err);
fq_status fq_json_get_object(fq_json_object *out, const fq_json_object *in, const char *key,
                             fq_error *err);

// FQ_BAD_INPUT: the value under key `what`, as "is no string".
fq_status fq_json_fail_value(const fq_json_object *in, const char *key, const char *what,
                             fq_error *err);

#endif
