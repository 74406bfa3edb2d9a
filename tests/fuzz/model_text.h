// A model as text, for the targets that need a checkpoint: a line of options, then its files.
//
//     convert pow2 +*.bias -*.0.*
//     == config.json
//     {"hidden_size": 128}
//     == model.safetensors
//     X.weight BF16 128x256
//     X.bias F32 128 0000c07f
//
// A shard is lines NAME DTYPE SHAPE [HEX], SHAPE without digits for a scalar, HEX the bytes that
// the data repeat; offsets and the length of the header are made right. One that starts with { is a
// header as it stands, with data to its last offset; one that starts with < is a whole file.
#ifndef FQ_TESTS_MODEL_TEXT_H
#define FQ_TESTS_MODEL_TEXT_H

#include "formats/safetensors.h"
#include "lib/names.h"

#include "fuzz.h"

#include <string.h>

enum { MODEL_MAX_PARTS = 8, MODEL_MAX_WORDS = 8, MODEL_MAX_TENSORS = 64 };

// Borrowed bytes, not NUL-terminated.
typedef struct model_bytes {
    const char *at;
    size_t n;
} model_bytes;

typedef struct model_part {
    const char *name; // one of model_names
    model_bytes text;
} model_part;

typedef struct model_text {
    const char *words[MODEL_MAX_WORDS]; // of the first line
    size_t n_words;
    model_part parts[MODEL_MAX_PARTS]; // each name once
    size_t n_parts;
    fq_arena arena;
} model_text;

// The names that a part may have. No input can write elsewhere.
static const char *const model_names[] = {
    "config.json",
    "hf_quant_config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "tokenizer.json",
};

static inline bool model_is_shard(const char *name) { return fq_has_suffix(name, ".safetensors"); }

// Takes the text up to the next line break, which goes with it.
static inline model_bytes model_take_line(model_bytes *text) {
    const char *end = text->n ? memchr(text->at, '\n', text->n) : NULL;
    const model_bytes line = {text->at, end ? (size_t)(end - text->at) : text->n};
    const size_t n_taken = end ? line.n + 1 : line.n;
    text->at += n_taken;
    text->n -= n_taken;
    return line;
}

// Takes a word of a line; empty at its end.
static inline model_bytes model_take_word(model_bytes *line) {
    while (line->n > 0 && *line->at == ' ')
        line->at++, line->n--;
    const char *end = line->n ? memchr(line->at, ' ', line->n) : NULL;
    const model_bytes word = {line->at, end ? (size_t)(end - line->at) : line->n};
    line->at += word.n;
    line->n -= word.n;
    return word;
}

static inline char *model_string(model_text *model, model_bytes bytes) {
    char *string = fq_arena_strndup(&model->arena, bytes.at, bytes.n);
    DEMAND(string);
    return string;
}

static inline bool model_says(const model_text *model, const char *word) {
    for (size_t i = 0; i < model->n_words; i++) {
        if (strcmp(model->words[i], word) == 0)
            return true;
    }
    return false;
}

static inline const model_part *model_find(const model_text *model, const char *name) {
    for (size_t i = 0; i < model->n_parts; i++) {
        if (strcmp(model->parts[i].name, name) == 0)
            return &model->parts[i];
    }
    return NULL;
}

// The name in a line "== NAME", or NULL.
static inline const char *model_part_name(model_bytes line) {
    for (size_t i = 0; i < sizeof model_names / sizeof model_names[0]; i++) {
        const size_t n = strlen(model_names[i]);
        if (line.n == n + 3 && memcmp(line.at, "== ", 3) == 0 &&
            memcmp(line.at + 3, model_names[i], n) == 0)
            return model_names[i];
    }
    return NULL;
}

// Takes an input apart. Borrows it; free with fq_arena_free(&out->arena).
static inline void model_text_read(model_text *out, const uint8_t *data, size_t size) {
    model_bytes text = {(const char *)data, size};
    *out = (model_text){0};
    model_bytes line = model_take_line(&text);
    for (model_bytes word; out->n_words < MODEL_MAX_WORDS && (word = model_take_word(&line)).n;)
        out->words[out->n_words++] = model_string(out, word);
    model_bytes *part = NULL; // to which lines are added
    while (text.n > 0) {
        const char *begin = text.at;
        line = model_take_line(&text);
        const char *name = model_part_name(line);
        if (name && out->n_parts < MODEL_MAX_PARTS && !model_find(out, name)) {
            out->parts[out->n_parts] = (model_part){name, {text.at, 0}};
            part = &out->parts[out->n_parts++].text;
        } else if (part) {
            part->n += (size_t)(text.at - begin);
        }
    }
}

// ---- Shards

// The bytes of a shard's file; data may be left out, so that n is more than there is at bytes.
typedef struct model_file {
    uint8_t *bytes; // [n_there]; owned (free)
    size_t n_there;
    uint64_t n;
} model_file;

// Digits of a shape, with anything between them.
static inline void model_read_shape(fq_tensor *tensor, model_text *model, model_bytes word) {
    uint64_t *shape = fq_arena_array(&model->arena, 8, sizeof *shape);
    DEMAND(shape);
    bool in_number = false;
    for (size_t i = 0; i < word.n && tensor->rank <= 8; i++) {
        const bool is_digit = word.at[i] >= '0' && word.at[i] <= '9';
        if (is_digit && !in_number && tensor->rank == 8)
            break;
        if (is_digit && !in_number)
            tensor->rank++;
        if (is_digit)
            shape[tensor->rank - 1] = shape[tensor->rank - 1] * 10 + (uint64_t)(word.at[i] - '0');
        in_number = is_digit;
    }
    tensor->shape = shape;
}

// Reads a line into tensor; what is left of the line is its data. False for other lines.
static inline bool model_read_tensor(fq_tensor *tensor, model_text *model, model_bytes *line) {
    const model_bytes name = model_take_word(line), dtype = model_take_word(line);
    *tensor = (fq_tensor){0};
    if (name.n == 0 || !fq_dtype_from_name(&tensor->dtype, dtype.at, dtype.n))
        return false;
    tensor->name = model_string(model, name);
    model_read_shape(tensor, model, model_take_word(line));
    return fq_tensor_nbytes(&tensor->nbytes, tensor->dtype, tensor->shape, tensor->rank);
}

static inline int model_hex_digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

// Fills data with the bytes that hex says, over and over; without any with values around 1, in all
// floating dtypes and in FP8 codes, exponents and scales.
UNTRACED static inline void model_fill(uint8_t *data, const fq_tensor *tensor, model_bytes hex) {
    uint8_t pattern[64];
    size_t n = 0;
    for (size_t i = 0; i + 1 < hex.n && n < sizeof pattern; i++) {
        const int high = model_hex_digit(hex.at[i]), low = model_hex_digit(hex.at[i + 1]);
        if (high >= 0 && low >= 0) {
            pattern[n++] = (uint8_t)(high << 4 | low);
            i++;
        }
    }
    const size_t size = fq_dtype_bits(tensor->dtype) < 8 ? 1 : fq_dtype_size(tensor->dtype);
    const uint8_t sign = strstr(tensor->name, "scale") ? 0 : 0x80;
    uint32_t random = 1;
    for (uint64_t i = 0; i < tensor->nbytes; i++) {
        random = random * 1664525u + 1013904223u;
        const uint8_t byte = (uint8_t)(random >> 24);
        if (n > 0)
            data[i] = pattern[i % n];
        else if (i % size != size - 1)
            data[i] = byte;
        else
            data[i] = size == 1 ? 0x30 | (byte & 0x0F) : (uint8_t)(0x3C | (byte & (sign | 1)));
    }
}

// A file of the tensors that the lines tell, as far as they fit. Data are made up to max_nbytes of
// the file, or not at all.
static inline model_file model_file_of_lines(model_text *model, model_bytes text,
                                             uint64_t max_nbytes, bool with_data) {
    fq_tensor tensors[MODEL_MAX_TENSORS];
    model_bytes hex[MODEL_MAX_TENSORS];
    fq_shard shard = {.name = "F", .tensors = tensors};
    fq_error err = {0};
    char *header = NULL;
    size_t n = 0;
    while (text.n > 0 && shard.n_tensors < MODEL_MAX_TENSORS) {
        model_bytes line = model_take_line(&text);
        fq_tensor *tensor = &tensors[shard.n_tensors];
        if (!model_read_tensor(tensor, model, &line) ||
            tensor->nbytes > max_nbytes - shard.data_nbytes)
            continue;
        tensor->offset = shard.data_nbytes;
        shard.data_nbytes += tensor->nbytes;
        hex[shard.n_tensors++] = line;
    }
    DEMAND(fq_safetensors_header(&header, &n, &shard, &err) == FQ_OK);
    model_file file = {.n_there = n, .n = n + shard.data_nbytes};
    if (with_data)
        file.n_there = (size_t)file.n;
    file.bytes = realloc(header, file.n_there);
    DEMAND(file.bytes);
    for (size_t i = 0; i < shard.n_tensors && with_data; i++)
        model_fill(file.bytes + n + tensors[i].offset, &tensors[i], hex[i]);
    return file;
}

// The greatest number before a "]" in a header: where its data end, as a rule.
static inline uint64_t model_last_offset(model_bytes header) {
    uint64_t greatest = 0, number = 0;
    for (size_t i = 0; i < header.n; i++) {
        const char c = header.at[i];
        if (c == ']' && number > greatest)
            greatest = number;
        number = c >= '0' && c <= '9' ? number * 10 + (uint64_t)(c - '0') : 0;
    }
    return greatest;
}

static inline model_file model_file_of_header(model_bytes header, uint64_t max_nbytes,
                                              bool with_data) {
    const uint64_t last = model_last_offset(header);
    const uint64_t n_data = last < max_nbytes ? last : max_nbytes;
    model_file file = {.n_there = 8 + header.n, .n = 8 + header.n + n_data};
    if (with_data)
        file.n_there = (size_t)file.n;
    // The reader looks at the first bytes, data or not, to tell foreign files.
    file.bytes = calloc(1, file.n_there + 64);
    DEMAND(file.bytes);
    for (int i = 0; i < 8; i++)
        file.bytes[i] = (uint8_t)((uint64_t)header.n >> 8 * i);
    memcpy(file.bytes + 8, header.at, header.n);
    return file;
}

// The file of a shard's part.
static inline model_file model_make_file(model_text *model, model_bytes text, uint64_t max_nbytes,
                                         bool with_data) {
    if (text.n > 0 && *text.at == '{')
        return model_file_of_header(text, max_nbytes, with_data);
    if (text.n == 0 || *text.at != '<')
        return model_file_of_lines(model, text, max_nbytes, with_data);
    model_file file = {.bytes = malloc(text.n), .n_there = text.n - 1, .n = text.n - 1};
    DEMAND(file.bytes);
    memcpy(file.bytes, text.at + 1, file.n_there);
    return file;
}

#endif
