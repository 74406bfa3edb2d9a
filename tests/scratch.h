// A scratch folder with files, links and small models in it: for tests that need a disk.
#ifndef FQ_TESTS_SCRATCH_H
#define FQ_TESTS_SCRATCH_H

#include "formats/input.h"
#include "formats/tree.h"

#include "tests/check.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static char scratch_root[PATH_MAX];

// Makes the folder; scratch_end removes it with all that is in it.
static inline void scratch_begin(void) {
    const char *parent = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%s/fq_test_XXXXXX", parent ? parent : "/tmp");
    CHECK(mkdtemp(path) && realpath(path, scratch_root));
}

static inline void scratch_end(void) {
    fq_error err = {0};
    if (!CHECK(fq_tree_remove(AT_FDCWD, scratch_root, scratch_root, &err) == FQ_OK))
        CHECK_NOTE("%s\n", err.text);
}

// A path in the folder. The last four stay valid.
static inline const char *scratch_path(const char *name) {
    static char paths[4][2 * PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_root, name);
    return path;
}

static inline void scratch_mkdir(const char *name) { CHECK(mkdir(scratch_path(name), 0777) == 0); }

static inline void scratch_write_bytes(const char *name, const void *bytes, size_t n) {
    FILE *file = fopen(scratch_path(name), "w");
    if (CHECK(file != NULL)) {
        CHECK(fwrite(bytes, 1, n, file) == n);
        CHECK(fclose(file) == 0);
    }
}

static inline void scratch_write(const char *name, const char *text) {
    scratch_write_bytes(name, text, strlen(text));
}

static inline void scratch_symlink(const char *target, const char *name) {
    CHECK(symlink(target, scratch_path(name)) == 0);
}

static inline bool scratch_exists(const char *name) {
    struct stat st;
    return lstat(scratch_path(name), &st) == 0;
}

static inline void scratch_remove(const char *name) {
    fq_error err = {0};
    CHECK(fq_tree_remove(AT_FDCWD, scratch_path(name), name, &err) == FQ_OK);
}

// The whole text of a file, "" if it cannot be read. Valid until the next call.
static inline const char *scratch_read(const char *name) {
    static char text[8192];
    FILE *file = fopen(scratch_path(name), "r");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[n] = '\0';
    return text;
}

// Writes a safetensors file of U8 tensors of 2 bytes. names: "a b c".
static inline void scratch_shard(const char *path, const char *names) {
    char bytes[8192] = {0};
    size_t n = 8, n_tensors = 0;
    n += (size_t)sprintf(bytes + n, "{");
    for (const char *at = names; *at; n_tensors++) {
        const size_t name_nbytes = strcspn(at, " ");
        n += (size_t)sprintf(
            bytes + n, "%s\"%.*s\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}",
            n_tensors ? "," : "", (int)name_nbytes, at, 2 * n_tensors, 2 * n_tensors + 2);
        at += name_nbytes + (at[name_nbytes] == ' ');
    }
    n += (size_t)sprintf(bytes + n, "}");
    for (size_t i = 0, header_nbytes = n - 8; i < 8; i++)
        bytes[i] = (char)(header_nbytes >> 8 * i);
    memset(bytes + n, 'x', 2 * n_tensors);
    scratch_write_bytes(path, bytes, n + 2 * n_tensors);
}

// An input and what opening it said.
typedef struct scratch_input {
    fq_input input;
    fq_messages faults, warnings;
    fq_error err;
    fq_status status;
} scratch_input;

static inline void scratch_open(scratch_input *out, const char *name, const char *include_file) {
    const fq_input_options options = {.include_files = &include_file,
                                      .n_include_files = include_file != NULL};
    *out = (scratch_input){0};
    out->status = fq_input_open(&out->input, scratch_path(name), &options, &out->faults,
                                &out->warnings, &out->err);
}

static inline void scratch_close(scratch_input *in) {
    fq_messages_free(&in->faults);
    fq_messages_free(&in->warnings);
    fq_input_close(&in->input);
}

// All lines as one text. Valid until the next call.
static inline const char *scratch_lines(const fq_messages *messages) {
    static char text[16384];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = 0; i < messages->n; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", messages->lines[i]);
    return text;
}

#endif
