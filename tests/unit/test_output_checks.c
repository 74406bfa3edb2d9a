// An output that is the input, lies in it, holds it or is in the way must be refused before any
// byte is written, however links, mounts and spellings hide it.
#include "tests/scratch_output.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

static scratch_input folder_input; // "m"
static scratch_input file_input;   // "w.safetensors"

// Other programs write to the same disk: how much is free there changes between two looks.
static const char *without_free_nbytes(fq_error *err) {
    char *tail = strstr(err->text, ", but only");
    if (tail)
        *tail = '\0';
    return err->text;
}

// The output is refused with that status and those words, and nothing is left behind. Examining it
// says the same.
static void check_refused(const scratch_input *in, const char *output, bool force, fq_status status,
                          const char *part) {
    fq_output *opened;
    fq_error err, examined;
    CHECK(scratch_examine(output, in, force, &examined) == status);
    const fq_status actual = scratch_output(&opened, output, in, force, &err);
    if (!CHECK(actual == status))
        CHECK_NOTE("%s: status %d, %s\n", output, actual, err.text);
    CHECK_HAS(err.text, part);
    CHECK_STR(without_free_nbytes(&examined), without_free_nbytes(&err));
    CHECK(!opened);
    fq_output_abandon(opened, false, &err);
}

static void check_accepted(const scratch_input *in, const char *output, bool force) {
    fq_output *opened;
    fq_error err;
    CHECK(scratch_examine(output, in, force, &err) == FQ_OK);
    if (!CHECK(scratch_output(&opened, output, in, force, &err) == FQ_OK))
        CHECK_NOTE("%s: %s\n", output, err.text);
    fq_output_abandon(opened, false, &err);
}

// Refused with and without force, as a conflict with the input that names both.
static void check_conflict(const scratch_input *in, const char *output, const char *part) {
    check_refused(in, output, true, FQ_USAGE, part);
    check_refused(in, output, false, FQ_USAGE, part);
    check_refused(in, output, true, FQ_USAGE, in->input.checkpoint.path);
}

static void test_is_input(void) {
    static const char *const spellings[] = {"m",      "m/",        "m/.",       "./m",
                                            "m/s/..", "link-to-m", "link-to-m/"};
    scratch_symlink("m", "link-to-m");
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        check_conflict(&folder_input, spellings[i], ": is the input ");
    scratch_symlink("w.safetensors", "link-to-w");
    CHECK(link(scratch_path("w.safetensors"), scratch_path("hard-w")) == 0);
    check_conflict(&file_input, "w.safetensors", ": is the input ");
    check_conflict(&file_input, "m/../w.safetensors", ": is the input ");
    check_conflict(&file_input, "link-to-w", ": is the input ");
    check_conflict(&file_input, "hard-w", ": is the input ");
    scratch_remove("hard-w");
    scratch_remove("link-to-w");
}

static void test_inside_input(void) {
    check_conflict(&folder_input, "m/out", ": lies inside the input ");
    check_conflict(&folder_input, "m/s/t/out", ": lies inside the input ");
    check_conflict(&folder_input, "link-to-m/s/out", ": lies inside the input ");
    check_conflict(&folder_input, "m/s", ": lies inside the input ");
    scratch_symlink("m/s/t", "link-into-m");
    check_conflict(&folder_input, "link-into-m", ": lies inside the input ");
    check_accepted(&folder_input, "m-out", false);
    check_accepted(&file_input, "m/out", false); // beside a lone file is another matter
    scratch_remove("link-into-m");
    scratch_remove("link-to-m");
}

static void test_around_input(void) {
    check_conflict(&folder_input, "", ": holds the input ");
    check_conflict(&folder_input, "m/..", ": holds the input ");
    scratch_symlink(".", "link-around");
    check_conflict(&folder_input, "link-around", ": holds the input ");
    scratch_remove("link-around");
}

static void test_shares_files_with_input(void) {
    scratch_mkdir("out");
    scratch_mkdir("out/s");
    CHECK(link(scratch_path("m/model.safetensors"), scratch_path("out/s/x")) == 0);
    check_refused(&folder_input, "out", true, FQ_USAGE,
                  "out/s/x: is the same file as model.safetensors of the input ");
    scratch_remove("out/s/x");
    check_accepted(&folder_input, "out", true);
    scratch_remove("out");
}

// OUTPUT.partial is discarded under force: it must not be, hold or share the input.
static void test_partial_is_input(void) {
    scratch_input in;
    scratch_model(&in, "p.partial");
    check_conflict(&in, "p", "p.partial: is the input ");
    scratch_close(&in);
    scratch_remove("p.partial");
    scratch_mkdir("p.partial");
    scratch_model(&in, "p.partial/m");
    check_conflict(&in, "p", "p.partial: holds the input ");
    scratch_close(&in);
    scratch_remove("p.partial");
    scratch_mkdir("p.partial");
    CHECK(link(scratch_path("m/model.safetensors"), scratch_path("p.partial/x")) == 0);
    check_refused(&folder_input, "p", true, FQ_USAGE, "p.partial/x: is the same file as ");
    CHECK(scratch_exists("p.partial/x"));
    scratch_remove("p.partial");
}

static void test_hub_cache(void) {
    scratch_input in;
    scratch_mkdir("models--o--r");
    scratch_mkdir("models--o--r/blobs");
    scratch_mkdir("models--o--r/snapshots");
    scratch_mkdir("models--o--r/snapshots/v");
    scratch_shard("models--o--r/blobs/0", "a");
    scratch_symlink("../../blobs/0", "models--o--r/snapshots/v/model.safetensors");
    scratch_open(&in, "models--o--r/snapshots/v", NULL);
    CHECK_STR(scratch_lines(&in.faults), "");
    check_conflict(&in, "models--o--r", ": holds the input ");
    static const char *const inside[] = {"blobs", "blobs/out", "snapshots/out", "out"};
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "models--o--r/%s", inside[i]);
        check_conflict(&in, path, ": lies inside the Hugging Face repository of the input ");
    }
    check_accepted(&in, "out", false);
    scratch_close(&in);
    scratch_remove("models--o--r");
}

static void test_exists(void) {
    scratch_mkdir("folder");
    scratch_write("file", "f");
    scratch_symlink("nothing", "dangling");
    CHECK(mkfifo(scratch_path("pipe"), 0666) == 0);
    check_refused(&folder_input, "folder", false, FQ_USAGE, "folder: exists already; pass --force");
    check_refused(&file_input, "file", false, FQ_USAGE, "file: exists already; pass --force");
    check_refused(&file_input, "dangling", false, FQ_USAGE, "dangling: exists already");
    check_refused(&folder_input, "file", false, FQ_USAGE,
                  "is a file, but the output of the folder");
    check_refused(&folder_input, "file", true, FQ_USAGE, "is a file, but the output of the folder");
    check_refused(&file_input, "folder", true, FQ_USAGE, "is no regular file, but");
    check_refused(&file_input, "pipe", true, FQ_USAGE, "is no regular file, but");
    check_refused(&file_input, "new/", false, FQ_USAGE, "ends in a slash");
    CHECK_STR(scratch_read("file"), "f");
    scratch_remove("folder");
    scratch_remove("file");
    scratch_remove("dangling");
    scratch_remove("pipe");
}

static void test_partial_exists(void) {
    scratch_mkdir("out.partial");
    check_refused(&folder_input, "out", false, FQ_USAGE, "out.partial is there, of a run that was");
    check_refused(&folder_input, "out", false, FQ_USAGE, "or --force");
    CHECK(scratch_exists("out.partial"));
    check_accepted(&folder_input, "out", true);
    CHECK(!scratch_exists("out.partial"));
}

static void test_names(void) {
    fq_output *output = NULL;
    fq_error err = {0};
    const fq_output_options options = scratch_options(true);
    static const char *const none[] = {"", "/", "//"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        CHECK(fq_output_open(&output, none[i], &folder_input.input, &options, &err) == FQ_USAGE);
        CHECK_HAS(err.text, "is no name for an output");
    }
    check_refused(&folder_input, "absent/out", false, FQ_IO, "its folder does not exist");
    check_refused(&folder_input, "w.safetensors/out", false, FQ_IO, "its folder cannot be opened");
    check_refused(&folder_input, "absent/..", false, FQ_IO, "No such file");
}

// The current folder is not pulled away from under the user.
static void test_current_folder(void) {
    char before[PATH_MAX];
    CHECK(getcwd(before, sizeof before) != NULL);
    scratch_mkdir("here");
    scratch_mkdir("here/s");
    CHECK(chdir(scratch_path("here/s")) == 0);
    check_refused(&folder_input, "here", true, FQ_USAGE, "is the current folder or holds it");
    check_refused(&folder_input, "here/s", true, FQ_USAGE, "is the current folder or holds it");
    check_accepted(&folder_input, "here/s/out", true);
    CHECK(chdir(before) == 0);
    scratch_remove("here");
}

static void test_room(void) {
    const fq_output_options options = {.needed_nbytes = UINT64_C(1) << 60};
    fq_output *output = NULL;
    fq_error err = {0};
    CHECK(fq_output_open(&output, scratch_path("out"), &folder_input.input, &options, &err) ==
          FQ_IO);
    CHECK_HAS(err.text, "needs about 11529215046068");
    CHECK(!scratch_exists("out.partial"));
    // What goes along counts, and no sum wraps around.
    scratch_input in;
    scratch_model(&in, "big");
    scratch_close(&in);
    scratch_write("big/side", "");
    scratch_open(&in, "big", NULL);
    for (size_t i = 0; i < in.input.n_side_files; i++) {
        if (strcmp(in.input.side_files[i].path, "side") == 0)
            in.input.side_files[i].nbytes = UINT64_C(1) << 60; // as no disk here could
    }
    check_refused(&in, "out", false, FQ_IO, "needs about 11529215046068");
    const fq_output_options most = {.needed_nbytes = UINT64_MAX};
    err = (fq_error){0};
    CHECK(fq_output_examine(scratch_path("out"), &in.input, &most, &err) == FQ_IO);
    CHECK_HAS(err.text, "needs about 18446744073709551615 bytes, but only ");
    scratch_close(&in);
    scratch_remove("big");
}

// Root may write anywhere: the test steps down where it can.
static void test_unwritable_parent(void) {
    enum { NOBODY = 65534 };
    const bool is_root = geteuid() == 0;
    CHECK(chmod(scratch_root, 0755) == 0);
    scratch_mkdir("locked");
    CHECK(chmod(scratch_path("locked"), 0555) == 0);
    if (!is_root || seteuid(NOBODY) == 0) {
        check_refused(&folder_input, "locked/out", false, FQ_IO, "out.partial: cannot be created");
        check_refused(&file_input, "locked/out", false, FQ_IO, "out.partial: cannot be created");
        CHECK(!is_root || seteuid(0) == 0);
    }
    CHECK(chmod(scratch_path("locked"), 0755) == 0);
    scratch_remove("locked");
}

// Found out before hours of work, not after. Root may read anything: see above.
static void test_unreadable_side_file(void) {
    enum { NOBODY = 65534 };
    scratch_input in;
    const bool is_root = geteuid() == 0;
    scratch_model(&in, "private");
    scratch_close(&in);
    scratch_mkdir("open");
    CHECK(chmod(scratch_path("open"), 0777) == 0);
    CHECK(chmod(scratch_path("private/tokenizer.json"), 0) == 0);
    if (!is_root || seteuid(NOBODY) == 0) {
        scratch_open(&in, "private", NULL);
        CHECK(in.status == FQ_OK); // reading needs it not
        check_refused(&in, "open/out", false, FQ_IO,
                      "private/tokenizer.json: is to be copied, but cannot be read: Permission");
        scratch_close(&in);
        CHECK(!is_root || seteuid(0) == 0);
    }
    scratch_remove("private");
    scratch_remove("open");
}

// In a folder such as /tmp only owners rename. Needs root, to be two users: skipped without it.
static void test_sticky_parent(void) {
    enum { NOBODY = 65534 };
    if (geteuid() != 0) {
        printf("only root can be two users: skipped\n");
        return;
    }
    scratch_mkdir("sticky");
    CHECK(chmod(scratch_path("sticky"), 01777) == 0);
    scratch_mkdir("sticky/out");
    scratch_mkdir("sticky/new.partial");
    scratch_mkdir("sticky/own");
    CHECK(chown(scratch_path("sticky/own"), NOBODY, NOBODY) == 0);
    check_accepted(&folder_input, "sticky/out", true);
    CHECK(seteuid(NOBODY) == 0);
    check_refused(&folder_input, "sticky/out", true, FQ_USAGE, "out: belongs to another user");
    check_refused(&folder_input, "sticky/new", true, FQ_USAGE, "partial: belongs to another user");
    check_accepted(&folder_input, "sticky/own", true);
    CHECK(seteuid(0) == 0);
    CHECK(chown(scratch_path("sticky"), NOBODY, NOBODY) == 0);
    CHECK(seteuid(NOBODY) == 0);
    check_accepted(&folder_input, "sticky/out", true); // its folder is the user's
    CHECK(seteuid(0) == 0);
    scratch_remove("sticky");
}

static void test_in_use(void) {
    fq_output *first;
    fq_error err;
    const scratch_input *const inputs[] = {&folder_input, &file_input};
    for (size_t i = 0; i < 2; i++) {
        CHECK(scratch_output(&first, "out", inputs[i], false, &err) == FQ_OK);
        check_refused(inputs[i], "out", false, FQ_USAGE, "still going on");
        check_refused(inputs[i], "out", true, FQ_USAGE, "is being written by another run");
        CHECK(scratch_exists("out.partial"));
        fq_output_abandon(first, false, &err);
        check_accepted(inputs[i], "out", false);
    }
}

// Of many runs started at once, one wins, and only that one.
static void check_race(bool force) {
    enum { N = 8 };
    int results[2], go[2];
    CHECK(pipe(results) == 0 && pipe(go) == 0);
    for (int i = 0; i < N; i++) {
        if (fork() != 0)
            continue;
        fq_output *output;
        fq_error err;
        char c = scratch_output(&output, "out", &folder_input, force, &err) == FQ_OK ? 'y'
                 : err.status == FQ_USAGE && strstr(err.text, "out.partial") != NULL ? 'n'
                                                                                     : '?';
        close(go[1]);
        if (c == '?')
            fprintf(stderr, "%s\n", err.text);
        bool ok = write(results[1], &c, 1) == 1 && read(go[0], &c, 1) == 0;
        if (output)
            ok = ok && scratch_put_shard(output, "x.safetensors", 10, &err) == FQ_OK &&
                 fq_output_commit(output, &err) == FQ_OK;
        _exit(ok ? 0 : 1);
    }
    int n_won = 0, n_lost = 0, n_failed = 0;
    for (int i = 0; i < N; i++) {
        char c = '?';
        CHECK(read(results[0], &c, 1) == 1);
        n_won += c == 'y';
        n_lost += c == 'n';
    }
    close(go[1]); // now the winner may finish
    for (int i = 0; i < N; i++) {
        int status = 1;
        CHECK(wait(&status) > 0);
        n_failed += status != 0;
    }
    CHECK_U64(n_won, 1);
    CHECK_U64(n_lost, N - 1);
    CHECK_U64(n_failed, 0);
    scratch_check_shard("out/x.safetensors", 10);
    CHECK(!scratch_exists("out.partial"));
    close(results[0]);
    close(results[1]);
    close(go[0]);
}

static void test_races(void) {
    for (int i = 0; i < 20; i++) {
        check_race(false);
        scratch_remove("out");
        scratch_mkdir("out.partial"); // of an interrupted run
        check_race(true);
        scratch_remove("out");
    }
}

static void bind(const char *from, const char *to) {
    CHECK(mount(scratch_path(from), scratch_path(to), NULL, MS_BIND, NULL) == 0);
}

// Force removes the old output with all that is in it: not what is only mounted there, which lies
// on the same device under a bind mount.
static void test_mounts_inside(void) {
    static const char *const names[] = {"o", "p.partial"};
    fq_error err = {0};
    scratch_mkdir("precious");
    scratch_write("precious/p", "p");
    for (int i = 0; i < 2; i++) {
        char path[64];
        const char *output = i == 0 ? "o" : "p";
        scratch_mkdir(names[i]);
        bind("precious", names[i]);
        check_refused(&folder_input, output, true, FQ_USAGE, "is a mount point and cannot be");
        CHECK(fq_tree_remove(AT_FDCWD, scratch_path(names[i]), "T", &err) == FQ_IO);
        CHECK_HAS(err.text, "T: cannot remove it, as something is mounted there");
        CHECK(umount(scratch_path(names[i])) == 0);
        snprintf(path, sizeof path, "%s/s", names[i]);
        scratch_mkdir(path);
        bind("precious", path);
        check_refused(&folder_input, output, true, FQ_USAGE, "/s: is a mount point inside");
        CHECK(fq_tree_remove(AT_FDCWD, scratch_path(names[i]), "T", &err) == FQ_IO);
        CHECK_HAS(err.text, "T/s: cannot remove it, as something is mounted there");
        CHECK(umount(scratch_path(path)) == 0);
        snprintf(path, sizeof path, "%s/f", names[i]);
        scratch_write(path, "");
        bind("precious/p", path);
        check_refused(&folder_input, output, true, FQ_USAGE, "/f: is a mount point inside");
        CHECK(umount(scratch_path(path)) == 0);
        check_accepted(&folder_input, output, true);
    }
    scratch_write("f", "");
    bind("precious/p", "f");
    check_refused(&file_input, "f", true, FQ_USAGE, "f: is a mount point and cannot be replaced");
    CHECK(umount(scratch_path("f")) == 0);
    CHECK_STR(scratch_read("precious/p"), "p");
    scratch_remove("f");
    scratch_remove("o");
    scratch_remove("precious");
}

// One that comes only during the run is not entered either.
static void test_mount_appears(void) {
    fq_output *output;
    fq_error err;
    scratch_mkdir("precious");
    scratch_write("precious/p", "p");
    scratch_mkdir("out");
    scratch_mkdir("out/s");
    CHECK(scratch_output(&output, "out", &folder_input, true, &err) == FQ_OK);
    bind("precious", "out/s");
    CHECK(fq_output_commit(output, &err) == FQ_IO);
    CHECK_HAS(err.text, "is complete, but the old one could not be removed");
    CHECK_HAS(err.text, "out.partial/s: cannot remove it, as something is mounted there");
    CHECK_STR(scratch_read("precious/p"), "p");
    CHECK(umount(scratch_path("out.partial/s")) == 0);
    scratch_remove("out.partial");
    scratch_remove("out");
    scratch_remove("precious");
}

static void test_mounts(void) {
    scratch_mkdir("b");
    CHECK(mount(scratch_path("m"), scratch_path("b"), NULL, MS_BIND, NULL) == 0);
    check_conflict(&folder_input, "b", ": is the input ");
    check_conflict(&folder_input, "b/s/out", ": lies inside the input ");
    CHECK(umount(scratch_path("b")) == 0);
    // A mount point cannot be renamed: that must not be found out at the end.
    CHECK(mount("none", scratch_path("b"), "tmpfs", 0, "size=64k") == 0);
    check_refused(&folder_input, "b", true, FQ_USAGE, "is a mount point");
    const fq_output_options options = {.needed_nbytes = 1 << 20, .run = &scratch_run};
    fq_output *output = NULL;
    fq_error err = {0};
    CHECK(fq_output_open(&output, scratch_path("b/out"), &folder_input.input, &options, &err) ==
          FQ_IO);
    CHECK_HAS(err.text, " bytes, but only 65536 are free");
    // What force discards makes room.
    char full[50 << 10];
    memset(full, 'x', sizeof full);
    full[sizeof full - 1] = '\0';
    scratch_mkdir("b/out.partial");
    scratch_write("b/out.partial/shard", full);
    const fq_output_options again = {.force = true, .needed_nbytes = 60 << 10, .run = &scratch_run};
    err = (fq_error){0};
    CHECK(fq_output_examine(scratch_path("b/out"), &folder_input.input, &again, &err) == FQ_OK);
    CHECK(scratch_exists("b/out.partial/shard"));
    CHECK(fq_output_open(&output, scratch_path("b/out"), &folder_input.input, &again, &err) ==
          FQ_OK);
    fq_output_abandon(output, false, &err);
    CHECK(mount("none", scratch_path("b"), NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
    check_refused(&folder_input, "b/out", false, FQ_IO, "Read-only file system");
    CHECK(umount(scratch_path("b")) == 0);
    scratch_remove("b");
}

int main(void) {
    scratch_begin();
    scratch_model(&folder_input, "m");
    scratch_mkdir("m/s");
    scratch_mkdir("m/s/t");
    scratch_shard("w.safetensors", "a");
    scratch_open(&file_input, "w.safetensors", NULL);
    test_is_input();
    test_inside_input();
    test_around_input();
    test_shares_files_with_input();
    test_partial_is_input();
    test_hub_cache();
    test_exists();
    test_partial_exists();
    test_names();
    test_current_folder();
    test_room();
    test_unwritable_parent();
    test_unreadable_side_file();
    test_sticky_parent();
    test_in_use();
    test_races();
    // In a name space of its own.
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) {
        test_mounts_inside();
        test_mount_appears();
        test_mounts();
    } else {
        printf("mounts are not permitted here: skipped\n");
    }
    scratch_close(&folder_input);
    scratch_close(&file_input);
    scratch_end();
    return check_result();
}
