// Every call of the operating system may fail: each is made to, one after the other, until a run
// meets no failure. OUTPUT must be as before or complete every time, and the message must say why.
#include "tests/scratch_output.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

typedef enum call {
    CALL_OPENAT,
    CALL_MKDIRAT,
    CALL_FTRUNCATE,
    CALL_PWRITE,
    CALL_FSYNC,
    CALL_RENAMEAT,
    CALL_RENAMEAT2,
    CALL_FUTIMENS,
    CALL_COUNT, // of those that are fatal wherever they fail
    CALL_FSTATAT
} call;

static struct {
    call call;     // the one that fails
    long at;       // the how-manyth time, from 0; -1: never
    bool for_good; // and all later ones
    int errno_value;
    long n; // calls so far
    bool happened;
    bool in_journal; // the first time
} fault = {.at = -1};

static void fail_at(call which, long at, bool for_good, int errno_value) {
    fault.call = which;
    fault.at = at;
    fault.for_good = for_good;
    fault.errno_value = errno_value;
    fault.n = 0;
    fault.happened = fault.in_journal = false;
}

static bool fails(call which) {
    if (which != fault.call || fault.at < 0)
        return false;
    const long n = fault.n++;
    if (n != fault.at && !(fault.for_good && n > fault.at))
        return false;
    fault.happened = true;
    errno = fault.errno_value;
    return true;
}

// Like fails, for a call on an open file: a journal that cannot be added to is no failure of the
// run.
static bool fails_on(call which, int fd) {
    char link[64], path[PATH_MAX] = "";
    const bool is_first = !fault.happened;
    if (!fails(which))
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0)
        path[0] = '\0';
    if (is_first)
        fault.in_journal = strstr(path, ".journal") != NULL;
    errno = fault.errno_value;
    return true;
}

// The functions of libc, in whose place these are called. A write may also be cut short, and the
// file system may not know the flags of renameat2, nor the kernel statx.

static bool short_writes, no_rename_flags, no_statx;

int openat(int dir_fd, const char *path, int flags, ...);
int openat(int dir_fd, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails(CALL_OPENAT) ? -1 : (int)syscall(SYS_openat, dir_fd, path, flags, mode);
}

int mkdirat(int dir_fd, const char *path, mode_t mode) {
    return fails(CALL_MKDIRAT) ? -1 : (int)syscall(SYS_mkdirat, dir_fd, path, mode);
}

int ftruncate(int fd, off_t nbytes) {
    return fails_on(CALL_FTRUNCATE, fd) ? -1 : (int)syscall(SYS_ftruncate, fd, nbytes);
}

ssize_t pwrite(int fd, const void *bytes, size_t nbytes, off_t offset) {
    static unsigned turn;
    if (short_writes && ++turn % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    if (short_writes && nbytes > 7)
        nbytes = 1 + turn % 7;
    return fails_on(CALL_PWRITE, fd) ? -1 : syscall(SYS_pwrite64, fd, bytes, nbytes, offset);
}

int fsync(int fd) { return fails_on(CALL_FSYNC, fd) ? -1 : (int)syscall(SYS_fsync, fd); }

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return fails(CALL_RENAMEAT) ? -1 : (int)syscall(SYS_renameat, from_fd, from, to_fd, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    if (no_rename_flags)
        errno = EINVAL;
    return no_rename_flags || fails(CALL_RENAMEAT2)
               ? -1
               : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int futimens(int fd, const struct timespec times[2]) {
    return fails(CALL_FUTIMENS) ? -1 : (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

int fstatat(int dir_fd, const char *restrict path, struct stat *restrict out, int flags) {
    return fails(CALL_FSTATAT) ? -1 : (int)syscall(SYS_newfstatat, dir_fd, path, out, flags);
}

int statx(int dir_fd, const char *restrict path, int flags, unsigned mask,
          struct statx *restrict out) {
    if (no_statx)
        errno = ENOSYS;
    return no_statx ? -1 : (int)syscall(SYS_statx, dir_fd, path, flags, mask, out);
}

static scratch_input folder_input, file_input;

typedef struct scenario {
    const scratch_input *in;
    bool over_old; // with force, over an old output
} scenario;

static void make_old(const scenario *s) {
    if (s->over_old && s->in->input.checkpoint.is_folder) {
        scratch_mkdir("out");
        scratch_write("out/old", "old");
    } else if (s->over_old) {
        scratch_write("out", "old");
    }
}

static void check_as_before(const scenario *s) {
    if (!s->over_old)
        CHECK(!scratch_exists("out"));
    else
        CHECK_STR(scratch_read(s->in->input.checkpoint.is_folder ? "out/old" : "out"), "old");
}

static void check_complete(const scenario *s) {
    if (!s->in->input.checkpoint.is_folder) {
        scratch_check_shard("out", 1000);
        return;
    }
    scratch_check_shard("out/model.safetensors", 1000);
    CHECK_STR(scratch_read("out/config.json"), "{\"q\":1}");
    CHECK_STR(scratch_read("out/s/notes"), "n");
    CHECK(!scratch_exists("out/old"));
}

// One run with one fault. False if the fault did not come to pass: the run had fewer such calls.
static bool run_with_fault(const scenario *s, call which, long at, bool for_good) {
    fq_error err = {0};
    make_old(s);
    fail_at(which, at, for_good, EIO);
    const fq_status status = scratch_convert("out", s->in, s->over_old, &err);
    fault.at = -1;
    const bool kept = strstr(err.text, "the finished files stay in ") != NULL;
    if (!fault.happened || (fault.in_journal && status == FQ_OK)) {
        CHECK(status == FQ_OK);
        check_complete(s);
    } else {
        CHECK(status == FQ_IO);
        CHECK_HAS(err.text, "Input/output error");
        if (strstr(err.text, "is complete, but the old one could not be removed"))
            check_complete(s);
        else
            check_as_before(s);
        const bool left = kept || strstr(err.text, "is complete") != NULL;
        if (!for_good)
            CHECK(scratch_exists("out.partial") == left);
        CHECK(scratch_exists("out.partial.journal") == scratch_exists("out.partial"));
    }
    scratch_remove("out");
    scratch_remove("out.partial");
    scratch_remove("out.partial.journal");
    return fault.happened;
}

static void test_each_call(void) {
    const scenario scenarios[] = {
        {&folder_input, false}, {&folder_input, true}, {&file_input, false}, {&file_input, true}};
    int n_faults[CALL_COUNT] = {0};
    for (int i = 0; i < 4; i++) {
        for (int which = 0; which < CALL_COUNT; which++) {
            for (int for_good = 0; for_good < 2; for_good++) {
                for (long at = 0; run_with_fault(&scenarios[i], (call)which, at, for_good); at++)
                    n_faults[which]++;
            }
        }
    }
    for (int which = 0; which < CALL_COUNT; which++)
        CHECK(n_faults[which] > 0);
}

// Where the file system cannot rename with flags, plain renames do; and where one of these fails,
// the old output is back in its place.
static void test_without_rename_flags(void) {
    const scenario scenarios[] = {
        {&folder_input, false}, {&folder_input, true}, {&file_input, false}, {&file_input, true}};
    no_rename_flags = true;
    for (int i = 0; i < 4; i++) {
        long at = 0;
        while (run_with_fault(&scenarios[i], CALL_RENAMEAT, at, false))
            at++;
        CHECK(at > 0);
        CHECK(!scratch_exists("out.partial.old"));
    }
    no_rename_flags = false;
}

// A look that fails says nothing about other runs, and leaves nothing behind.
static void test_failed_look(void) {
    const scratch_input *const inputs[] = {&folder_input, &file_input};
    for (int i = 0; i < 2; i++) {
        int n_failed = 0;
        fault.happened = true;
        for (long at = 0; fault.happened; at++) {
            fq_output *output;
            fq_error err;
            fail_at(CALL_FSTATAT, at, false, EIO);
            const fq_status status = scratch_output(&output, "out", inputs[i], false, &err);
            fault.at = -1;
            if (status != FQ_OK) {
                CHECK(status == FQ_IO);
                CHECK_HAS(err.text, "Input/output error");
                n_failed++;
            }
            fq_output_abandon(output, false, &err);
            CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));
        }
        CHECK(n_failed > 0);
    }
}

static void test_short_writes(void) {
    const scenario s = {&folder_input, false};
    fq_error err = {0};
    short_writes = true;
    CHECK(scratch_convert("out", s.in, false, &err) == FQ_OK);
    short_writes = false;
    check_complete(&s);
    scratch_remove("out");
}

static void test_file_size_limit(void) {
    struct rlimit limit;
    fq_error err = {0};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const struct rlimit low = {500, limit.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
    CHECK(scratch_convert("out", &folder_input, false, &err) == FQ_IO);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_HAS(err.text, "out.partial/model.safetensors: ");
    CHECK_HAS(err.text, "File too large");
    CHECK(!scratch_exists("out") && !scratch_exists("out.partial"));
}

// A kernel that does not tell mounts: other file systems are still not entered.
static void test_mount_without_statx(void) {
    fq_output *output;
    fq_error err = {0};
    scratch_mkdir("out");
    scratch_mkdir("out/s");
    CHECK(mount("none", scratch_path("out/s"), "tmpfs", 0, "size=64k") == 0);
    scratch_write("out/s/p", "p");
    no_statx = true;
    CHECK(scratch_output(&output, "out", &folder_input, true, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "out/s: is a mount point");
    CHECK(fq_tree_remove(AT_FDCWD, scratch_path("out"), "out", &err) == FQ_IO);
    no_statx = false;
    CHECK_STR(scratch_read("out/s/p"), "p");
    CHECK(umount(scratch_path("out/s")) == 0);
    scratch_remove("out");
}

static void test_full_disk(void) {
    fq_output *output;
    fq_error err;
    scratch_mkdir("full");
    CHECK(mount("none", scratch_path("full"), "tmpfs", 0, "size=64k") == 0);
    CHECK(scratch_output(&output, "full/out", &folder_input, false, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "a.safetensors", 10000, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "b.safetensors", 100000, &err) == FQ_IO);
    CHECK_HAS(err.text, "b.safetensors: cannot be written: No space left on device; about ");
    CHECK(!scratch_exists("full/out.partial/b.safetensors"));
    fq_output_abandon(output, true, &err);
    scratch_check_shard("full/out.partial/a.safetensors", 10000);
    scratch_remove("full/out.partial/a.safetensors");
    CHECK(rmdir(scratch_path("full/out.partial")) == 0); // it held nothing else
    CHECK(umount(scratch_path("full")) == 0);
    scratch_remove("full");
}

int main(void) {
    scratch_begin();
    scratch_model(&folder_input, "m");
    scratch_close(&folder_input);
    scratch_mkdir("m/s");
    scratch_write("m/s/notes", "n");
    scratch_open(&folder_input, "m", NULL);
    scratch_shard("w.safetensors", "a");
    scratch_open(&file_input, "w.safetensors", NULL);
    test_each_call();
    test_without_rename_flags();
    test_failed_look();
    test_short_writes();
    test_file_size_limit();
    // In a name space of its own.
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) {
        test_mount_without_statx();
        test_full_disk();
    } else {
        printf("mounts are not permitted here: skipped\n");
    }
    scratch_close(&folder_input);
    scratch_close(&file_input);
    scratch_end();
    return check_result();
}
