// What goes along with a model: a tokenizer forgotten, or a file copied from outside the folder,
// is found out by others and late.
#include "tests/scratch.h"

// The kind of a side file; FQ_SIDE_KIND_COUNT if it is none.
static fq_side_kind kind_of(const fq_input *input, const char *path) {
    for (size_t i = 0; i < input->n_side_files; i++) {
        if (strcmp(input->side_files[i].path, path) == 0)
            return input->side_files[i].kind;
    }
    return FQ_SIDE_KIND_COUNT;
}

static uint64_t nbytes_of(const fq_input *input, const char *path) {
    for (size_t i = 0; i < input->n_side_files; i++) {
        if (strcmp(input->side_files[i].path, path) == 0)
            return input->side_files[i].nbytes;
    }
    return UINT64_MAX;
}

static void make_model(void) {
    scratch_mkdir("m");
    scratch_shard("m/model.safetensors", "a");
    scratch_write("m/config.json", "{}");
}

// One file of each kind.
static const struct {
    const char *path;
    fq_side_kind kind;
} files[] = {
    {"config.json", FQ_SIDE_CONFIG},
    {"tokenizer.json", FQ_SIDE_COPY},
    {".gitattributes", FQ_SIDE_COPY},
    {"binary", FQ_SIDE_COPY},
    {"s/config.json", FQ_SIDE_COPY},
    {"s/t/notes.txt", FQ_SIDE_COPY},
    {"s/recipe.yaml", FQ_SIDE_COPY},
    {"model.safetensors.tmp", FQ_SIDE_COPY},
    {"consolidated.safetensors", FQ_SIDE_WEIGHT},
    {"s/x.safetensors", FQ_SIDE_WEIGHT},
    {"s/x.safetensors.zst", FQ_SIDE_WEIGHT},
    {"pytorch_model.bin", FQ_SIDE_WEIGHT},
    {"pytorch_model.bin.index.json", FQ_SIDE_WEIGHT},
    {"other.safetensors.index.fp16.json", FQ_SIDE_WEIGHT},
    {"a.pt", FQ_SIDE_WEIGHT},
    {"a.pth", FQ_SIDE_WEIGHT},
    {"s/t/a.gguf", FQ_SIDE_WEIGHT},
    {"a.h5", FQ_SIDE_WEIGHT},
    {"a.msgpack", FQ_SIDE_WEIGHT},
    {"a.onnx", FQ_SIDE_WEIGHT},
    {"hf_quant_config.json", FQ_SIDE_STALE},
    {"quantize_config.json", FQ_SIDE_STALE},
    {"recipe.yaml", FQ_SIDE_STALE},
    {".git/HEAD", FQ_SIDE_KIND_COUNT},
    {"s/.cache/x", FQ_SIDE_KIND_COUNT},
    {"model.safetensors", FQ_SIDE_KIND_COUNT},
};
enum { N_FILES = sizeof files / sizeof files[0], N_SKIPPED = 3 };

static void make_files(void) {
    make_model();
    scratch_mkdir("m/s");
    scratch_mkdir("m/s/t");
    scratch_mkdir("m/.git");
    scratch_mkdir("m/s/.cache");
    for (size_t i = 0; i < N_FILES; i++) {
        char path[128];
        snprintf(path, sizeof path, "m/%s", files[i].path);
        if (!scratch_exists(path))
            scratch_write(path, "x");
    }
}

static void test_kinds_by_name(void) {
    scratch_input in;
    make_files();
    scratch_open(&in, "m", NULL);
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK_U64(in.input.n_side_files, N_FILES - N_SKIPPED);
    for (size_t i = 0; i < N_FILES; i++) {
        if (!CHECK(kind_of(&in.input, files[i].path) == files[i].kind))
            CHECK_NOTE("%s: %d\n", files[i].path, kind_of(&in.input, files[i].path));
    }
    for (size_t i = 1; i < in.input.n_side_files; i++)
        CHECK(strcmp(in.input.side_files[i - 1].path, in.input.side_files[i].path) < 0);
    CHECK_U64(in.warnings.n, 2);
    CHECK_HAS(in.warnings.lines[0], "as weights outside the checkpoint: a.h5, a.msgpack, ");
    CHECK_HAS(in.warnings.lines[0], " and 4 more; --include-file");
    CHECK_HAS(in.warnings.lines[1], "hf_quant_config.json, quantize_config.json, recipe.yaml");
    scratch_close(&in);
    scratch_remove("m");
}

static void test_include(void) {
    scratch_input in;
    make_files();
    scratch_open(&in, "m", "s/*.safetensors*");
    CHECK(kind_of(&in.input, "s/x.safetensors") == FQ_SIDE_COPY);
    CHECK(kind_of(&in.input, "s/x.safetensors.zst") == FQ_SIDE_COPY);
    CHECK(kind_of(&in.input, "consolidated.safetensors") == FQ_SIDE_WEIGHT);
    scratch_close(&in);
    scratch_open(&in, "m", "*"); // all files, but shards and what fp8q writes itself
    CHECK(kind_of(&in.input, "recipe.yaml") == FQ_SIDE_COPY);
    CHECK(kind_of(&in.input, "s/t/a.gguf") == FQ_SIDE_COPY);
    CHECK(kind_of(&in.input, "config.json") == FQ_SIDE_CONFIG);
    CHECK(kind_of(&in.input, "model.safetensors") == FQ_SIDE_KIND_COUNT);
    CHECK(kind_of(&in.input, ".git/HEAD") == FQ_SIDE_KIND_COUNT);
    CHECK_U64(in.warnings.n, 0);
    scratch_close(&in);
    scratch_remove("m");
}

static void test_links(void) {
    scratch_input in;
    make_model();
    scratch_mkdir("m/s");
    scratch_write("m/s/real.json", "{}");
    scratch_write("secret", "s");
    scratch_symlink("s/real.json", "m/inside.json");
    scratch_symlink("../secret", "m/out.json");
    scratch_symlink("nothing", "m/dangling.json");
    scratch_symlink("loop", "m/loop");
    scratch_symlink("..", "m/s/up"); // a loop of folders
    scratch_symlink("/", "m/s/root");
    scratch_symlink("nothing", "m/a.bin");
    CHECK(mkfifo(scratch_path("m/pipe"), 0666) == 0);
    scratch_open(&in, "m", "out.json"); // asking for it does not help
    CHECK_STR(scratch_lines(&in.faults), "");
    CHECK(kind_of(&in.input, "inside.json") == FQ_SIDE_COPY);
    CHECK(nbytes_of(&in.input, "inside.json") == 2); // of what the link leads to
    CHECK(kind_of(&in.input, "s/real.json") == FQ_SIDE_COPY);
    CHECK(kind_of(&in.input, "out.json") == FQ_SIDE_LINK);
    CHECK(kind_of(&in.input, "dangling.json") == FQ_SIDE_LINK);
    CHECK(kind_of(&in.input, "loop") == FQ_SIDE_LINK);
    CHECK(kind_of(&in.input, "s/up") == FQ_SIDE_LINK);
    CHECK(kind_of(&in.input, "s/root") == FQ_SIDE_LINK);
    CHECK(kind_of(&in.input, "a.bin") == FQ_SIDE_WEIGHT);
    CHECK(kind_of(&in.input, "pipe") == FQ_SIDE_SPECIAL);
    CHECK_HAS(scratch_lines(&in.warnings), ": dangling.json, loop, out.json, s/root, s/up\n");
    CHECK_HAS(scratch_lines(&in.warnings), "as no regular files: pipe\n");
    scratch_close(&in);
    scratch_remove("m");
    scratch_remove("secret");
}

// What a shard is linked to is that shard, under whatever name, and must not be copied as well.
static void test_shard_under_other_names(void) {
    scratch_input in;
    scratch_mkdir("m");
    scratch_shard("m/weights.bin", "a");
    scratch_symlink("weights.bin", "m/model.safetensors");
    CHECK(link(scratch_path("m/weights.bin"), scratch_path("m/copy.txt")) == 0);
    scratch_write("m/config.json", "{}");
    scratch_open(&in, "m", NULL);
    CHECK_U64(in.input.n_side_files, 1);
    CHECK_STR(scratch_lines(&in.warnings), "");
    scratch_close(&in);
    scratch_remove("m");
}

// Each level of folders holds a descriptor, so that their depth is bounded.
static void test_deep_folders(void) {
    char path[1024] = "m";
    scratch_input in;
    make_model();
    for (int i = 0; i < FQ_TREE_MAX_DEPTH; i++) {
        strcat(path, "/d");
        scratch_mkdir(path);
    }
    scratch_open(&in, "m", NULL);
    CHECK(in.status == FQ_OK);
    scratch_close(&in);
    strcat(path, "/d");
    scratch_mkdir(path);
    scratch_open(&in, "m", NULL);
    CHECK(in.status == FQ_IO);
    CHECK_HAS(in.err.text, "nested deeper");
    scratch_close(&in);
    scratch_remove(path);
    scratch_remove("m");
}

int main(void) {
    scratch_begin();
    test_kinds_by_name();
    test_include();
    test_links();
    test_shard_under_other_names();
    test_deep_folders();
    scratch_end();
    return check_result();
}
