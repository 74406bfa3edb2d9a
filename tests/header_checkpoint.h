// A checkpoint of headers alone, made of lines of text: for tests that decide and never read.
#ifndef FQ_TESTS_HEADER_CHECKPOINT_H
#define FQ_TESTS_HEADER_CHECKPOINT_H

#include "lib/tensor.h"

#include <stdlib.h>
#include <string.h>

// One shard, "model.safetensors". Zeroed is empty.
typedef struct header_checkpoint {
    fq_checkpoint checkpoint;
    fq_arena arena;
    fq_shard shard;
    fq_tensor *tensors; // [n], in the order of the lines
    size_t n, capacity;
} header_checkpoint;

// Reads "[2048, 7168]", "[]" too. False if it is anything else.
static inline bool header_read_shape(fq_tensor *tensor, fq_arena *arena, const char *text) {
    uint64_t shape[8];
    uint32_t rank = 0;
    if (*text++ != '[')
        return false;
    while (*text != ']') {
        char *end;
        if (rank == 8)
            return false;
        shape[rank++] = strtoull(text, &end, 10);
        if (end == text)
            return false;
        text = end + strspn(end, ", ");
    }
    uint64_t *copy = fq_arena_array(arena, rank + 1u, sizeof *copy);
    memcpy(copy, shape, rank * sizeof *copy);
    tensor->shape = copy;
    tensor->rank = rank;
    return fq_tensor_nbytes(&tensor->nbytes, tensor->dtype, copy, rank);
}

// Adds one tensor; rest is " BF16 [2048, 7168]".
static inline bool header_add_tensor(header_checkpoint *headers, const char *name,
                                     const char *rest) {
    if (headers->n == headers->capacity) {
        headers->capacity = headers->capacity ? 2 * headers->capacity : 64;
        headers->tensors = realloc(headers->tensors, headers->capacity * sizeof *headers->tensors);
    }
    fq_tensor *tensor = &headers->tensors[headers->n++];
    *tensor = (fq_tensor){.name = fq_arena_strndup(&headers->arena, name, strlen(name))};
    rest += strspn(rest, " ");
    const size_t n_dtype = strcspn(rest, " ");
    return fq_dtype_from_name(&tensor->dtype, rest, n_dtype) &&
           header_read_shape(tensor, &headers->arena, rest + n_dtype + strspn(rest + n_dtype, " "));
}

// Adds the tensors of a line "model.layers.{0..2,5}.mlp.experts.{0..255}.w1.weight BF16 [64, 128]":
// one for each number of each set. False if the line is not of that form.
static inline bool header_add_line(header_checkpoint *headers, const char *line) {
    const char *open = strchr(line, '{');
    if (!open) {
        char name[512];
        const size_t n = strcspn(line, " ");
        if (n >= sizeof name)
            return false;
        memcpy(name, line, n);
        name[n] = '\0';
        return header_add_tensor(headers, name, line + n);
    }
    const char *close = strchr(open, '}');
    for (const char *at = open + 1; close && at < close;) {
        char *end;
        const uint64_t first = strtoull(at, &end, 10);
        uint64_t last = first;
        if (strncmp(end, "..", 2) == 0)
            last = strtoull(end + 2, &end, 10);
        if (end == at || (*end != ',' && *end != '}'))
            return false;
        for (uint64_t i = first; i <= last; i++) {
            fq_arena scratch = {0};
            const char *expanded = fq_arena_printf(&scratch, "%.*s%llu%s", (int)(open - line), line,
                                                   (unsigned long long)i, close + 1);
            const bool ok = header_add_line(headers, expanded);
            fq_arena_free(&scratch);
            if (!ok)
                return false;
        }
        at = end + 1;
    }
    return close != NULL;
}

// Adds every line of a text; blank ones and those that start with # aside.
static inline bool header_add_text(header_checkpoint *headers, const char *text) {
    while (*text) {
        const size_t n = strcspn(text, "\n");
        char *line = fq_arena_strndup(&headers->arena, text, n);
        if (n > 0 && *line != '#' && !header_add_line(headers, line))
            return false;
        text += n + (text[n] == '\n');
    }
    return true;
}

// Ends the making: the shard and the index of names.
static inline void header_finish(header_checkpoint *headers) {
    headers->shard = (fq_shard){
        .name = "model.safetensors", .tensors = headers->tensors, .n_tensors = headers->n};
    headers->checkpoint = (fq_checkpoint){
        .path = "model", .is_folder = true, .shards = &headers->shard, .n_shards = 1};
    const fq_tensor *duplicate;
    fq_error err = {0};
    fq_checkpoint_index(&headers->checkpoint, &headers->arena, &duplicate, &err);
}

static inline void header_free(header_checkpoint *headers) {
    free(headers->tensors);
    fq_arena_free(&headers->arena);
}

#endif
