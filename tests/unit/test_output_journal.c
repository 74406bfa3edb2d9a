// The journal's place, its lock and its lines on disks that fail: a run must not end because of its
// journal once it has begun, and nobody may go on from what another run is still writing.
#include "tests/scratch_output.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/syscall.h>

// The functions of libc, in whose place these are called: file systems may know no locks of one
// kind or of both, and writing to a journal may fail after so many bytes.

static bool no_flock, no_ofd_locks;
static long journal_room = -1; // bytes that still can be written; -1: any number

int flock(int fd, int operation) {
    if (no_flock)
        errno = ENOLCK;
    return no_flock ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int fcntl(int fd, int command, ...);
int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (command == F_OFD_SETLK && no_ofd_locks) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

static bool is_journal(int fd) {
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".journal");
}

ssize_t pwrite(int fd, const void *bytes, size_t nbytes, off_t offset) {
    if (journal_room >= 0 && is_journal(fd)) {
        if (journal_room == 0) {
            errno = ENOSPC;
            return -1;
        }
        nbytes = nbytes < (size_t)journal_room ? nbytes : (size_t)journal_room;
        journal_room -= (long)nbytes;
    }
    return syscall(SYS_pwrite64, fd, bytes, nbytes, offset);
}

static scratch_input in;
static fq_tensor tensor;
static uint64_t shape;
static fq_plan_shard shards[3];
static const fq_plan plan = {.shards = shards, .n_shards = 3};

static fq_messages warnings;

static fq_status resume(fq_output **out, fq_error *err) {
    const fq_output_options options = {
        .resume = true, .run = &scratch_run, .plan = &plan, .warnings = &warnings};
    *out = NULL;
    *err = (fq_error){0};
    return fq_output_open(out, scratch_path("out"), &in.input, &options, err);
}

static void forget(void) {
    scratch_remove("out");
    scratch_remove("out.partial");
    scratch_remove("out.partial.journal");
}

static void test_other_locks(void) {
    fq_output *first, *second;
    fq_error err;
    no_flock = true;
    CHECK(scratch_output(&first, "out", &in, false, &err) == FQ_OK);
    CHECK(resume(&second, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "out.partial is being written by another run");
    CHECK(scratch_output(&second, "out", &in, true, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "out.partial is being written by another run");
    fq_output_abandon(first, true, &err);
    CHECK(resume(&first, &err) == FQ_OK && fq_output_found(first));
    fq_output_abandon(first, true, &err);
    no_flock = false;
    forget();
}

// Without any lock a run goes on as ever, but nobody can go on from it.
static void test_without_locks(void) {
    fq_output *output;
    fq_error err;
    no_flock = no_ofd_locks = true;
    CHECK(scratch_output(&output, "out", &in, false, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "a.safetensors", 10, &err) == FQ_OK);
    fq_output_abandon(output, true, &err);
    CHECK(resume(&output, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "out.partial.journal: cannot be locked on this file system");
    CHECK(scratch_exists("out.partial/a.safetensors"));
    CHECK(scratch_convert("out", &in, true, &err) == FQ_OK);
    no_flock = no_ofd_locks = false;
    scratch_check_shard("out/model.safetensors", 1000);
    CHECK(!scratch_exists("out.partial.journal"));
    forget();
}

// The disk is full after so many bytes of the journal: the run ends well, and the lines that were
// written hold together.
static void test_full_disk(void) {
    long n_cut = 0;
    for (long room = 1; room < 500; room += 7) {
        fq_output *output;
        fq_error err;
        journal_room = room;
        const fq_status status = scratch_output(&output, "out", &in, false, &err);
        if (status != FQ_OK) {
            CHECK(status == FQ_IO);
            CHECK_HAS(err.text, "out.partial.journal: cannot be written: No space left on device");
            CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));
            continue;
        }
        for (size_t i = 0; i < 3; i++)
            CHECK(scratch_put_shard(output, shards[i].layout.name, 10, &err) == FQ_OK);
        const bool is_full = journal_room == 0;
        fq_output_abandon(output, true, &err);
        journal_room = -1;
        CHECK(resume(&output, &err) == FQ_OK);
        if (CHECK(fq_output_found(output) != NULL)) {
            CHECK((fq_output_found(output)->n_shards < 3) == is_full);
            struct stat st;
            CHECK(stat(scratch_path("out.partial.journal"), &st) == 0 &&
                  (uint64_t)st.st_size == fq_output_found(output)->nbytes);
        }
        n_cut += is_full;
        CHECK(fq_output_commit(output, &err) == FQ_OK);
        scratch_check_shard("out/c.safetensors", 10);
        forget();
    }
    CHECK(n_cut > 10);
    journal_room = -1;
}

// After a line that could not be written none follows: a shard that is named later may depend on
// what is missing.
static void test_nothing_after_a_failure(void) {
    fq_output *output;
    fq_error err;
    CHECK(scratch_output(&output, "out", &in, false, &err) == FQ_OK);
    CHECK(scratch_put_shard(output, "a.safetensors", 10, &err) == FQ_OK);
    journal_room = 20;
    CHECK(scratch_put_shard(output, "b.safetensors", 10, &err) == FQ_OK);
    journal_room = -1;
    const fq_sink_digest digest = {10, 0};
    CHECK(!fq_output_note_shard(output, &shards[2], &digest, NULL));
    fq_output_abandon(output, true, &err);
    CHECK(resume(&output, &err) == FQ_OK);
    CHECK_U64(fq_output_found(output)->n_shards, 1);
    CHECK_STR(fq_output_found(output)->shards[0].name, "a.safetensors");
    CHECK(fq_output_note_shard(output, &shards[1], &digest, NULL)); // a new run tries again
    journal_room = 20;
    CHECK(!fq_output_note_shard(output, &shards[2], &digest, NULL));
    journal_room = -1;
    CHECK_U64(warnings.n, 0);
    fq_output_abandon(output, false, &err);
    CHECK_HAS(scratch_lines(&warnings),
              "out.partial.journal: cannot be added to: No space left on");
    CHECK(!scratch_exists("out.partial") && !scratch_exists("out.partial.journal"));
    fq_messages_free(&warnings);
}

// A journal that would take all memory is not read.
static void test_endless_journal(void) {
    fq_output *output;
    fq_error err;
    CHECK(scratch_output(&output, "out", &in, false, &err) == FQ_OK);
    fq_output_abandon(output, true, &err);
    CHECK(truncate(scratch_path("out.partial.journal"), INT64_C(1) << 40) == 0);
    CHECK(resume(&output, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "has 1099511627776 bytes, more than any journal");
    CHECK(scratch_convert("out", &in, true, &err) == FQ_OK);
    forget();
}

int main(void) {
    static const char *const names[] = {"a.safetensors", "b.safetensors", "c.safetensors"};
    scratch_begin();
    for (size_t i = 0; i < 3; i++)
        shards[i] = scratch_plan_shard(&tensor, &shape, names[i], 10);
    scratch_model(&in, "m");
    test_other_locks();
    test_without_locks();
    test_full_disk();
    test_nothing_after_a_failure();
    test_endless_journal();
    scratch_close(&in);
    scratch_end();
    return check_result();
}
