// A header is untrusted and everything is computed from it: every rule of the format has a good
// and a bad header here, and what is written must be read again as it was.
#include "formats/safetensors.h"

#include "tests/check.h"
#include "tests/memory_source.h"

#include <stdlib.h>

// ---- Files in memory

static void put_length(unsigned char out[8], uint64_t length) {
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(length >> 8 * i);
}

// Reads a file of that header, with that length announced and that many bytes of data.
static fq_status read_framed(fq_shard *out, fq_arena *arena, const char *json, size_t json_nbytes,
                             uint64_t length, size_t data_nbytes, fq_error *err) {
    const size_t nbytes = 8 + json_nbytes + data_nbytes;
    unsigned char *file = calloc(1, nbytes);
    put_length(file, length);
    memcpy(file + 8, json, json_nbytes);
    memory_source memory = memory_source_of("F", file, nbytes);
    const fq_status status = fq_safetensors_read(out, arena, &memory.source, 7, err);
    free(file);
    return status;
}

static fq_status read_json(fq_shard *out, fq_arena *arena, const char *json, size_t data_nbytes,
                           fq_error *err) {
    return read_framed(out, arena, json, strlen(json), strlen(json), data_nbytes, err);
}

static void check_accepted(const char *json, size_t data_nbytes, size_t n_tensors) {
    fq_arena arena = {0};
    fq_shard shard = {0};
    fq_error err = {0};
    if (!CHECK(read_json(&shard, &arena, json, data_nbytes, &err) == FQ_OK))
        fprintf(stderr, "    %s\n    %s\n", json, err.text);
    CHECK_U64(shard.n_tensors, n_tensors);
    fq_arena_free(&arena);
}

static void check_refused(const char *json, size_t data_nbytes, const char *mention) {
    fq_arena arena = {0};
    fq_shard shard = {0};
    fq_error err = {0};
    if (!CHECK(read_json(&shard, &arena, json, data_nbytes, &err) == FQ_BAD_INPUT))
        fprintf(stderr, "    %s\n", json);
    CHECK(err.status == FQ_BAD_INPUT);
    CHECK(strncmp(err.text, "F: ", 3) == 0);
    CHECK_HAS(err.text, mention);
    CHECK(shard.tensors == NULL && shard.metadata == NULL && shard.data_start == 0);
    fq_arena_free(&arena);
}

// ---- What is read

static void test_fields(void) {
    const char json[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                        "\"__metadata__\":{\"z\":\"1\",\"a\":\"\\u00e9\"},"
                        "\"a\":{\"data_offsets\":[0,4],\"sh\\u0061pe\":[2],\"dtype\":\"BF16\"}}";
    fq_arena arena = {0};
    fq_shard shard = {0};
    fq_error err = {0};
    CHECK(read_json(&shard, &arena, json, 28, &err) == FQ_OK);
    CHECK_U64(shard.data_start, 8 + strlen(json));
    CHECK_U64(shard.data_nbytes, 28);
    CHECK_U64(shard.n_metadata, 2);
    CHECK_STR(shard.metadata[0].key, "a");
    CHECK_STR(shard.metadata[0].value, "\xC3\xA9");
    CHECK_STR(shard.metadata[1].key, "z");
    CHECK_U64(shard.n_tensors, 2);
    const fq_tensor *a = &shard.tensors[0], *b = &shard.tensors[1]; // by offset, not as listed
    CHECK_STR(a->name, "a");
    CHECK(a->dtype == FQ_BF16 && a->rank == 1 && a->shape[0] == 2 && a->offset == 0);
    CHECK_U64(a->nbytes, 4);
    CHECK_STR(b->name, "b");
    CHECK(b->dtype == FQ_F32 && b->rank == 2 && b->shape[0] == 2 && b->shape[1] == 3);
    CHECK_U64(b->offset, 4);
    CHECK_U64(b->nbytes, 24);
    CHECK_U64(b->shard, 7);
    fq_arena_free(&arena);
}

static void test_every_dtype(void) {
    for (int d = 0; d < FQ_DTYPE_COUNT; d++) {
        char json[128];
        const unsigned nbytes = fq_dtype_bits((fq_dtype)d);
        snprintf(json, sizeof json,
                 "{\"w\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]}}",
                 fq_dtype_name((fq_dtype)d), nbytes);
        check_accepted(json, nbytes, 1);
    }
}

#define ENTRY(shape, begin, end)                                                                   \
    "{\"dtype\":\"BF16\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define TENSOR(name, shape, begin, end) "\"" name "\":" ENTRY(shape, begin, end)

static void test_accepted(void) {
    check_accepted("{}", 0, 0);
    check_accepted(" \t\r\n{ } \n", 0, 0);
    check_accepted("{\"__metadata__\":{}}", 0, 0);
    check_accepted("{\"__metadata__\":null}", 0, 0);
    check_accepted("{\"__metadata__\":{\"dtype\":\"x\",\"shape\":\"y\"}}", 0, 0);
    check_accepted("{" TENSOR("w", "[2,3]", "0", "12") "}", 12, 1);
    check_accepted("{" TENSOR("", "[]", "0", "2") "}", 2, 1);
    check_accepted("{" TENSOR("../x/\\n\\u001b", "[1]", "0", "2") "}", 2, 1);
    check_accepted("{" TENSOR("__metadata__ ", "[1]", "0", "2") "}", 2, 1);
    check_accepted("{" TENSOR("W", "[1]", "0", "2") "," TENSOR("w", "[1]", "2", "4") "}", 4, 2);
    check_accepted("{" TENSOR("w", "[1,1,1,1,1]", "0", "2") "}", 2, 1);
    // Unknown fields, of any kind
    check_accepted("{\"w\":{\"dtype\":\"U8\",\"x\":[1e308,[null,{\"y\":-1.5}]],\"shape\":[1],"
                   "\"data_offsets\":[0,1],\"z\":true,\"s\":\"\\u0000\"}}",
                   1, 1);
    // Tensors of 0 bytes lie on any boundary, several on one
    check_accepted("{" TENSOR("z", "[0]", "0", "0") "," TENSOR("w", "[1]", "0", "2") "}", 2, 2);
    check_accepted("{" TENSOR("w", "[1]", "0", "2") "," TENSOR("z", "[128,0]", "2", "2") "}", 2, 2);
    check_accepted("{" TENSOR("w", "[1]", "0", "2") "," TENSOR("y", "[0]", "2", "2") "," TENSOR(
                       "z", "[0]", "2", "2") "," TENSOR("v", "[1]", "2", "4") "}",
                   4, 4);
    check_accepted("{" TENSOR("z", "[0,9223372036854775807,4]", "0", "0") "}", 0, 1);
}

// ---- Rules of one entry

static void test_json_rules(void) {
    check_refused("", 0, "header: line 1, column 1");
    check_refused("{", 0, "header");
    check_refused("[]", 0, "object");
    check_refused("null", 0, "object");
    check_refused("\"\"", 0, "object");
    check_refused("5", 0, "object");
    check_refused("{}}", 0, "goes on");
    check_refused("{\"a\":NaN}", 0, "NaN");
    check_refused("{" TENSOR("w", "[1]", "0", "2") ",}", 2, "key");
    check_refused("{" TENSOR("a", "[1]", "0", "2") "," TENSOR("\\u0061", "[1]", "2", "4") "}", 4,
                  "twice");
    check_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
    check_refused("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "twice");
    check_refused(
        "{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        "\"dtype\" is there twice");
    check_refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1e999}}", 1,
                  "doubles");
}

static void test_entry_rules(void) {
    check_refused("{\"w\":5}", 0, "w: the entry is no object");
    check_refused("{\"w\":null}", 0, "w: the entry is no object");
    check_refused("{\"w\":[\"BF16\",[1],[0,2]]}", 2, "w: the entry is no object");
    check_refused("{\"w\":{\"shape\":[1],\"data_offsets\":[0,2]}}", 2, "w: dtype is missing");
    check_refused("{\"w\":{\"dtype\":\"BF16\",\"data_offsets\":[0,2]}}", 2, "shape is missing");
    check_refused("{\"w\":{\"dtype\":\"BF16\",\"shape\":[1]}}", 2, "data_offsets is missing");
    check_refused("{\"w\":{}}", 2, "dtype is missing");
    // What one entry lacks is not taken from the one before it
    check_refused(
        "{" TENSOR("v", "[1]", "0", "2") ",\"w\":{\"dtype\":\"U8\",\"data_offsets\":[2,3]}}", 3,
        "w: shape is missing");
    static const char *const dtypes[] = {
        "\"bf16\"", "\"F8\"",          "\"BF16 \"",  "\"float32\"",     "\"\"",    "5",
        "null",     "{\"BF16\":null}", "[\"BF16\"]", "\"BF16\\u0000\"", "\"C128\""};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        char json[128];
        snprintf(json, sizeof json, "{\"w\":{\"dtype\":%s,\"shape\":[1],\"data_offsets\":[0,2]}}",
                 dtypes[i]);
        check_refused(json, 2, "w: the dtype");
    }
}

static void test_shape_rules(void) {
    static const char *const shapes[] = {
        "[-1]",
        "[1.0]",
        "[1e0]",
        "[-0]",
        "[\"1\"]",
        "[null]",
        "[true]",
        "[[1]]",
        "{}",
        "1",
        "null",
        "\"[1]\"",
        "[{}]",
        "[18446744073709551616]",
        "[1.00000000000000001]",
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char json[128];
        snprintf(json, sizeof json,
                 "{\"w\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[0,2]}}", shapes[i]);
        check_refused(json, 2, "w: the shape");
    }
    // Products: [2^63+3, 2] wraps to 6, [2^63-1, 4, 0] overflows before the 0, 2^62·16 bits wrap
    check_refused("{" TENSOR("w", "[9223372036854775811,2]", "0", "12") "}", 12, "overflows");
    check_refused("{" TENSOR("w", "[9223372036854775807,4,0]", "0", "0") "}", 0, "overflows");
    check_refused("{" TENSOR("w", "[4611686018427387904]", "0", "0") "}", 0, "overflows");
    check_refused("{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "whole");
    check_refused("{\"w\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
                  "whole");
    check_refused("{" TENSOR("w", "[2]", "0", "2") "}", 2, "need 4 bytes, data_offsets give 2");
    check_refused("{" TENSOR("w", "[0]", "0", "2") "}", 2, "need 0 bytes");
}

static void test_rank(void) {
    for (int rank = 64; rank <= 65; rank++) {
        char json[512] = "{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1";
        for (int i = 1; i < rank; i++)
            strcat(json, ",1");
        strcat(json, "]}}");
        if (rank == 64)
            check_accepted(json, 1, 1);
        else
            check_refused(json, 1, "64 dimensions");
    }
}

static void test_offset_rules(void) {
    static const char *const offsets[] = {
        "[]",
        "[0]",
        "[0,2,2]",
        "[-0,2]",
        "[0.0,2.0]",
        "[0,2e0]",
        "[0,1e308]",
        "[\"0\",\"2\"]",
        "[0,18446744073709551618]",
        "[[0,2]]",
        "{}",
        "null",
        "2",
        "[null,2]",
    };
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        char json[128];
        snprintf(json, sizeof json,
                 "{\"w\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":%s}}", offsets[i]);
        check_refused(json, 2, "w: data_offsets");
    }
    check_refused("{" TENSOR("w", "[1]", "2", "0") "}", 2, "end before");
    // 2^53+1: a double would make it 2^53
    check_refused("{" TENSOR("w", "[1]", "9007199254740993", "9007199254740995") "}", 2,
                  "starts at");
}

static void test_metadata_rules(void) {
    static const char *const values[] = {"1", "null", "true", "{}", "[]", "[\"a\"]"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char json[128];
        snprintf(json, sizeof json, "{\"__metadata__\":{\"k\":%s}}", values[i]);
        check_refused(json, 0, "__metadata__: a value is no string");
    }
    check_refused("{\"__metadata__\":\"x\"}", 0, "__metadata__");
    check_refused("{\"__metadata__\":[]}", 0, "__metadata__");
    check_refused("{" TENSOR("__metadata__", "[1]", "0", "2") "}", 2, "__metadata__");
    check_refused("{\"__metadata__\":{\"a\\u0000b\":\"\"}}", 0, "NUL");
}

static void test_names(void) {
    check_refused("{" TENSOR("a\\u0000b", "[1]", "0", "2") "}", 2, "NUL");
    const size_t longest = FQ_SAFETENSORS_MAX_NAME;
    for (size_t n = longest; n <= longest + 1; n++) {
        char *json = malloc(n + 128);
        strcpy(json, "{\"");
        memset(json + 2, 'n', n);
        strcpy(json + 2 + n, "\":" ENTRY("[1]", "0", "2") "}");
        if (n == longest)
            check_accepted(json, 2, 1);
        else
            check_refused(json, 2, "65536 bytes");
        free(json);
    }
}

// ---- Rules of the whole

static void test_coverage(void) {
    check_refused("{" TENSOR("w", "[1]", "2", "4") "}", 4, "w: starts at byte 2");
    check_refused("{" TENSOR("a", "[1]", "0", "2") "," TENSOR("b", "[1]", "4", "6") "}", 6,
                  "b: starts at byte 4");
    check_refused("{" TENSOR("a", "[2]", "0", "4") "," TENSOR("b", "[2]", "2", "6") "}", 6,
                  "b: overlaps a");
    check_refused("{" TENSOR("a", "[1]", "0", "2") "," TENSOR("b", "[1]", "0", "2") "}", 2,
                  "overlaps");
    // A tensor of 0 bytes inside another, and one beyond the end
    check_refused("{" TENSOR("a", "[2]", "0", "4") "," TENSOR("z", "[0]", "2", "2") "}", 4,
                  "z: overlaps a");
    check_refused("{" TENSOR("a", "[1]", "0", "2") "," TENSOR("z", "[0]", "3", "3") "}", 2,
                  "z: starts at byte 3");
    check_refused("{" TENSOR("a", "[1]", "0", "2") "}", 1, "1 bytes are missing");
    check_refused("{" TENSOR("a", "[1]", "0", "2") "}", 0, "2 bytes are missing");
    check_refused("{" TENSOR("a", "[1]", "0", "2") "}", 3, "the last 1 bytes belong to no tensor");
    check_refused("{}", 1, "belong to no tensor");
    // A size that wraps past 2^64
    check_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[7],"
                  "\"data_offsets\":[18446744073709551615,6]}}",
                  0, "a: data_offsets end before they begin");
}

static void check_length(uint64_t length, size_t json_nbytes, fq_status expected,
                         const char *mention) {
    char *json = malloc(json_nbytes + 1);
    memset(json, ' ', json_nbytes);
    memcpy(json, "{}", json_nbytes < 2 ? json_nbytes : 2);
    fq_arena arena = {0};
    fq_shard shard = {0};
    fq_error err = {0};
    CHECK(read_framed(&shard, &arena, json, json_nbytes, length, 0, &err) == expected);
    if (expected != FQ_OK)
        CHECK_HAS(err.text, mention);
    fq_arena_free(&arena);
    free(json);
}

static void test_length(void) {
    check_length(2, 2, FQ_OK, NULL);
    check_length(0, 2, FQ_BAD_INPUT, "ends early");
    check_length(1, 2, FQ_BAD_INPUT, "key");
    check_length(3, 2, FQ_BAD_INPUT, "is cut short");
    check_length(UINT64_C(1) << 32 | 2, 2, FQ_BAD_INPUT, "at most");
    check_length(UINT64_C(1) << 63, 2, FQ_BAD_INPUT, "at most");
    check_length(UINT64_MAX - 7, 2, FQ_BAD_INPUT, "at most");
    check_length(UINT64_C(2) << 56, 2, FQ_BAD_INPUT, "at most"); // big-endian
    check_length(FQ_SAFETENSORS_MAX_HEADER, FQ_SAFETENSORS_MAX_HEADER, FQ_OK, NULL);
    check_length(FQ_SAFETENSORS_MAX_HEADER + 1, FQ_SAFETENSORS_MAX_HEADER + 1, FQ_BAD_INPUT,
                 "at most 100000000");
}

static void test_foreign_formats(void) {
    static const struct {
        const char *start;
        const char *mention;
    } files[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git LFS pointer"},
        {"<!DOCTYPE html><html>", "web page"},
        {"{\"error\":\"not found\"}", "JSON"},
        {"GGUF\3\1\1\1\1\1\1\1", "GGUF"},
        {"PK\3\4\24\1\10\10\10\1\1\1", "PyTorch"},
        {"\x80\4\x95\x60\1\1\1\1\1\1\1", "pickle"},
        {"\x80\x02\x8A\x0Al\xFC\x9C"
         "F\xF9 j\xA8",
         "pickle"},
        {"\x89HDF\r\n\x1A\n", "HDF5"},
        {"\x28\xB5\x2F\xFD\x24\x10\x81\1", "zstd -d"},
        {"\x1F\x8B\x08\x08"
         "abcdefgh",
         "gzip"},
        {"nonsense", "is this a safetensors file?"},
        {"short", "5 bytes are too few"},
        {"", "0 bytes are too few"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        memory_source memory = memory_source_of("F", files[i].start, strlen(files[i].start));
        fq_arena arena = {0};
        fq_shard shard = {0};
        fq_error err = {0};
        CHECK(fq_safetensors_read(&shard, &arena, &memory.source, 0, &err) == FQ_BAD_INPUT);
        CHECK_HAS(err.text, files[i].mention);
        fq_arena_free(&arena);
    }
}

static fq_status fail_read(fq_source *source, uint64_t offset, void *out, size_t nbytes,
                           fq_error *err) {
    (void)nbytes;
    if (offset == 0) // the length
        memcpy(out, "\2\0\0\0\0\0\0", 8);
    return offset == 0 ? FQ_OK : fq_fail(err, FQ_IO, "%s: broken", source->name);
}

// A read that fails is no fault of the format.
static void test_read_error(void) {
    fq_source source = {.read = fail_read, .name = "F", .nbytes = 10};
    fq_arena arena = {0};
    fq_shard shard = {0};
    fq_error err = {0};
    CHECK(fq_safetensors_read(&shard, &arena, &source, 0, &err) == FQ_IO);
    CHECK_STR(err.text, "F: broken");
    fq_arena_free(&arena);
}

// ---- Writing

static void check_written(const fq_shard *layout, const char *expected) {
    char *header = NULL;
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_safetensors_header(&header, &nbytes, layout, &err) == FQ_OK);
    CHECK_U64(nbytes % 8, 0);
    CHECK_U64(nbytes, 8 + strlen(expected));
    unsigned char length[8];
    put_length(length, nbytes - 8);
    CHECK(header && memcmp(header, length, 8) == 0);
    CHECK(header && strncmp(header + 8, expected, nbytes - 8) == 0);
    free(header);
}

static void test_written_bytes(void) {
    const uint64_t shape[] = {3, 4};
    fq_tensor tensors[] = {
        {.name = "a", .dtype = FQ_F8_E4M3, .rank = 2, .shape = shape, .nbytes = 12, .offset = 0},
        {.name = "\"\n\xC3\xA9", .dtype = FQ_F32, .rank = 0, .nbytes = 4, .offset = 12},
    };
    fq_metadata metadata[] = {{"a", "1"}, {"z", "x\xC0\x80y"}};
    fq_shard layout = {.name = "F"};
    check_written(&layout, "{\"__metadata__\":{\"format\":\"pt\"}}");
    layout.metadata = metadata;
    layout.n_metadata = 2;
    layout.tensors = tensors;
    layout.n_tensors = 2;
    check_written(
        &layout, "{\"__metadata__\":{\"a\":\"1\",\"format\":\"pt\",\"z\":\"x\\u0000y\"},"
                 "\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,4],\"data_offsets\":[0,12]},"
                 "\"\\\"\\u000a\\u00e9\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]}}"
                 "  ");
    metadata[1] = (fq_metadata){"format", "np"};
    layout.n_tensors = 0;
    check_written(&layout, "{\"__metadata__\":{\"a\":\"1\",\"format\":\"np\"}}");
}

// Reading what was written gives the same layout, and writing that the same bytes.
static void test_round_trip(void) {
    const char json[] =
        "{\"__metadata__\":{\"k\":\"a\\u0000\\u001b\\ud83d\\ude00\"},"
        "\"z\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[2,2]},"
        "\"\xE5\xB1\x82.0\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]},"
        "\"\\u007f\":{\"dtype\":\"F4\",\"shape\":[1,6],\"data_offsets\":[2,5]}}";
    fq_arena arena = {0};
    fq_shard first = {.name = "F"}, second = {.name = "F"};
    fq_error err = {0};
    char *header = NULL, *again = NULL;
    size_t nbytes = 0, again_nbytes = 0;
    CHECK(read_json(&first, &arena, json, 5, &err) == FQ_OK);
    CHECK(fq_safetensors_header(&header, &nbytes, &first, &err) == FQ_OK);
    CHECK(read_framed(&second, &arena, header + 8, nbytes - 8, nbytes - 8, 5, &err) == FQ_OK);
    CHECK(fq_safetensors_header(&again, &again_nbytes, &second, &err) == FQ_OK);
    CHECK(nbytes == again_nbytes && memcmp(header, again, nbytes) == 0);
    CHECK_U64(second.n_tensors, 3);
    CHECK_STR(second.tensors[1].name, "z");
    CHECK_STR(second.tensors[2].name, "\x7F");
    CHECK_U64(second.n_metadata, 2);
    CHECK_STR(second.metadata[1].value, "a\xC0\x80\x1B\xF0\x9F\x98\x80");
    free(header);
    free(again);
    fq_arena_free(&arena);
}

static void test_header_too_large(void) {
    enum { N = 1600 };
    char *name = malloc(FQ_SAFETENSORS_MAX_NAME + 1);
    memset(name, 'n', FQ_SAFETENSORS_MAX_NAME);
    name[FQ_SAFETENSORS_MAX_NAME] = '\0';
    fq_tensor *tensors = calloc(N, sizeof *tensors);
    for (int i = 0; i < N; i++)
        tensors[i] = (fq_tensor){.name = name, .dtype = FQ_U8};
    const fq_shard layout = {.name = "F", .tensors = tensors, .n_tensors = N};
    char *header = NULL;
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_safetensors_header(&header, &nbytes, &layout, &err) == FQ_BAD_INPUT);
    CHECK(header == NULL);
    CHECK_HAS(err.text, "F: the header would have");
    free(tensors);
    free(name);
}

int main(void) {
    test_fields();
    test_every_dtype();
    test_accepted();
    test_json_rules();
    test_entry_rules();
    test_shape_rules();
    test_rank();
    test_offset_rules();
    test_metadata_rules();
    test_names();
    test_coverage();
    test_length();
    test_foreign_formats();
    test_read_error();
    test_written_bytes();
    test_round_trip();
    test_header_too_large();
    return check_result();
}
