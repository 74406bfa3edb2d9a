// A power cut may come between any two calls: names must be given only to what is on the disk. The
// calls are logged in the order they came, since no run shows what a cut would have left.
#include "tests/scratch_output.h"

#include <errno.h>
#include <sys/syscall.h>

typedef enum kind {
    CHANGED, // bytes, size or times of a file
    MADE,    // a folder in a folder
    RENAMED,
    REMOVED,
    REMOVED_JOURNAL,
    SYNCED
} kind;

typedef struct event {
    kind kind;
    ino_t what;   // CHANGED, RENAMED, SYNCED
    ino_t folder; // that it is in: MADE, RENAMED, REMOVED
} event;

enum { MAX_EVENTS = 256 };
static event events[MAX_EVENTS];
static size_t n_events;
static bool logging, no_rename_flags;

static ino_t inode_of_fd(int fd) {
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    return st.st_ino;
}

static ino_t inode_of(int dir_fd, const char *path) {
    struct stat st;
    return fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

// Takes down a call that came back with rc, if it was a success. Returns rc.
static long note(long rc, kind what, ino_t inode, ino_t folder) {
    if (logging && rc >= 0 && CHECK(n_events < MAX_EVENTS))
        events[n_events++] = (event){what, inode, folder};
    return rc;
}

// The functions of libc, in whose place these are called.

int ftruncate(int fd, off_t nbytes) {
    return (int)note(syscall(SYS_ftruncate, fd, nbytes), CHANGED, inode_of_fd(fd), 0);
}

ssize_t pwrite(int fd, const void *bytes, size_t nbytes, off_t offset) {
    return note(syscall(SYS_pwrite64, fd, bytes, nbytes, offset), CHANGED, inode_of_fd(fd), 0);
}

int futimens(int fd, const struct timespec times[2]) {
    return (int)note(syscall(SYS_utimensat, fd, NULL, times, 0), CHANGED, inode_of_fd(fd), 0);
}

int fsync(int fd) { return (int)note(syscall(SYS_fsync, fd), SYNCED, inode_of_fd(fd), 0); }

int mkdirat(int dir_fd, const char *path, mode_t mode) {
    return (int)note(syscall(SYS_mkdirat, dir_fd, path, mode), MADE, 0, inode_of_fd(dir_fd));
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    const ino_t what = inode_of(from_fd, from);
    return (int)note(syscall(SYS_renameat2, from_fd, from, to_fd, to, 0), RENAMED, what,
                     inode_of_fd(to_fd));
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    const ino_t what = inode_of(from_fd, from);
    if (no_rename_flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)note(syscall(SYS_renameat2, from_fd, from, to_fd, to, flags), RENAMED, what,
                     inode_of_fd(to_fd));
}

int unlinkat(int dir_fd, const char *path, int flags) {
    const ino_t folder = dir_fd == AT_FDCWD ? 0 : inode_of_fd(dir_fd);
    const kind what = strstr(path, ".journal") ? REMOVED_JOURNAL : REMOVED;
    return (int)note(syscall(SYS_unlinkat, dir_fd, path, flags), what, 0, folder);
}

static bool synced_between(ino_t what, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        if (events[i].kind == SYNCED && events[i].what == what)
            return true;
    }
    return false;
}

// The first event after the last change of a file.
static size_t last_change_end(ino_t file) {
    size_t end = 0;
    for (size_t i = 0; i < n_events; i++) {
        if (events[i].kind == CHANGED && events[i].what == file)
            end = i + 1;
    }
    return end;
}

// The rename that gives the output its name in the parent.
static size_t final_rename(ino_t parent, ino_t output) {
    size_t i = 0;
    while (i < n_events &&
           !(events[i].kind == RENAMED && events[i].folder == parent && events[i].what == output))
        i++;
    CHECK(i < n_events);
    return i;
}

// The first event after the last rename in a folder, up to an end.
static size_t last_rename_end(ino_t folder, size_t end) {
    while (end > 0 && !(events[end - 1].kind == RENAMED && events[end - 1].folder == folder))
        end--;
    return end;
}

// Returns how many names were given below OUTPUT.partial.
static size_t check_names(ino_t parent, size_t final) {
    size_t n_named = 0;
    for (size_t i = 0; i < n_events; i++) {
        const event *e = &events[i];
        if (e->kind == CHANGED)
            CHECK(i < final && synced_between(e->what, i, final));
        if (e->kind == RENAMED && e->folder != parent) {
            n_named++;
            CHECK(last_change_end(e->what) > 0);
            CHECK(synced_between(e->what, last_change_end(e->what), i));
        }
        if ((e->kind == RENAMED || e->kind == MADE) && e->folder != parent)
            CHECK(synced_between(e->folder, i, final));
    }
    return n_named;
}

static void check_removals(size_t first_allowed, bool any) {
    size_t n_removed = 0;
    for (size_t i = 0; i < n_events; i++) {
        if (events[i].kind != REMOVED)
            continue;
        n_removed++;
        CHECK(i > first_allowed);
    }
    CHECK((n_removed > 0) == any);
}

// The journal is there before OUTPUT.partial, names no shard before the disk has it, and goes last.
static void check_journal(ino_t parent, size_t durable, bool is_folder) {
    enum { FIRST_LINE_END = 2 }; // it is emptied, and gets its first line
    const ino_t journal = events[0].what;
    size_t n_changes = 0, n_named = 0, n_removed = 0;
    for (size_t i = 0; i < n_events; i++) {
        const event *e = &events[i];
        n_named += e->kind == RENAMED && e->folder != parent;
        if (e->kind == MADE && e->folder == parent)
            CHECK(synced_between(journal, FIRST_LINE_END, i) &&
                  synced_between(parent, FIRST_LINE_END, i));
        if (e->kind == CHANGED && e->what == journal && ++n_changes > FIRST_LINE_END && is_folder)
            CHECK(n_named >= n_changes - FIRST_LINE_END || n_named == 5); // the last line
        if (e->kind == REMOVED_JOURNAL) {
            n_removed++;
            CHECK(i > durable && i + 1 == n_events);
        }
    }
    CHECK_U64(n_removed, 1);
}

// Two shards, where they have names, then what scratch_convert writes.
static void convert(const scratch_input *in, bool over_old) {
    fq_output *output = NULL;
    fq_error err = {0};
    const bool is_folder = in->input.checkpoint.is_folder;
    CHECK(scratch_output(&output, "out", in, over_old, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "model-1.safetensors", 1000, &err) == FQ_OK);
    if (is_folder) {
        CHECK(scratch_put_shard(output, "model-2.safetensors", 1000, &err) == FQ_OK);
        CHECK(fq_output_copy_side_files(output, &in->input, &err) == FQ_OK);
        CHECK(fq_output_put(output, "config.json", "{\"q\":1}", 7, &err) == FQ_OK);
    }
    CHECK(fq_output_commit(output, &err) == FQ_OK);
}

static void test_order(const scratch_input *in, bool over_old) {
    const bool is_folder = in->input.checkpoint.is_folder;
    if (over_old && is_folder)
        scratch_mkdir("out");
    if (over_old)
        scratch_write(is_folder ? "out/old" : "out", "old");
    n_events = 0;
    logging = true;
    convert(in, over_old);
    logging = false;
    const ino_t parent = inode_of(AT_FDCWD, scratch_root);
    const ino_t out = inode_of(AT_FDCWD, scratch_path("out"));
    const size_t final = final_rename(parent, out);
    // Two shards, tokenizer.json, s/t/notes and config.json; a lone file has no name of its own.
    CHECK_U64(check_names(parent, final), is_folder ? 5 : 0);
    CHECK(
        synced_between(out, is_folder ? last_rename_end(out, final) : last_change_end(out), final));
    // The old output is the only copy until the new name is on the disk.
    size_t durable = last_rename_end(parent, n_events);
    CHECK(durable > final && synced_between(parent, durable, n_events));
    while (durable < n_events && events[durable].kind != SYNCED)
        durable++;
    check_removals(durable, over_old);
    check_journal(parent, durable, is_folder);
    scratch_remove("out");
}

int main(void) {
    scratch_input folder_input, file_input;
    scratch_begin();
    scratch_model(&folder_input, "m");
    scratch_close(&folder_input);
    scratch_mkdir("m/s");
    scratch_mkdir("m/s/t"); // m/s holds no file: nothing else makes it durable
    scratch_write("m/s/t/notes", "n");
    scratch_open(&folder_input, "m", NULL);
    scratch_shard("w.safetensors", "a");
    scratch_open(&file_input, "w.safetensors", NULL);
    for (int turn = 0; turn < 4; turn++) {
        no_rename_flags = turn / 2;
        test_order(&folder_input, turn % 2);
        test_order(&file_input, turn % 2);
    }
    scratch_close(&folder_input);
    scratch_close(&file_input);
    scratch_end();
    return check_result();
}
