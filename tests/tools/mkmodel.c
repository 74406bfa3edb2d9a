// Writes small safetensors files and model folders for tests, from a few lines of text:
//
//     mkmodel OUT < SPEC
//
//     file NAME                       a shard of the folder OUT; without any, OUT is one file
//     meta KEY VALUE                  an entry of its __metadata__
//     tensor NAME DTYPE SHAPE FILL... SHAPE as 128x256, or - for a scalar
//     text NAME TEXT                  a text file; the rest of the line and a newline
//     index                           model.safetensors.index.json over the shards so far
//
// A FILL is a number, random:SEED (about normal, deviation 0.02), byte:N, or INDEX=NUMBER (one
// element) after another one. Names and values go into the JSON as they are, so they may hold JSON
// escapes. It is independent of the library's writer, which it serves to test.
#include "lib/fp8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct text {
    char bytes[1 << 20];
    size_t n;
} text;

typedef struct shard {
    char name[256];
    text header, metadata;
    unsigned char *data;
    size_t nbytes;
} shard;

static const char *out_path;
static bool is_folder;
static shard current;
static text weight_map;
static uint64_t total_size;

static void fail(const char *what, const char *detail) {
    fprintf(stderr, "mkmodel: %s: %s\n", what, detail);
    exit(1);
}

static void put(text *out, const char *a, const char *b, const char *c) {
    const int n = snprintf(out->bytes + out->n, sizeof out->bytes - out->n, "%s%s%s", a, b, c);
    if (n < 0 || (size_t)n >= sizeof out->bytes - out->n)
        fail("no room for", b);
    out->n += (size_t)n;
}

static FILE *open_output(const char *name) {
    char path[1024];
    if (is_folder)
        snprintf(path, sizeof path, "%s/%s", out_path, name);
    else
        snprintf(path, sizeof path, "%s", out_path);
    FILE *file = fopen(path, "wb");
    if (!file)
        fail(path, strerror(errno));
    return file;
}

static void close_output(FILE *file) {
    if (ferror(file) || fclose(file) != 0)
        fail(out_path, "write error");
}

static void finish_shard(void) {
    if (!*current.name)
        return;
    text *header = &current.header;
    put(header, "}", "", "");
    while (header->n % 8 != 0)
        put(header, " ", "", "");
    const uint64_t n = header->n;
    FILE *file = open_output(current.name);
    fwrite(&n, sizeof n, 1, file);
    fwrite(header->bytes, 1, header->n, file);
    fwrite(current.data, 1, current.nbytes, file);
    close_output(file);
    total_size += current.nbytes;
    free(current.data);
    memset(&current, 0, sizeof current);
}

static void begin_shard(const char *name) {
    finish_shard();
    snprintf(current.name, sizeof current.name, "%s", name);
    put(&current.header, "{", "", "");
}

// ---- Values

static size_t element_size(const char *dtype) {
    const char *bits = strpbrk(dtype, "0123456789");
    const int n = strcmp(dtype, "BOOL") == 0 ? 8 : bits ? atoi(bits) : 0;
    if (n < 8)
        fail("dtype", dtype);
    return (size_t)n / 8;
}

static void store(unsigned char *at, const char *dtype, double value) {
    bool saturated = false;
    const float single = (float)value;
    uint16_t half = 0;
    if (strcmp(dtype, "F64") == 0) {
        memcpy(at, &value, 8);
    } else if (strcmp(dtype, "F32") == 0) {
        memcpy(at, &single, 4);
    } else if (strcmp(dtype, "BF16") == 0) {
        half = (uint16_t)(fq_bits_of_f32(single) >> 16); // Inf stays Inf
        if (single - single == 0)
            half = fq_bf16_of_f32_sat(single, &saturated);
        memcpy(at, &half, 2);
    } else if (strcmp(dtype, "F16") == 0) {
        half = fq_f16_of_f32_sat(single, &saturated);
        memcpy(at, &half, 2);
    } else if (strcmp(dtype, "F8_E4M3") == 0) {
        *at = fq_e4m3_of_f32_sat(single);
    } else {
        const int64_t integer = (int64_t)value;
        memcpy(at, &integer, element_size(dtype));
    }
}

// About normal: a sum of twelve uniform numbers.
static double next_random(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) * 0x1p-53;
    }
    return 0.02 * sum;
}

static void fill(unsigned char *at, size_t n, const char *dtype, const char *what) {
    const size_t size = element_size(dtype);
    const char *equals = strchr(what, '=');
    if (strncmp(what, "byte:", 5) == 0) {
        memset(at, (int)strtol(what + 5, NULL, 0), n * size);
    } else if (strncmp(what, "random:", 7) == 0) {
        uint64_t state = strtoull(what + 7, NULL, 0);
        for (size_t i = 0; i < n; i++)
            store(at + i * size, dtype, next_random(&state));
    } else if (equals) {
        store(at + strtoull(what, NULL, 0) * size, dtype, strtod(equals + 1, NULL));
    } else {
        for (size_t i = 0; i < n; i++)
            store(at + i * size, dtype, strtod(what, NULL));
    }
}

// ---- Lines

static void add_tensor(char *rest) {
    char *save = NULL;
    const char *name = strtok_r(rest, " ", &save), *dtype = strtok_r(NULL, " ", &save);
    char *shape = strtok_r(NULL, " ", &save);
    if (!shape)
        fail("tensor lacks a shape", name ? name : "");
    if (!*current.name)
        begin_shard("model.safetensors");
    char numbers[512];
    size_t n = 1;
    if (strcmp(shape, "-") == 0)
        *shape = '\0';
    for (char *dim = shape; *dim;) {
        n *= strtoull(dim, &dim, 10);
        if (*dim)
            *dim++ = ',';
    }
    const size_t nbytes = n * element_size(dtype);
    current.data = realloc(current.data, current.nbytes + nbytes + 1);
    if (!current.data)
        fail(name, "out of memory");
    memset(current.data + current.nbytes, 0, nbytes);
    for (char *what = strtok_r(NULL, " ", &save); what; what = strtok_r(NULL, " ", &save))
        fill(current.data + current.nbytes, n, dtype, what);
    snprintf(numbers, sizeof numbers, "\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", shape,
             current.nbytes, current.nbytes + nbytes);
    put(&current.header, current.header.n > 1 ? ",\"" : "\"", name, "\":{\"dtype\":\"");
    put(&current.header, dtype, numbers, "");
    put(&weight_map, weight_map.n ? ",\n    \"" : "\n    \"", name, "\": \"");
    put(&weight_map, current.name, "\"", "");
    current.nbytes += nbytes;
}

static void add_metadata(char *rest) {
    char *value = strchr(rest, ' ');
    if (!*current.name)
        begin_shard("model.safetensors");
    if (!value || current.header.n > 1)
        fail("meta goes before tensor, with a key and a value", rest);
    *value++ = '\0';
    put(&current.metadata, current.metadata.n ? ",\"" : "\"", rest, "\":\"");
    put(&current.metadata, value, "\"", "");
}

static void end_metadata(void) {
    if (current.metadata.n && current.header.n == 1)
        put(&current.header, "\"__metadata__\":{", current.metadata.bytes, "}");
}

static void write_text(char *rest) {
    char *content = strchr(rest, ' ');
    if (!content)
        fail("text lacks a content", rest);
    *content++ = '\0';
    FILE *file = open_output(rest);
    fprintf(file, "%s\n", content);
    close_output(file);
}

static void write_index(void) {
    finish_shard();
    FILE *file = open_output("model.safetensors.index.json");
    fprintf(file,
            "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n  \"weight_map\": {%s\n  }\n}\n",
            total_size, weight_map.bytes);
    close_output(file);
}

static void take_line(char *line) {
    line[strcspn(line, "\n")] = '\0';
    char *rest = strchr(line, ' ');
    if (rest)
        *rest++ = '\0';
    if (*line == '\0' || *line == '#')
        return;
    if (!is_folder && (strcmp(line, "file") == 0 || strcmp(line, "text") == 0)) {
        is_folder = true;
        if (mkdir(out_path, 0777) != 0 && errno != EEXIST)
            fail(out_path, strerror(errno));
    }
    if (strcmp(line, "file") == 0 && rest) {
        begin_shard(rest);
    } else if (strcmp(line, "meta") == 0 && rest) {
        add_metadata(rest);
    } else if (strcmp(line, "tensor") == 0 && rest) {
        end_metadata();
        add_tensor(rest);
    } else if (strcmp(line, "text") == 0 && rest) {
        write_text(rest);
    } else if (strcmp(line, "index") == 0) {
        write_index();
    } else {
        fail("unknown line", line);
    }
}

int main(int argc, char **argv) {
    static char line[1 << 16];
    if (argc != 2)
        fail("usage", "mkmodel OUT < SPEC");
    out_path = argv[1];
    while (fgets(line, sizeof line, stdin))
        take_line(line);
    end_metadata();
    finish_shard();
    return 0;
}
