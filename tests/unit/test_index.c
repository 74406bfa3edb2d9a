// The index decides which shards are read and what belongs to the model: each lie in it must be
// told, and each oddity of real ones borne.
#include "tests/scratch.h"

#include "formats/index_read.h"

static const char index_name[] = "model.safetensors.index.json";

// Opens a model of two shards (a b; c d) with that index.
static void open_with(scratch_input *out, const char *index) {
    scratch_mkdir("m");
    scratch_shard("m/x.safetensors", "a b");
    scratch_shard("m/y.safetensors", "c d");
    scratch_write("m/config.json", "{}");
    scratch_write("m/model.safetensors.index.json", index);
    scratch_open(out, "m", NULL);
    scratch_remove("m");
}

#define MAP                                                                                        \
    "\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"x.safetensors\",\"c\":\"y.safetensors\","     \
    "\"d\":\"y.safetensors\"}"

static void test_sound(void) {
    scratch_input in;
    open_with(&in, "{\"metadata\":{\"total_size\":8}," MAP "}");
    CHECK(in.status == FQ_OK);
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_STR(scratch_lines(&in.warnings), "");
    CHECK_U64(in.input.checkpoint.n_shards, 2);
    CHECK_U64(in.input.checkpoint.n_tensors, 4);
    CHECK_STR(in.input.index_name, index_name);
    scratch_close(&in);
}

// Metadata are kept as they stand, whatever they are; total_size is not among them.
static void test_metadata(void) {
    scratch_input in;
    open_with(&in, "{\"metadata\":{\"s\":\"\\u0041\",\"total_size\":8,\"n\": 1.50,\"o\":{\"total_"
                   "size\": [1 ]},\"l\":[],\"z\":null}," MAP ",\"more\":[{\"x\":\"y\"}]}");
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_STR(scratch_lines(&in.warnings), "");
    static const char *const expected[][2] = {
        {"s", "\"\\u0041\""}, {"n", "1.50"}, {"o", "{\"total_size\": [1 ]}"},
        {"l", "[]"},          {"z", "null"},
    };
    const size_t n = sizeof expected / sizeof expected[0];
    CHECK_U64(in.input.n_index_metadata, n);
    for (size_t i = 0; i < n && i < in.input.n_index_metadata; i++) {
        CHECK_STR(in.input.index_metadata[i].key, expected[i][0]);
        CHECK_STR(in.input.index_metadata[i].value, expected[i][1]);
    }
    scratch_close(&in);
}

static void test_total_size(void) {
    static const struct {
        const char *metadata;
        const char *warning; // NULL: none
    } cases[] = {
        {"{\"total_size\":8.0}", NULL},
        {"{\"total_size\":0.8e1}", NULL},
        {"{\"total_size\":9}", "total_size is 9, but the tensors have 8 bytes"},
        {"{\"total_size\":8.5}", "total_size is 8.5, but"},
        {"{\"total_size\":-8}", "total_size is -8, but"},
        {"{\"total_size\":1e308}", "total_size is 1e308, but"},
        {"{\"total_size\":18446744073709551616}", "total_size is 18446744073709551616, but"},
        {"{\"total_size\":\"8\"}", "total_size is no number"},
        {"{\"total_size\":[8\n]}", "total_size is no number"},
        {"{\"total_size\":null}", "total_size is no number"},
        {"{}", "total_size is missing"},
        {"null", "total_size is missing"},
        {"[8]", "total_size is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char index[512];
        scratch_input in;
        snprintf(index, sizeof index, "{\"metadata\":%s," MAP "}", cases[i].metadata);
        open_with(&in, index);
        CHECK_STR(scratch_lines(&in.faults), "");
        CHECK_U64(in.warnings.n, cases[i].warning != NULL);
        CHECK_HAS(scratch_lines(&in.warnings), cases[i].warning ? cases[i].warning : "");
        scratch_close(&in);
    }
}

// Faults, one index each: a part of the line, which also names the index.
static void test_faults(void) {
    static const struct {
        const char *index, *fault;
    } cases[] = {
        {"", "ends early"},
        {"[]", "is no JSON object"},
        {"{}", "has no weight_map"},
        {"{\"weight_map\":{}}", "has no weight_map, or an empty one"},
        {"{\"weight_map\":null}", "weight_map is no JSON object"},
        {"{\"weight_map\":[\"a\"]}", "weight_map is no JSON object"},
        {"{" MAP "} x", "the text goes on"},
        {"{" MAP "," MAP "}", "weight_map"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"\\u0061\":\"y.safetensors\"}}",
         "is there twice"},
        {"{\"weight_map\":{\"a\\u0000\":\"x.safetensors\"}}", "NUL"},
        {"{\"weight_map\":{\"a\":null,\"b\":[\"x.safetensors\"],\"c\":\"y.safetensors\"}}",
         "no file name: a, b"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\\u0000\"}}", "no file name: a"},
        {"{\"weight_map\":{\"a\":\"../m/x.safetensors\"}}", "no plain path"},
        {"{\"weight_map\":{\"a\":\"y.safetensors\",\"c\":\"x.safetensors\"}}",
         "a: is in x.safetensors, but the index names it for y.safetensors"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"e\":\"x.safetensors\"}}",
         "e: is in no shard, but the index names it for x.safetensors"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"e\":\"z.safetensors\"}}",
         "m/z.safetensors: the index names it, but it is not there; download it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_input in;
        open_with(&in, cases[i].index);
        CHECK(in.status == FQ_OK);
        CHECK_HAS(scratch_lines(&in.faults), cases[i].fault);
        CHECK_U64(in.warnings.n, 0); // of a broken model, nothing else is worth a line
        scratch_close(&in);
    }
}

// All that is wrong is listed at once: shards that are missing, cut or foreign, and lies.
static void test_faults_together(void) {
    scratch_input in;
    scratch_mkdir("m");
    scratch_shard("m/x.safetensors", "a b");
    scratch_write("m/cut.safetensors", "1234");
    scratch_write("m/lfs.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00");
    scratch_write("m/config.json", "[]");
    scratch_write("m/model.safetensors.index.json",
                  "{\"weight_map\":{\"a\":\"x.safetensors\",\"e\":\"x.safetensors\","
                  "\"f\":\"cut.safetensors\",\"g\":\"lfs.safetensors\",\"h\":\"no.safetensors\","
                  "\"i\":\"/etc/passwd\",\"j\":7}}");
    scratch_open(&in, "m", NULL);
    CHECK_U64(in.faults.n, 7);
    const char *lines = scratch_lines(&in.faults);
    CHECK_HAS(lines, "m/cut.safetensors: ");
    CHECK_HAS(lines, "Git LFS");
    CHECK_HAS(lines, "m/no.safetensors: the index names it, but it is not there");
    CHECK_HAS(lines, "e: is in no shard");
    CHECK_HAS(lines, "i: is mapped to \"/etc/passwd\", which is an absolute path");
    CHECK_HAS(lines, "no file name: j");
    CHECK_HAS(lines, "m/config.json: ");
    scratch_close(&in);
    scratch_remove("m");
}

static void test_unnamed_tensor(void) {
    scratch_input in;
    open_with(&in, "{\"metadata\":{\"total_size\":4},\"weight_map\":{\"a\":\"x.safetensors\","
                   "\"c\":\"y.safetensors\"}}");
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_U64(in.warnings.n, 1);
    CHECK_HAS(scratch_lines(&in.warnings), "not named in it, but kept: b, d");
    CHECK_U64(in.input.checkpoint.n_tensors, 4);
    scratch_close(&in);
}

// Shards may lie in sub-folders of the model, but not be reached through a link out of it.
static void test_sub_folder(void) {
    static const char index[] = "{\"metadata\":{\"total_size\":4},\"weight_map\":{"
                                "\"a\":\"s/x.safetensors\",\"b\":\"s/x.safetensors\"}}";
    scratch_input in;
    scratch_mkdir("m");
    scratch_mkdir("m/s");
    scratch_write("m/config.json", "{}");
    scratch_shard("m/s/x.safetensors", "a b");
    scratch_write("m/model.safetensors.index.json", index);
    scratch_open(&in, "m", NULL);
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_STR(scratch_lines(&in.warnings), "");
    CHECK_STR(in.input.checkpoint.shards[0].name, "s/x.safetensors");
    scratch_close(&in);
    CHECK(rename(scratch_path("m/s"), scratch_path("outside")) == 0);
    scratch_symlink("../outside", "m/s");
    scratch_open(&in, "m", NULL);
    CHECK_HAS(scratch_lines(&in.faults), "m/s/x.safetensors: is a link that leads out");
    scratch_close(&in);
    scratch_remove("m");
    scratch_remove("outside");
}

static void test_choice(void) {
    static const char index[] = "{\"metadata\":{\"total_size\":4},\"weight_map\":{"
                                "\"a\":\"x.safetensors\",\"b\":\"x.safetensors\"}}";
    scratch_input in;
    scratch_mkdir("m");
    scratch_write("m/config.json", "{}");
    scratch_shard("m/x.safetensors", "a b");
    scratch_shard("m/y.safetensors", "a b"); // without an index: a duplicate
    scratch_write("m/diffusion.safetensors.index.json", index);
    scratch_write("m/model.safetensors.index.fp16.json", "no index");
    scratch_open(&in, "m", NULL);
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_STR(in.input.index_name, "diffusion.safetensors.index.json");
    scratch_close(&in);
    scratch_open(&in, "m/model.safetensors.index.fp16.json", NULL);
    CHECK_HAS(scratch_lines(&in.faults), "m/model.safetensors.index.fp16.json: line 1");
    scratch_close(&in);
    scratch_write("m/other.safetensors.index.json", "no index");
    scratch_open(&in, "m", NULL);
    CHECK_HAS(scratch_lines(&in.faults),
              "holds 2 indexes (diffusion.safetensors.index.json, other");
    scratch_close(&in);
    scratch_open(&in, "m/diffusion.safetensors.index.json", NULL);
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK(in.input.checkpoint.is_folder);
    scratch_close(&in);
    scratch_write("m/model.safetensors.index.json", index);
    scratch_open(&in, "m", NULL);
    CHECK_STR(in.input.index_name, index_name);
    scratch_close(&in);
    scratch_remove("m");
}

static void test_shard_names(void) {
    static const char *const good[] = {"x.safetensors", "a/b/x.safetensors", "...safetensors",
                                       "..a/x y.safetensors", "\303\251.safetensors"};
    static const char *const bad[] = {
        "",
        ".",
        "..",
        "x",
        "x.bin",
        ".safetensors",
        "x.safetensors/",
        "/x.safetensors",
        "../x.safetensors",
        "a/../x.safetensors",
        "./x.safetensors",
        "a//x.safetensors",
        "a/./x.safetensors",
        "\033[2J.safetensors",
        "a\177.safetensors",
        "x.safetensors.zst",
        "X.SAFETENSORS",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK(!fq_shard_name_problem(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(fq_shard_name_problem(bad[i]) != NULL);
    char name[300];
    memset(name, 'x', sizeof name);
    strcpy(name + 255 - 12, ".safetensors");
    CHECK(!fq_shard_name_problem(name));
    memset(name, 'x', sizeof name);
    strcpy(name + 256 - 12, ".safetensors");
    CHECK_HAS(fq_shard_name_problem(name), "too long");
}

// Thousands of lies become few lines.
static void test_many_faults(void) {
    enum { N = 1000 };
    char *index = malloc(N * 64), *at = index;
    at += sprintf(at, "{\"weight_map\":{\"a\":\"x.safetensors\"");
    for (int i = 0; i < N; i++)
        at += sprintf(at, ",\"t%d\":\"%c.safetensors\"", i, i % 2 ? 'x' : 'y');
    strcpy(at, "}}");
    scratch_input in;
    open_with(&in, index);
    CHECK(in.faults.n > 10 && in.faults.n < 100);
    CHECK_HAS(in.faults.lines[in.faults.n - 1], "more tensors are in no shard");
    scratch_close(&in);
    free(index);
}

int main(void) {
    scratch_begin();
    test_sound();
    test_metadata();
    test_total_size();
    test_faults();
    test_faults_together();
    test_unnamed_tensor();
    test_sub_folder();
    test_choice();
    test_shard_names();
    test_many_faults();
    scratch_end();
    return check_result();
}
