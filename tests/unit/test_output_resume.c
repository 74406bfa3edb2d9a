// Whatever an interrupted run left: it is resumed where it is that of the same run, and left
// exactly as it is where it is not.
#include "tests/scratch_output.h"

#include <errno.h>
#include <sys/syscall.h>

// The function of libc, in whose place this is called. A run that is killed at its end removes
// nothing any more.
static bool is_dead;

int unlinkat(int dir_fd, const char *path, int flags) {
    if (is_dead) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, dir_fd, path, flags);
}

enum { N_SHARDS = 3, NBYTES = 5000 };
static const char *const names[N_SHARDS] = {"s/t/y.safetensors", "x.safetensors", "z.safetensors"};
static fq_tensor tensors[N_SHARDS];
static uint64_t shapes[N_SHARDS];
static fq_plan_shard shards[N_SHARDS];
static const fq_plan plan = {.shards = shards, .n_shards = N_SHARDS};
static scratch_input folder, file; // "m", "w.safetensors"
static bool accepted[N_SHARDS];
static fq_messages warnings;

static fq_status resume_as(fq_output **out, const scratch_input *in, const fq_journal_run *run,
                           bool force, fq_error *err) {
    const fq_output_options options = {
        .force = force, .resume = true, .run = run, .plan = &plan, .warnings = &warnings};
    *out = NULL;
    *err = (fq_error){0};
    return fq_output_open(out, scratch_path("out"), &in->input, &options, err);
}

static fq_status resume(fq_output **out, fq_error *err) {
    return resume_as(out, &folder, &scratch_run, false, err);
}

// What a run leaves that is killed after n shards, with one more at work and a copy made.
static void leave(size_t n) {
    fq_output *output;
    fq_error err;
    fq_sink_file *at_work = NULL;
    CHECK(scratch_output(&output, "out", &folder, false, &err) == FQ_OK);
    for (size_t i = 0; i < n; i++)
        CHECK(scratch_put_shard(output, names[i], NBYTES, &err) == FQ_OK);
    CHECK(fq_output_copy_side_files(output, &folder.input, &err) == FQ_OK);
    fq_sink *sink = fq_output_sink(output);
    CHECK(sink->begin(sink, &at_work, &shards[N_SHARDS - 1].layout, &err) == FQ_OK);
    is_dead = true;
    sink->abort(at_work);
    is_dead = false;
    fq_output_abandon(output, true, &err);
    CHECK(scratch_exists("out.partial/tokenizer.json"));
}

static void forget(void) {
    scratch_remove("out");
    scratch_remove("out.partial");
    scratch_remove("out.partial.journal");
    fq_messages_free(&warnings);
}

static fq_status take_up(fq_output *output, const int *cancelled, fq_error *err) {
    const fq_check_options options = {.n_threads = 2, .cancelled = cancelled};
    const fq_journal_shard **lines = NULL;
    fq_arena arena = {0};
    memset(accepted, 0, sizeof accepted);
    CHECK(fq_journal_match(&lines, &arena, fq_output_found(output), &plan, err) == FQ_OK);
    const fq_status status = fq_output_take_up(accepted, output, &plan, lines, &options, err);
    fq_arena_free(&arena);
    return status;
}

static size_t count_entries(const char *name) {
    struct dirent **items = NULL;
    const int fd = open(scratch_path(name), O_RDONLY | O_DIRECTORY);
    const int n = fq_tree_list(&items, fd);
    for (int i = 0; i < n; i++)
        free(items[i]);
    free(items);
    close(fd);
    return n < 0 ? 0 : (size_t)n;
}

// Does the rest of a run that was taken up, and looks at the result.
static void finish(fq_output *output) {
    fq_error err = {0};
    for (size_t i = 0; i < N_SHARDS; i++) {
        if (!accepted[i])
            CHECK(scratch_put_shard(output, names[i], NBYTES, &err) == FQ_OK);
    }
    CHECK(fq_output_copy_side_files(output, &folder.input, &err) == FQ_OK);
    CHECK(fq_output_put(output, "config.json", "{\"q\":1}", 7, &err) == FQ_OK);
    CHECK(fq_output_commit(output, &err) == FQ_OK);
    CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));
    for (size_t i = 0; i < N_SHARDS; i++) {
        char path[64];
        snprintf(path, sizeof path, "out/%s", names[i]);
        scratch_check_shard(path, NBYTES);
    }
    CHECK_U64(count_entries("out"), 5); // s, x, z, tokenizer.json and config.json
}

static void test_each_number_of_shards(void) {
    for (size_t n = 0; n < N_SHARDS; n++) {
        fq_output *output;
        fq_error err;
        leave(n);
        CHECK(resume(&output, &err) == FQ_OK);
        if (CHECK(fq_output_found(output) != NULL)) {
            CHECK_U64(fq_output_found(output)->n_shards, n);
            CHECK(take_up(output, NULL, &err) == FQ_OK);
            CHECK_U64(accepted[0] + accepted[1] + accepted[2], n);
            CHECK_U64(count_entries("out.partial"), n); // the rest is swept away
            finish(output);
        }
        CHECK_U64(warnings.n, 0);
        forget();
    }
}

// Each is found, named and done again.
static void test_damaged_shards(void) {
    static const char path[] = "out.partial/x.safetensors";
    for (int kind = 0; kind < 7; kind++) {
        fq_output *output;
        fq_error err;
        struct stat st;
        leave(2);
        CHECK(stat(scratch_path(path), &st) == 0);
        const int fd = open(scratch_path(path), O_WRONLY);
        if (kind == 0) // the last byte of the data
            CHECK(pwrite(fd, "x", 1, st.st_size - 1) == 1);
        else if (kind == 1) // the name of the tensor
            CHECK(pwrite(fd, "v", 1, strlen("12345678{\"__metadata__\":{\"format\":\"pt\"},\"")) ==
                  1);
        else if (kind == 2)
            CHECK(ftruncate(fd, st.st_size - 1) == 0);
        else if (kind == 3)
            CHECK(ftruncate(fd, st.st_size + 1) == 0);
        else
            scratch_remove(path);
        close(fd);
        scratch_write("precious", "p");
        if (kind == 5)
            scratch_symlink("../precious", path);
        if (kind == 6)
            CHECK(mkfifo(scratch_path(path), 0666) == 0);
        CHECK(resume(&output, &err) == FQ_OK);
        CHECK(take_up(output, NULL, &err) == FQ_OK);
        CHECK(accepted[0] && !accepted[1] && !accepted[2] && !scratch_exists(path));
        CHECK_U64(warnings.n, 1);
        CHECK_HAS(scratch_lines(&warnings), kind == 4 ? "x.safetensors: is gone, and is written"
                                                      : "x.safetensors: is not as the interrupted");
        finish(output);
        CHECK_STR(scratch_read("precious"), "p");
        forget();
    }
    scratch_remove("precious");
}

// A shard that the plan lays out another way is not taken, whatever its checksum says.
static void test_other_layout(void) {
    fq_output *output;
    fq_error err;
    leave(2);
    tensors[1].name = "v";
    CHECK(resume(&output, &err) == FQ_OK);
    CHECK(take_up(output, NULL, &err) == FQ_OK);
    CHECK(accepted[0] && !accepted[1]);
    tensors[1].name = "w";
    fq_output_abandon(output, false, &err);
    forget();
}

// Everything that is there, as one number that any change changes.
static uint64_t fingerprint(const char *name) {
    static char command[2 * PATH_MAX];
    char digits[64] = "";
    snprintf(command, sizeof command,
             "cd '%s' && find %s* -printf '%%p %%y %%s %%i %%T@ %%l\\n' | sort | cksum",
             scratch_root, name);
    FILE *pipe = popen(command, "r");
    CHECK(pipe && fgets(digits, sizeof digits, pipe));
    if (pipe)
        pclose(pipe);
    return strtoull(digits, NULL, 10);
}

// Refused with these words, opened or only examined, and nothing is changed.
static void check_refused_as(const scratch_input *in, const fq_journal_run *run, bool force,
                             const char *part) {
    fq_output *output;
    fq_error err, examined = {0};
    const fq_output_options options = {.force = force, .resume = true, .run = run, .plan = &plan};
    const uint64_t before = fingerprint("out");
    CHECK(resume_as(&output, in, run, force, &err) == FQ_USAGE && !output);
    CHECK_HAS(err.text, part);
    CHECK(fq_output_examine(scratch_path("out"), &in->input, &options, &examined) == FQ_USAGE);
    CHECK_STR(examined.text, err.text);
    CHECK_U64(fingerprint("out"), before);
}

static void check_refused(const char *part) {
    check_refused_as(&folder, &scratch_run, false, part);
    check_refused_as(&folder, &scratch_run, true, part);
}

static void test_another_run(void) {
    const fq_journal_run other = {.version = "2", .command = "test"};
    leave(2);
    check_refused_as(&folder, &other, false, "left by fp8q 1, and this is fp8q 2");
    check_refused_as(&folder, &other, true, "left by fp8q 1, and this is fp8q 2");
    check_refused_as(&file, &scratch_run, false, "is a link, or no output of this input");
    forget();
}

static void test_without_journal(void) {
    leave(1);
    scratch_remove("out.partial.journal");
    check_refused("out.partial has no journal");
    scratch_write("out.partial.journal", "");
    check_refused("out.partial has a journal that cannot be read");
    scratch_write("out.partial.journal", "{\"fp8q_journal\":1,");
    check_refused("out.partial has a journal that cannot be read");
    forget();
}

// Names that another user could have planted.
static void test_strange_journal(void) {
    leave(1);
    CHECK(link(scratch_path("out.partial.journal"), scratch_path("other")) == 0);
    check_refused("has another name, too");
    scratch_remove("out.partial.journal");
    scratch_symlink("other", "out.partial.journal");
    check_refused("out.partial.journal: is a link");
    scratch_remove("out.partial.journal");
    scratch_mkdir("out.partial.journal");
    check_refused("out.partial.journal: is a folder");
    scratch_remove("out.partial.journal");
    CHECK(mkfifo(scratch_path("out.partial.journal"), 0666) == 0);
    check_refused("out.partial.journal: is no regular file");
    scratch_remove("out.partial.journal");
    CHECK(rename(scratch_path("other"), scratch_path("out.partial.journal")) == 0);
    if (geteuid() == 0) {
        CHECK(chown(scratch_path("out.partial.journal"), 65534, 65534) == 0);
        check_refused("out.partial.journal: belongs to another user");
        CHECK(chown(scratch_path("out.partial.journal"), 0, 0) == 0);
        CHECK(chown(scratch_path("out.partial"), 65534, 65534) == 0);
        check_refused("out.partial belongs to another user");
    }
    forget();
}

static void test_strange_partial(void) {
    leave(1);
    CHECK(rename(scratch_path("out.partial"), scratch_path("moved")) == 0);
    scratch_symlink("moved", "out.partial");
    check_refused("is a link, or no output");
    scratch_remove("out.partial");
    scratch_write("out.partial", "");
    check_refused("is a link, or no output");
    scratch_remove("moved");
    forget();
}

// What this run would not write is not removed, and not taken into the output.
static void test_foreign_entries(void) {
    static const char *const strangers[] = {"notes", "s/notes", "s/t/u", "u"};
    leave(1);
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        char path[64], part[128];
        snprintf(path, sizeof path, "out.partial/%s", strangers[i]);
        snprintf(part, sizeof part, "%s: is nothing that this run writes", path);
        scratch_write(path, "n");
        check_refused(part);
        scratch_remove(path);
        scratch_mkdir(path);
        check_refused(part);
        scratch_remove(path);
        scratch_symlink(".", path);
        check_refused(part);
        scratch_remove(path);
    }
    scratch_remove("out.partial/s/t/y.safetensors");
    scratch_mkdir("out.partial/s/t/y.safetensors");
    check_refused("s/t/y.safetensors: is nothing that this run writes");
    forget();
}

static void test_interrupted_check(void) {
    const int cancelled = 1;
    fq_output *output;
    fq_error err;
    leave(2);
    const uint64_t before = fingerprint("out");
    CHECK(resume(&output, &err) == FQ_OK);
    CHECK(take_up(output, &cancelled, &err) == FQ_CANCELLED);
    fq_output_abandon(output, true, &err);
    CHECK_U64(fingerprint("out"), before);
    CHECK(resume(&output, &err) == FQ_OK);
    CHECK(take_up(output, NULL, &err) == FQ_OK);
    CHECK(accepted[0] && accepted[1]);
    finish(output);
    forget();
}

// The journal with no OUTPUT.partial is the rest of a run that had not begun, or whose work the
// user has deleted: every run starts anew.
static void test_journal_alone(void) {
    const fq_journal_run other = {.version = "2", .command = "test"};
    fq_output *output;
    fq_error err;
    for (int turn = 0; turn < 4; turn++) {
        leave(1);
        scratch_remove("out.partial");
        if (turn == 2)
            scratch_write("out.partial.journal", "{\"fp8q_j");
        if (turn == 3) {
            scratch_write("out.partial.journal", "my diary");
            CHECK(scratch_output(&output, "out", &folder, false, &err) == FQ_USAGE);
            CHECK_HAS(err.text, "out.partial.journal: is no journal of a run");
            CHECK(resume(&output, &err) == FQ_USAGE);
            CHECK_STR(scratch_read("out.partial.journal"), "my diary");
        }
        CHECK(resume_as(&output, &folder, turn == 1 ? &other : &scratch_run, turn == 3, &err) ==
              FQ_OK);
        CHECK(!fq_output_found(output));
        memset(accepted, 0, sizeof accepted);
        finish(output);
        forget();
    }
}

static void test_in_use(void) {
    fq_output *first, *second;
    fq_error err;
    CHECK(scratch_output(&first, "out", &folder, false, &err) == FQ_OK);
    CHECK(scratch_put_shard(first, names[0], NBYTES, &err) == FQ_OK);
    check_refused("out.partial is being written by another run");
    CHECK(scratch_output(&second, "out", &folder, true, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "is being written by another run");
    fq_output_abandon(first, true, &err);
    CHECK(resume(&first, &err) == FQ_OK);
    check_refused("out.partial is being written by another run");
    CHECK(take_up(first, NULL, &err) == FQ_OK);
    finish(first);
    forget();
}

// A run that is killed when OUTPUT has its name, but not all is tidied up.
static void test_published(void) {
    fq_output *output;
    fq_error err;
    for (int over_old = 0; over_old < 2; over_old++) {
        if (over_old) {
            scratch_mkdir("out");
            scratch_write("out/old", "o");
        }
        memset(accepted, 0, sizeof accepted);
        CHECK(scratch_output(&output, "out", &folder, over_old, &err) == FQ_OK);
        for (size_t i = 0; i < N_SHARDS; i++)
            CHECK(scratch_put_shard(output, names[i], NBYTES, &err) == FQ_OK);
        is_dead = true;
        CHECK(fq_output_commit(output, &err) == FQ_IO);
        CHECK_HAS(err.text, over_old ? "out: is complete, but the old one could not be removed"
                                     : "out.partial.journal: cannot be removed");
        is_dead = false;
        CHECK(scratch_exists("out.partial.journal") && !scratch_exists("out/old"));
        CHECK(scratch_exists("out.partial") == over_old);
        CHECK(scratch_output(&output, "out", &folder, false, &err) == FQ_USAGE);
        CHECK_HAS(err.text, "out: exists already");
        CHECK(resume(&output, &err) == FQ_OK);
        CHECK(fq_output_is_published(output) && fq_output_found(output)->n_shards == N_SHARDS);
        CHECK(fq_output_commit(output, &err) == FQ_OK);
        CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));
        scratch_check_shard("out/x.safetensors", NBYTES);
        CHECK(resume(&output, &err) == FQ_USAGE); // as any other run
        CHECK_HAS(err.text, "out: exists already");
        forget();
    }
}

// Such a journal says nothing about an OUTPUT that came later, nor about another OUTPUT.partial.
static void test_published_and_replaced(void) {
    fq_output *output;
    fq_error err;
    memset(accepted, 0, sizeof accepted);
    CHECK(scratch_output(&output, "out", &folder, false, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, names[0], NBYTES, &err) == FQ_OK);
    is_dead = true;
    CHECK(fq_output_commit(output, &err) == FQ_IO);
    is_dead = false;
    scratch_mkdir("out.partial");
    scratch_write("out.partial/mine", "m");
    CHECK(resume(&output, &err) == FQ_OK);
    CHECK(fq_output_is_published(output));
    fq_output_abandon(output, false, &err); // gives up nothing
    CHECK(scratch_exists("out.partial.journal") && scratch_exists("out.partial/mine"));
    scratch_remove("out");
    check_refused("out.partial/mine: is nothing that this run writes");
    scratch_remove("out.partial");
    scratch_mkdir("out");
    CHECK(resume(&output, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "out: exists already");
    forget();
}

// A lone file is taken if it was finished, and written again if not.
static void test_lone_file(void) {
    fq_output *output;
    fq_error err;
    const fq_plan_shard lone = scratch_plan_shard(&tensors[0], &shapes[0], "w.safetensors", NBYTES);
    shards[0] = lone;
    for (int kind = 0; kind < 3; kind++) {
        CHECK(scratch_output(&output, "out", &file, false, &err) == FQ_OK);
        if (kind > 0)
            CHECK(scratch_put_shard(output, "w.safetensors", NBYTES, &err) == FQ_OK);
        fq_output_abandon(output, true, &err);
        if (kind == 2)
            CHECK(truncate(scratch_path("out.partial"), NBYTES) == 0);
        CHECK(resume_as(&output, &file, &scratch_run, false, &err) == FQ_OK);
        CHECK(take_up(output, NULL, &err) == FQ_OK);
        CHECK(accepted[0] == (kind == 1));
        CHECK_U64(warnings.n, kind == 2);
        if (!accepted[0])
            CHECK(scratch_put_shard(output, "w.safetensors", NBYTES, &err) == FQ_OK);
        CHECK(fq_output_commit(output, &err) == FQ_OK);
        scratch_check_shard("out", NBYTES);
        CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));
        forget();
    }
    CHECK(scratch_output(&output, "out", &file, false, &err) == FQ_OK);
    fq_output_abandon(output, true, &err);
    CHECK(link(scratch_path("out.partial"), scratch_path("other")) == 0);
    check_refused_as(&file, &scratch_run, false, "out.partial has another name, too");
    scratch_remove("other");
    check_refused_as(&folder, &scratch_run, false, "is a link, or no output of this input");
    forget();
}

int main(void) {
    scratch_begin();
    for (size_t i = 0; i < N_SHARDS; i++)
        shards[i] = scratch_plan_shard(&tensors[i], &shapes[i], names[i], NBYTES);
    scratch_model(&folder, "m");
    scratch_shard("w.safetensors", "a");
    scratch_open(&file, "w.safetensors", NULL);
    test_each_number_of_shards();
    test_damaged_shards();
    test_other_layout();
    test_another_run();
    test_without_journal();
    test_strange_journal();
    test_strange_partial();
    test_foreign_entries();
    test_interrupted_check();
    test_journal_alone();
    test_in_use();
    test_published();
    test_published_and_replaced();
    test_lone_file();
    scratch_close(&folder);
    scratch_close(&file);
    scratch_end();
    return check_result();
}
