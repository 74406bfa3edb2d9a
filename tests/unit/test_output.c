// The promise of an output: complete under its name or absent, with the right bytes, modes and
// times, and without a trace where a run was given up.
#include "tests/scratch_output.h"

#include <sys/stat.h>

static mode_t mode_of(const char *name) {
    struct stat st = {0};
    CHECK(lstat(scratch_path(name), &st) == 0);
    return st.st_mode & 07777;
}

static void test_default_path(void) {
    static const struct {
        const char *path, *repo;
        bool is_folder;
        const char *expected;
    } cases[] = {
        {"/x/Foo", NULL, true, "/x/Foo-fp8"},
        {"/Foo.safetensors", NULL, true, "/Foo.safetensors-fp8"},
        {"/x/a.safetensors", NULL, false, "/x/a-fp8.safetensors"},
        {"/x/0123", NULL, false, "/x/0123-fp8.safetensors"},
        {"/c/models--o--Foo/snapshots/1", "Foo", true, "./Foo-fp8"},
        {"/c/models--o--Foo/snapshots/1/a.safetensors", "Foo", false, "./a-fp8.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fq_input input = {
            .checkpoint = {.path = cases[i].path, .is_folder = cases[i].is_folder},
            .hub = {.repo = cases[i].repo},
        };
        char *path = NULL;
        fq_error err = {0};
        CHECK(fq_output_default_path(&path, &input, "fp8", &err) == FQ_OK);
        CHECK_STR(path, cases[i].expected);
        free(path);
    }
}

static void test_folder(void) {
    scratch_input in;
    fq_output *output;
    fq_error err;
    scratch_model(&in, "m");
    CHECK(scratch_output(&output, "out/", &in, false, &err) == FQ_OK);
    CHECK(scratch_exists("out.partial") && !scratch_exists("out"));
    CHECK(scratch_put_shard(output, "x.safetensors", 100, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "s/t/y.safetensors", 20 << 20, &err) == FQ_OK);
    CHECK(fq_output_copy_side_files(output, &in.input, &err) == FQ_OK);
    CHECK(fq_output_put(output, "config.json", "{\"q\":1}", 7, &err) == FQ_OK);
    CHECK(!scratch_exists("out"));
    CHECK(fq_output_commit(output, &err) == FQ_OK);
    CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));
    CHECK_STR(scratch_read("out/config.json"), "{\"q\":1}");
    CHECK_STR(scratch_read("out/tokenizer.json"), "{\"t\":1}");
    scratch_check_shard("out/x.safetensors", 100);
    scratch_check_shard("out/s/t/y.safetensors", 20 << 20);
    scratch_close(&in);
    scratch_remove("m");
    scratch_remove("out");
}

static void test_lone_file(void) {
    scratch_input in;
    fq_output *output;
    fq_error err;
    scratch_shard("w.safetensors", "a");
    scratch_open(&in, "w.safetensors", NULL);
    CHECK(scratch_output(&output, "out.safetensors", &in, false, &err) == FQ_OK);
    CHECK(scratch_exists("out.safetensors.partial"));
    // A shard that is laid out again replaces the first try, and a larger one leaves no rest.
    CHECK(scratch_put_shard(output, "w.safetensors", 1000, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "w.safetensors", 100, &err) == FQ_OK);
    CHECK(fq_output_commit(output, &err) == FQ_OK);
    scratch_check_shard("out.safetensors", 100);
    CHECK(!scratch_exists("out.safetensors.partial"));
    CHECK(!scratch_exists("out.safetensors.partial.journal"));
    scratch_close(&in);
    scratch_remove("w.safetensors");
    scratch_remove("out.safetensors");
}

// New files get 0666 and folders 0777, copies the mode of their source, all less the umask.
static void test_modes_and_times(void) {
    static const mode_t masks[] = {022, 077, 0};
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        const struct timespec times[] = {{1000000000, 5}, {1100000000, 7}};
        scratch_input in;
        struct stat st;
        fq_error err;
        umask(022);
        scratch_model(&in, "m");
        scratch_close(&in);
        scratch_write("m/script.py", "");
        CHECK(chmod(scratch_path("m/script.py"), 06755) == 0);
        scratch_write("m/private", "p");
        CHECK(chmod(scratch_path("m/private"), 0400) == 0);
        CHECK(utimensat(AT_FDCWD, scratch_path("m/private"), times, 0) == 0);
        scratch_open(&in, "m", NULL);
        umask(masks[i]);
        CHECK(scratch_convert("out", &in, false, &err) == FQ_OK);
        umask(022);
        CHECK_U64(mode_of("out"), 0777 & ~masks[i]);
        CHECK_U64(mode_of("out/model.safetensors"), 0666 & ~masks[i]);
        CHECK_U64(mode_of("out/config.json"), 0666 & ~masks[i]);
        CHECK_U64(mode_of("out/tokenizer.json"), 0644 & ~masks[i]);
        CHECK_U64(mode_of("out/script.py"), 0755 & ~masks[i]);
        CHECK_U64(mode_of("out/private"), 0400 & ~masks[i]);
        CHECK(stat(scratch_path("out/private"), &st) == 0);
        CHECK(st.st_mtim.tv_sec == times[1].tv_sec && st.st_mtim.tv_nsec == times[1].tv_nsec);
        scratch_close(&in);
        scratch_remove("m");
        scratch_remove("out");
    }
}

static void test_side_files(void) {
    scratch_input in;
    fq_error err;
    scratch_model(&in, "m");
    scratch_close(&in);
    scratch_mkdir("m/s");
    scratch_write("m/s/notes.txt", "n");
    scratch_write("m/.dot", "d");
    scratch_write("m/empty", "");
    scratch_write("m/other.bin", "b");
    scratch_symlink("s/notes.txt", "m/link");
    scratch_open(&in, "m", NULL);
    CHECK(scratch_convert("out", &in, false, &err) == FQ_OK);
    CHECK_STR(scratch_read("out/s/notes.txt"), "n");
    CHECK_STR(scratch_read("out/.dot"), "d");
    CHECK_STR(scratch_read("out/link"), "n");
    struct stat st;
    CHECK(lstat(scratch_path("out/link"), &st) == 0 && S_ISREG(st.st_mode));
    CHECK(lstat(scratch_path("out/empty"), &st) == 0 && st.st_size == 0);
    CHECK(!scratch_exists("out/other.bin"));
    // One that became a link out of the folder meanwhile is not followed.
    scratch_remove("m/.dot");
    scratch_write("secret", "s");
    scratch_symlink("../secret", "m/.dot");
    CHECK(scratch_convert("out2", &in, false, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "m/.dot: is a link that leads out");
    CHECK(!scratch_exists("out2") && !scratch_exists("out2.partial"));
    scratch_close(&in);
    scratch_remove("m");
    scratch_remove("out");
    scratch_remove("secret");
}

static void test_abandon(void) {
    scratch_input in;
    fq_output *output;
    fq_error err;
    scratch_model(&in, "m");
    fq_output_abandon(NULL, true, &err);
    CHECK(scratch_output(&output, "out", &in, false, &err) == FQ_OK);
    CHECK(scratch_exists("out.partial.journal"));
    CHECK(scratch_put_shard(output, "s/x.safetensors", 10, &err) == FQ_OK);
    CHECK(fq_output_copy_side_files(output, &in.input, &err) == FQ_OK);
    fq_output_abandon(output, false, &err);
    CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));

    CHECK(scratch_output(&output, "out", &in, false, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "x.safetensors", 10, &err) == FQ_OK);
    fq_output_abandon(output, true, &err);
    scratch_check_shard("out.partial/x.safetensors", 10);
    CHECK(scratch_exists("out.partial.journal") && !scratch_exists("out"));
    scratch_remove("out.partial");
    scratch_remove("out.partial.journal");
    scratch_close(&in);
    scratch_remove("m");
}

// A shard that is given up leaves nothing beside those that are finished.
static void test_abort(void) {
    const fq_shard layout = {.name = "y.safetensors", .data_nbytes = 0};
    scratch_input in;
    fq_output *output;
    fq_sink_file *file = NULL;
    fq_error err;
    scratch_model(&in, "m");
    CHECK(scratch_output(&output, "out", &in, false, &err) == FQ_OK);
    fq_sink *sink = fq_output_sink(output);
    CHECK(sink->begin(sink, &file, &layout, &err) == FQ_OK);
    CHECK(!scratch_exists("out.partial/y.safetensors"));
    sink->abort(file);
    CHECK(rmdir(scratch_path("out.partial")) == 0); // empty
    fq_output_abandon(output, false, &err);
    scratch_close(&in);
    scratch_remove("m");
}

// The old output stays whole until the new one takes its place.
static void test_force(void) {
    scratch_input in;
    fq_output *output;
    fq_error err;
    scratch_model(&in, "m");
    scratch_mkdir("out");
    scratch_mkdir("out/deep");
    scratch_write("out/deep/old", "o");
    scratch_mkdir("out.partial");
    scratch_write("out.partial/older", "o");
    CHECK(scratch_output(&output, "out", &in, true, &err) == FQ_OK);
    CHECK(!scratch_exists("out.partial/older"));
    CHECK(scratch_put_shard(output, "model.safetensors", 10, &err) == FQ_OK);
    CHECK_STR(scratch_read("out/deep/old"), "o");
    fq_output_abandon(output, false, &err);
    CHECK_STR(scratch_read("out/deep/old"), "o");
    CHECK(scratch_convert("out", &in, true, &err) == FQ_OK);
    CHECK(!scratch_exists("out/deep") && scratch_exists("out/model.safetensors"));
    CHECK(!scratch_exists("out.partial"));
    CHECK(scratch_convert("fresh", &in, true, &err) == FQ_OK); // nothing to replace
    scratch_remove("out");
    scratch_remove("fresh");
    scratch_close(&in);
    scratch_remove("m");
}

// With force a link at OUTPUT is replaced; what it leads to is not touched.
static void test_force_over_links(void) {
    scratch_input in;
    fq_error err;
    struct stat st;
    scratch_model(&in, "m");
    scratch_mkdir("precious");
    scratch_write("precious/p", "p");
    scratch_symlink("precious", "out");
    scratch_symlink("precious", "out.partial");
    CHECK(scratch_convert("out", &in, true, &err) == FQ_OK);
    CHECK(lstat(scratch_path("out"), &st) == 0 && S_ISDIR(st.st_mode));
    CHECK(!scratch_exists("out.partial"));
    CHECK_STR(scratch_read("precious/p"), "p");
    scratch_close(&in);
    scratch_remove("out");
    scratch_open(&in, "m/model.safetensors", NULL);
    scratch_symlink("precious/p", "out");
    CHECK(scratch_convert("out", &in, true, &err) == FQ_OK);
    CHECK(lstat(scratch_path("out"), &st) == 0 && S_ISREG(st.st_mode));
    CHECK_STR(scratch_read("precious/p"), "p");
    scratch_close(&in);
    scratch_remove("out");
    scratch_remove("precious");
    scratch_remove("m");
}

// What appears at OUTPUT during the run is not overwritten, and the work is not lost.
static void test_output_appears(void) {
    scratch_input in;
    fq_output *output;
    fq_error err;
    scratch_model(&in, "m");
    CHECK(scratch_output(&output, "out", &in, false, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "model.safetensors", 10, &err) == FQ_OK);
    scratch_mkdir("out");
    CHECK(fq_output_commit(output, &err) == FQ_IO);
    CHECK_HAS(err.text, "out: cannot be given its name: File exists; go on with --resume, ");
    CHECK(rmdir(scratch_path("out")) == 0);
    scratch_check_shard("out.partial/model.safetensors", 10);
    scratch_remove("out.partial");
    scratch_remove("out.partial.journal");
    scratch_close(&in);
    scratch_remove("m");
}

int main(void) {
    scratch_begin();
    umask(022);
    test_default_path();
    test_folder();
    test_lone_file();
    test_modes_and_times();
    test_side_files();
    test_abandon();
    test_abort();
    test_force();
    test_force_over_links();
    test_output_appears();
    scratch_end();
    return check_result();
}
