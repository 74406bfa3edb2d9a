// The journal of an output on disk: OUTPUT.partial.journal, found, locked, begun, added to,
// removed.
#include "output_parts.h"

#include "retry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

fq_status fq_output_fail_in_use(const fq_output *output, fq_error *err) {
    return fq_fail(err, FQ_USAGE,
                   "%s: %s is being written by another run; wait for it, or name another output "
                   "with -o",
                   output->path, output->partial);
}

fq_status fq_output_lock(bool *is_locked, const fq_output *output, int fd, const char *name,
                         fq_error *err) {
    struct stat locked, named;
    *is_locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!*is_locked && errno == EWOULDBLOCK)
        return fq_output_fail_in_use(output, err);
    if (!*is_locked) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        *is_locked = fcntl(fd, F_OFD_SETLK, &whole) == 0;
        if (!*is_locked && (errno == EAGAIN || errno == EACCES))
            return fq_output_fail_in_use(output, err);
    }
    const bool is_there = fstat(fd, &locked) == 0 &&
                          fstatat(output->parent_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0;
    if (!is_there && errno != ENOENT)
        return fq_fail_errno(err, errno, "%s: cannot be examined", output->partial);
    // Another run may have discarded or renamed what fd was opened as.
    if (!is_there || locked.st_dev != named.st_dev || locked.st_ino != named.st_ino)
        return fq_output_fail_in_use(output, err);
    return FQ_OK;
}

fq_journal_place fq_output_place(const fq_output *output, const char *name) {
    struct statx stx;
    struct stat st;
    if (statx(output->parent_fd, name, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &stx) == 0) {
        const bool is_told = (stx.stx_mask & STATX_BTIME) != 0;
        return (fq_journal_place){
            .inode = stx.stx_ino,
            .birth_ns =
                is_told ? (uint64_t)stx.stx_btime.tv_sec * 1000000000u + stx.stx_btime.tv_nsec : 0,
        };
    }
    if (fstatat(output->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return (fq_journal_place){.inode = st.st_ino};
    return (fq_journal_place){0};
}

fq_status fq_output_examine_file(const char **strange, int fd, const char *path, fq_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fq_fail_errno(err, errno, "%s: cannot be examined", path);
    *strange = !S_ISREG(st.st_mode)     ? "is no regular file"
               : st.st_uid != geteuid() ? "belongs to another user"
               : st.st_nlink != 1       ? "has another name, too (a hard link)"
                                        : NULL;
    return FQ_OK;
}

static const char is_folder[] = "is a folder";

// Opens what is at the journal's place: *fd is -1 if there is nothing, or something *strange.
static fq_status open_found(int *fd, const char **strange, const fq_output *output, fq_error *err) {
    const fq_output_journal *journal = &output->journal;
    fq_status status = FQ_OK;
    *strange = NULL;
    *fd = fq_retry_openat(output->parent_fd, journal->name,
                          O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0);
    if (*fd < 0 && errno == ELOOP)
        *strange = "is a link";
    else if (*fd < 0 && errno == EISDIR)
        *strange = is_folder;
    else if (*fd < 0 && errno == ENXIO)
        *strange = "is a socket";
    else if (*fd < 0 && errno != ENOENT)
        return fq_fail_errno(err, errno, "%s: cannot be opened", journal->path);
    else if (*fd >= 0)
        status = fq_output_examine_file(strange, *fd, journal->path, err);
    if (*fd >= 0 && (*strange || status != FQ_OK)) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

// Reads up to nbytes from the start. Returns how many there were, or -1 with errno set.
static ssize_t read_start(int fd, char *out, size_t nbytes) {
    size_t n_done = 0;
    while (n_done < nbytes) {
        const ssize_t n = pread(fd, out + n_done, nbytes - n_done, (off_t)n_done);
        if (n > 0)
            n_done += (size_t)n;
        else if (n == 0)
            break;
        else if (errno != EINTR)
            return -1;
    }
    return (ssize_t)n_done;
}

// ---- Going on with one

static fq_status read_found(fq_output *output, fq_error *err) {
    fq_output_journal *journal = &output->journal;
    struct stat st;
    char *text = NULL;
    fq_status status = FQ_OK;
    if (fstat(journal->fd, &st) != 0)
        return fq_fail_errno(err, errno, "%s: cannot be examined", journal->path);
    if (st.st_size > FQ_JOURNAL_MAX_NBYTES)
        return fq_fail(err, FQ_USAGE,
                       "%s: has %jd bytes, more than any journal; discard it with --force "
                       "instead",
                       journal->path, (intmax_t)st.st_size);
    text = malloc((size_t)st.st_size + 1);
    if (!text)
        return fq_fail_memory(err);
    const ssize_t n = read_start(journal->fd, text, (size_t)st.st_size);
    if (n < 0)
        status = fq_fail_errno(err, errno, "%s: cannot be read", journal->path);
    else
        status = fq_journal_parse(&journal->found, text, (size_t)n, err);
    journal->is_torn = status == FQ_OK && (size_t)n > journal->found.nbytes;
    free(text);
    return status;
}

fq_status fq_output_journal_find(fq_output *output, fq_error *err) {
    const char *strange;
    bool is_locked;
    fq_output_journal *journal = &output->journal;
    fq_status status = open_found(&journal->fd, &strange, output, err);
    if (status != FQ_OK)
        return status;
    if (strange)
        return fq_fail(err, FQ_USAGE, "%s: %s, and no run can be resumed; %s", journal->path,
                       strange,
                       strange == is_folder ? "remove it" : "discard it with --force instead");
    if (journal->fd < 0)
        return FQ_OK;
    status = fq_output_lock(&is_locked, output, journal->fd, journal->name, err);
    if (status != FQ_OK)
        return status;
    if (!is_locked)
        return fq_fail(err, FQ_USAGE,
                       "%s: cannot be locked on this file system, so that another run may be "
                       "writing %s; see to it that none is, and pass --force instead of --resume",
                       journal->path, output->partial);
    return read_found(output, err);
}

// ---- A new one

// What is at the journal's place and is no journal: an old one is overwritten without a question.
static fq_status check_place(const fq_output *output, int fd, const char *strange, fq_error *err) {
    char start[64];
    const ssize_t n = fd >= 0 ? read_start(fd, start, sizeof start) : 0;
    if (n < 0)
        return fq_fail_errno(err, errno, "%s: cannot be read", output->journal.path);
    if (!strange && !fq_journal_is_begun(start, (size_t)n))
        strange = "is no journal of a run";
    if (!strange || (output->force && strange != is_folder))
        return FQ_OK;
    if (strange == is_folder)
        return fq_fail(err, FQ_USAGE, "%s: %s; remove it, or name another output with -o",
                       output->journal.path, strange);
    return fq_fail(err, FQ_USAGE, "%s: %s; remove it, pass --force, or name another output with -o",
                   output->journal.path, strange);
}

fq_status fq_output_journal_examine(const fq_output *output, fq_error *err) {
    const char *strange;
    bool is_locked;
    int fd;
    fq_status status = open_found(&fd, &strange, output, err);
    if (status == FQ_OK)
        status = check_place(output, fd, strange, err);
    if (status == FQ_OK && fd >= 0)
        status = fq_output_lock(&is_locked, output, fd, output->journal.name, err);
    if (fd >= 0)
        close(fd);
    return status;
}

fq_status fq_output_journal_take(fq_output *output, fq_error *err) {
    fq_output_journal *journal = &output->journal;
    const char *strange;
    bool is_locked;
    fq_status status = open_found(&journal->fd, &strange, output, err);
    if (status == FQ_OK)
        status = check_place(output, journal->fd, strange, err);
    if (status != FQ_OK)
        return status;
    if (strange && unlinkat(output->parent_fd, journal->name, 0) != 0)
        return fq_fail_errno(err, errno, "%s: %s, and cannot be removed", journal->path, strange);
    const bool is_new = journal->fd < 0;
    if (is_new) {
        const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
        journal->fd = fq_retry_openat(output->parent_fd, journal->name, flags, 0666);
    }
    if (journal->fd < 0)
        return errno == EEXIST
                   ? fq_output_fail_in_use(output, err)
                   : fq_fail_errno(err, errno, "%s: cannot be created", output->partial);
    status = fq_output_lock(&is_locked, output, journal->fd, journal->name, err);
    // OUTPUT.partial was looked for before, but without the lock.
    if (status == FQ_OK && !output->force &&
        fq_output_place(output, output->partial_name).inode != 0)
        status = fq_output_fail_in_use(output, err);
    // Another run's journal is left to it; one that is made just now nobody else would remove.
    journal->is_held = is_new && status != FQ_USAGE;
    return status;
}

// ---- Adding lines

// With the lock held, or before there are several threads. False with errno set.
static bool append(fq_output_journal *journal, const fq_json_text *text) {
    if (text->out_of_memory) {
        errno = ENOMEM;
        return false;
    }
    if (text->n > FQ_JOURNAL_MAX_NBYTES - journal->nbytes) {
        errno = EFBIG;
        return false;
    }
    for (size_t n_done = 0; n_done < text->n;) {
        const ssize_t n = pwrite(journal->fd, text->bytes + n_done, text->n - n_done,
                                 (off_t)(journal->nbytes + n_done));
        if (n > 0)
            n_done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return false;
    }
    if (fq_retry_fsync(journal->fd) != 0)
        return false;
    journal->nbytes += text->n;
    return true;
}

static bool cut(fq_output_journal *journal) {
    int rc;
    do
        rc = ftruncate(journal->fd, (off_t)journal->nbytes);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

fq_status fq_output_journal_begin(fq_output *output, const fq_journal_run *run, fq_error *err) {
    fq_output_journal *journal = &output->journal;
    fq_json_text line = {0};
    journal->is_held = true; // no more the one of the work that is discarded
    journal->nbytes = 0;
    fq_journal_put_run(&line, run);
    const bool done =
        cut(journal) && append(journal, &line) && fq_retry_fsync(output->parent_fd) == 0;
    const int errno_value = errno;
    fq_json_text_free(&line);
    return done ? FQ_OK : fq_fail_errno(err, errno_value, "%s: cannot be written", journal->path);
}

void fq_output_journal_forget(fq_output *output) {
    fq_output_journal *journal = &output->journal;
    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = -1;
    fq_journal_free(&journal->found);
}

void fq_output_journal_go_on(fq_output *output) {
    fq_output_journal *journal = &output->journal;
    journal->is_held = true;
    journal->nbytes = journal->found.nbytes;
    if (journal->is_torn && !cut(journal))
        journal->failure = errno;
}

bool fq_output_journal_add(fq_output *output, const fq_json_text *line) {
    fq_output_journal *journal = &output->journal;
    pthread_mutex_lock(&journal->mutex);
    const bool done = journal->failure == 0 && append(journal, line);
    if (!done && journal->failure == 0) {
        journal->failure = errno;
        cut(journal); // a rest would be seen to be torn
    }
    pthread_mutex_unlock(&journal->mutex);
    return done;
}

void fq_output_journal_warn(const fq_output *output) {
    const fq_output_journal *journal = &output->journal;
    if (journal->failure != 0 && output->warnings)
        fq_messages_add(
            output->warnings,
            "%s: cannot be added to: %s; --resume would not know of what was done after that",
            journal->path, strerror(journal->failure));
}

fq_status fq_output_journal_remove(fq_output *output, fq_error *err) {
    fq_output_journal *journal = &output->journal;
    const bool is_held = journal->is_held;
    journal->is_held = false;
    if (!is_held || unlinkat(output->parent_fd, journal->name, 0) == 0 || errno == ENOENT)
        return FQ_OK;
    return fq_fail_errno(err, errno, "%s: cannot be removed", journal->path);
}

fq_status fq_output_journal_init(fq_output *output, fq_error *err) {
    fq_output_journal *journal = &output->journal;
    pthread_mutex_init(&journal->mutex, NULL);
    journal->fd = -1;
    if (asprintf(&journal->path, "%s.journal", output->partial) < 0) {
        journal->path = NULL;
        return fq_fail_memory(err);
    }
    journal->name = journal->path + (output->partial_name - output->partial);
    return FQ_OK;
}

void fq_output_journal_finish(fq_output *output) {
    fq_output_journal *journal = &output->journal;
    if (!journal->path)
        return;
    if (journal->fd >= 0)
        close(journal->fd); // gives the lock back
    fq_journal_free(&journal->found);
    pthread_mutex_destroy(&journal->mutex);
    free(journal->path);
}
