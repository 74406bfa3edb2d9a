// The index that goes out must name every tensor once and say the exact size, and it must be read
// again as it was meant.
#include "formats/output.h"

#include "tests/check.h"

#include <stdlib.h>

static fq_tensor tensors[] = {
    {.name = "z", .nbytes = UINT64_C(1) << 40},
    {.name = "a", .nbytes = 3},
    {.name = "\"q\"\n\303\251", .nbytes = 0},
};
static fq_plan_shard shards[] = {
    {.layout = {.name = "2.safetensors", .tensors = tensors, .n_tensors = 2}},
    {.layout = {.name = "s/1.safetensors", .tensors = tensors + 2, .n_tensors = 1}},
};
static fq_index_metadata metadata[] = {{"format", "\"pt\""}, {"k\"", "{\"x\": [1.50, null]}"}};

static const char expected[] = "{\n"
                               "  \"metadata\": {\n"
                               "    \"total_size\": 1099511627779,\n"
                               "    \"format\": \"pt\",\n"
                               "    \"k\\\"\": {\"x\": [1.50, null]}\n"
                               "  },\n"
                               "  \"weight_map\": {\n"
                               "    \"\\\"q\\\"\\u000a\\u00e9\": \"s/1.safetensors\",\n"
                               "    \"a\": \"2.safetensors\",\n"
                               "    \"z\": \"2.safetensors\"\n"
                               "  }\n"
                               "}\n";

static void test_text(void) {
    const fq_plan plan = {.shards = shards, .n_shards = 2};
    const fq_input input = {.index_metadata = metadata, .n_index_metadata = 2};
    char *text = NULL;
    size_t nbytes = 0;
    fq_error err = {0};
    CHECK(fq_index_text(&text, &nbytes, &plan, &input, &err) == FQ_OK);
    CHECK_STR(text, expected);
    CHECK_U64(nbytes, strlen(expected));
    free(text);
}

static void test_read_again(void) {
    fq_arena arena = {0};
    fq_index index = {0};
    fq_messages faults = {0};
    fq_error err = {0};
    CHECK(fq_index_read(&index, &arena, expected, strlen(expected), "F", &faults, &err) == FQ_OK);
    CHECK_U64(faults.n, 0);
    CHECK_U64(index.n_entries, 3);
    CHECK_STR(index.entries[0].tensor, tensors[2].name);
    CHECK_STR(index.entries[0].shard_name, "s/1.safetensors");
    CHECK_U64(index.entries[0].shard, 1);
    CHECK_U64(index.n_shard_names, 2);
    CHECK_STR(index.total_size, "1099511627779");
    CHECK_U64(index.n_metadata, 2);
    CHECK_STR(index.metadata[1].key, metadata[1].key);
    CHECK_STR(index.metadata[1].value, metadata[1].value);
    fq_arena_free(&arena);
}

int main(void) {
    test_text();
    test_read_again();
    return check_result();
}
