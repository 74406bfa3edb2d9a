// Files on disk as sources of bytes: pread, never mmap, so that every fault is an ordinary error.
#include "file.h"

#include "retry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct file_source {
    fq_source source; // first: the two are cast into each other
    int fd;
    struct stat opened; // as it was then
    char name[];
} file_source;

static fq_status file_read(fq_source *source, uint64_t offset, void *out, size_t nbytes,
                           fq_error *err) {
    const file_source *file = (const file_source *)source;
    char *bytes = out;
    for (size_t n_done = 0; n_done < nbytes;) {
        const uint64_t at = offset + n_done;
        const ssize_t n = pread(file->fd, bytes + n_done, nbytes - n_done, (off_t)at);
        if (n > 0)
            n_done += (size_t)n;
        else if (n == 0)
            return fq_fail(err, FQ_IO,
                           "%s: the file ends at byte %" PRIu64 ", it had %" PRIu64
                           " bytes when it was opened; leave the input alone and start again",
                           file->name, at, source->nbytes);
        else if (errno != EINTR)
            return fq_fail_errno(err, errno, "%s: reading at byte %" PRIu64 " failed", file->name,
                                 at);
    }
    return FQ_OK;
}

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static fq_status fail_open(const char *name, int errno_value, fq_error *err) {
    if (errno_value == ENXIO)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: is a socket, or a device that is not there; a regular file is needed "
                       "here",
                       name);
    if (errno_value == EMFILE) // every shard stays open
        return fq_fail(err, FQ_IO, "%s: cannot be opened: %s; raise the limit (ulimit -n)", name,
                       strerror(errno_value));
    return fq_fail_errno(err, errno_value, "%s: cannot be opened", name);
}

fq_status fq_file_open(fq_source **out, int dir_fd, const char *path, const char *name,
                       fq_error *err) {
    file_source *file = calloc(1, sizeof *file + strlen(name) + 1);
    if (!file)
        return fq_fail_memory(err);
    strcpy(file->name, name);
    file->source = (fq_source){.read = file_read, .name = file->name};
    fq_status status = FQ_OK;
    // Without O_NONBLOCK, opening a FIFO waits for a writer.
    file->fd = fq_retry_openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (file->fd < 0) {
        status = fail_open(name, errno, err);
        goto out;
    }
    if (fstat(file->fd, &file->opened) != 0) {
        status = fq_fail_errno(err, errno, "%s: cannot be examined", name);
        goto out;
    }
    if (!S_ISREG(file->opened.st_mode)) {
        status = fq_fail(err, FQ_BAD_INPUT, "%s: is %s; a regular file is needed here", name,
                         kind_of(file->opened.st_mode));
        goto out;
    }
    file->source.nbytes = (uint64_t)file->opened.st_size;
    *out = &file->source;
    file = NULL;
out:
    fq_file_close(file ? &file->source : NULL);
    return status;
}

fq_status fq_file_check_unchanged(const fq_source *source, fq_error *err) {
    const file_source *file = (const file_source *)source;
    struct stat now;
    if (fstat(file->fd, &now) != 0)
        return fq_fail_errno(err, errno, "%s: cannot be examined", file->name);
    const struct stat *then = &file->opened;
    if (now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return FQ_OK;
    return fq_fail(err, FQ_IO,
                   "%s: the file was changed while it was read; leave the input alone and start "
                   "again",
                   file->name);
}

uint64_t fq_file_mtime_ns(const fq_source *source) {
    const struct timespec *mtime = &((const file_source *)source)->opened.st_mtim;
    return (uint64_t)mtime->tv_sec * 1000000000u + (uint64_t)mtime->tv_nsec;
}

void fq_file_identity(const fq_source *source, dev_t *device, ino_t *inode) {
    const file_source *file = (const file_source *)source;
    *device = file->opened.st_dev;
    *inode = file->opened.st_ino;
}

void fq_file_close(fq_source *source) {
    if (!source)
        return;
    file_source *file = (file_source *)source;
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}

fq_status fq_source_read_all(char **out, size_t *nbytes, fq_source *source, uint64_t max_nbytes,
                             fq_error *err) {
    if (source->nbytes > max_nbytes || source->nbytes >= SIZE_MAX)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: has %" PRIu64 " bytes, at most %" PRIu64
                       " are read; is this the right file?",
                       source->name, source->nbytes, max_nbytes);
    const size_t n = (size_t)source->nbytes;
    char *text = malloc(n + 1);
    if (!text)
        return fq_fail_memory(err);
    const fq_status status = source->read(source, 0, text, n, err);
    if (status != FQ_OK) {
        free(text);
        return status;
    }
    text[n] = '\0';
    *out = text;
    *nbytes = n;
    return FQ_OK;
}
