// Reads the tensors of tests/data/golden: just enough of safetensors for these files.
#ifndef FQ_TESTS_KERNELS_GOLDEN_H
#define FQ_TESTS_KERNELS_GOLDEN_H

#include "lib/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A tensor of a golden file. The data are the caller's, to free.
typedef struct golden {
    uint64_t rows, cols; // a vector has one row
    size_t n;            // elements
    fq_dtype dtype;
    void *data; // 64-byte aligned
} golden;

static inline void golden_fail(const char *path, const char *what) {
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

// The header without its spaces, NUL-terminated, to free. The file is left at the first byte of
// the data.
static inline char *golden_header(FILE *file, const char *path) {
    uint8_t length[8];
    if (fread(length, 1, 8, file) != 8)
        golden_fail(path, "no header");
    const size_t n = length[0] | (size_t)length[1] << 8; // these headers are small
    char *header = calloc(n + 1, 1);
    if (!header || fread(header, 1, n, file) != n)
        golden_fail(path, "no header");
    char *end = header;
    for (const char *c = header; *c; c++) {
        if (*c != ' ')
            *end++ = *c;
    }
    *end = '\0';
    return header;
}

// Reads tensor NAME of data/golden/FILE.safetensors. Ends the program if it is not there.
static inline golden golden_read(const char *file_name, const char *name) {
    golden out = {0};
    char path[256], key[64], dtype[16] = "";
    unsigned long shape[2] = {0}, begin = 0, end = 0;
    snprintf(path, sizeof path, "data/golden/%s.safetensors", file_name);
    snprintf(key, sizeof key, "\"%s\":{\"dtype\":\"", name);
    FILE *file = fopen(path, "rb");
    if (!file)
        golden_fail(path, "cannot be opened; run this in the folder tests");
    char *header = golden_header(file, path);
    const char *at = strstr(header, key);
    if (!at)
        golden_fail(path, name);
    at += strlen(key);
    static const char offsets[] = "],\"data_offsets\":[%lu,%lu]";
    char format[64];
    snprintf(format, sizeof format, "%%15[A-Z0-9_]\",\"shape\":[%%lu,%%lu%s", offsets);
    if (sscanf(at, format, dtype, &shape[0], &shape[1], &begin, &end) != 5) {
        snprintf(format, sizeof format, "%%15[A-Z0-9_]\",\"shape\":[%%lu%s", offsets);
        if (sscanf(at, format, dtype, &shape[1], &begin, &end) != 4)
            golden_fail(path, "a header of another form");
        shape[0] = 1;
    }
    out.rows = shape[0];
    out.cols = shape[1];
    out.n = shape[0] * shape[1];
    const size_t nbytes = end - begin;
    if (!fq_dtype_from_name(&out.dtype, dtype, strlen(dtype)) ||
        nbytes != out.n * fq_dtype_bits(out.dtype) / 8)
        golden_fail(path, "dtype, shape and offsets do not agree");
    if (posix_memalign(&out.data, 64, nbytes) != 0 || fseek(file, (long)begin, SEEK_CUR) != 0 ||
        fread(out.data, 1, nbytes, file) != nbytes)
        golden_fail(path, "the data cannot be read");
    fclose(file);
    free(header);
    return out;
}

#endif
