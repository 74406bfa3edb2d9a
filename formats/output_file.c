// One file of an output: written under a temporary name, made durable, then renamed.
#include "output_parts.h"

#include "lib/names.h"
#include "retry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Dirty pages that may gather before the kernel is told to write them out. Measured on ext4: a
// shard then takes the disk's time once, where write and a final fsync take it one after the other.
enum { WRITE_BACK_NBYTES = 8 << 20 };

// Threads in pwrite to one file where others go past its lock: one that has the lock, and one that
// is next.
enum { PLAIN_WRITERS = 2 };

static const char temporary_prefix[] = ".fp8q-", temporary_suffix[] = ".tmp";

static fq_status fail_write(const fq_output_file *file, int errno_value, const char *what,
                            fq_error *err) {
    if (errno_value != ENOSPC && errno_value != EDQUOT)
        return fq_fail_errno(err, errno_value, "%s: %s", file->path, what);
    return fq_fail(err, FQ_IO, "%s: %s: %s; about %" PRIu64 " bytes are needed in all", file->path,
                   what, strerror(errno_value), file->output->needed_nbytes);
}

// Opens the folder that path lies in, with make where it is missing too. Returns -1 with errno set.
static int open_folder_of(int root_fd, const char *path, bool make) {
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = fq_retry_openat(root_fd, ".", flags, 0);
    const char *slash;
    for (const char *part = path; fd >= 0 && (slash = strchr(part, '/')); part = slash + 1) {
        char name[NAME_MAX + 1];
        int next = -1;
        if ((size_t)snprintf(name, sizeof name, "%.*s", (int)(slash - part), part) >= sizeof name)
            errno = ENAMETOOLONG;
        else if (!make ||
                 (mkdirat(fd, name, 0777) == 0 ? fq_retry_fsync(fd) == 0 : errno == EEXIST))
            next = fq_retry_openat(fd, name, flags, 0);
        const int errno_value = errno;
        close(fd);
        errno = errno_value;
        fd = next;
    }
    return fd;
}

static const char *last_component(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool fq_output_is_temporary(const char *name) {
    return strncmp(name, temporary_prefix, sizeof temporary_prefix - 1) == 0 &&
           fq_has_suffix(name, temporary_suffix);
}

int fq_output_open_file(const fq_output *output, const char *path) {
    if (!output->is_folder)
        return fcntl(output->partial_fd, F_DUPFD_CLOEXEC, 0);
    const int dir_fd = open_folder_of(output->partial_fd, path, false);
    if (dir_fd < 0)
        return -1;
    const int fd = fq_retry_openat(dir_fd, last_component(path),
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0);
    const int errno_value = errno;
    close(dir_fd);
    errno = errno_value;
    return fd;
}

void fq_output_remove_file(const fq_output *output, const char *path) {
    const int dir_fd = output->is_folder ? open_folder_of(output->partial_fd, path, false) : -1;
    if (dir_fd < 0)
        return;
    unlinkat(dir_fd, last_component(path), 0);
    close(dir_fd);
}

static void close_file(fq_output_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    if (file->dir_fd >= 0)
        close(file->dir_fd);
    free(file->path);
}

fq_status fq_output_file_create(fq_output_file *out, fq_output *output, const char *path,
                                mode_t mode, fq_error *err) {
    *out = (fq_output_file){.output = output, .dir_fd = -1, .fd = -1};
    const int n = output->is_folder ? asprintf(&out->path, "%s/%s", output->partial, path)
                                    : asprintf(&out->path, "%s", output->partial);
    if (n < 0) {
        out->path = NULL;
        return fq_fail_memory(err);
    }
    if (output->is_folder) {
        out->name = strrchr(out->path, '/') + 1;
        snprintf(out->temporary, sizeof out->temporary, "%s%s-%zu%s", temporary_prefix,
                 output->token, __atomic_fetch_add(&output->n_temporaries, 1, __ATOMIC_RELAXED),
                 temporary_suffix);
        out->dir_fd = open_folder_of(output->partial_fd, path, true);
        if (out->dir_fd >= 0)
            out->fd = fq_retry_openat(out->dir_fd, out->temporary,
                                      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    } else {
        out->fd = fcntl(output->partial_fd, F_DUPFD_CLOEXEC, 0);
    }
    if (out->fd >= 0)
        return FQ_OK;
    const fq_status status = fail_write(out, errno, "cannot be created", err);
    close_file(out);
    return status;
}

fq_status fq_output_file_resize(fq_output_file *file, uint64_t nbytes, fq_error *err) {
    if (nbytes > INT64_MAX)
        return fail_write(file, EFBIG, "cannot be given its size", err);
    while (ftruncate(file->fd, (off_t)nbytes) != 0) {
        if (errno != EINTR)
            return fail_write(file, errno, "cannot be given its size", err);
    }
    file->mapping = fq_output_map_choose(file->fd);
    return FQ_OK;
}

static fq_status write_bytes(fq_output_file *file, uint64_t offset, const char *bytes,
                             size_t nbytes, fq_error *err) {
    for (size_t n_done = 0; n_done < nbytes;) {
        const ssize_t n =
            pwrite(file->fd, bytes + n_done, nbytes - n_done, (off_t)(offset + n_done));
        if (n > 0)
            n_done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            return fail_write(file, n == 0 ? EIO : errno, "cannot be written", err);
    }
    return FQ_OK;
}

// Writes past the lock where others have and await it. Returns how many bytes.
static size_t write_mapped(const fq_output_file *file, uint64_t offset, const char *bytes,
                           size_t nbytes) {
    const unsigned n_writers = __atomic_load_n(&file->n_writers, __ATOMIC_RELAXED);
    if (file->mapping == FQ_MAP_NEVER ||
        (file->mapping == FQ_MAP_BUSY && n_writers < PLAIN_WRITERS))
        return 0;
    return fq_output_map_write(file->fd, offset, bytes, nbytes);
}

fq_status fq_output_file_write(fq_output_file *file, uint64_t offset, const void *data,
                               size_t nbytes, fq_error *err) {
    const char *bytes = data;
    const size_t n_mapped = write_mapped(file, offset, bytes, nbytes);
    __atomic_fetch_add(&file->n_writers, 1, __ATOMIC_RELAXED);
    const fq_status status =
        write_bytes(file, offset + n_mapped, bytes + n_mapped, nbytes - n_mapped, err);
    __atomic_fetch_sub(&file->n_writers, 1, __ATOMIC_RELAXED);
    if (!status &&
        __atomic_add_fetch(&file->n_unsynced, nbytes, __ATOMIC_RELAXED) >= WRITE_BACK_NBYTES) {
        __atomic_store_n(&file->n_unsynced, 0, __ATOMIC_RELAXED);
        // Only a hint: an error shows in fsync.
        sync_file_range(file->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    return status;
}

// The temporary name must still stand for what was written. Nobody else knows it, so another thing
// there is no accident.
static fq_status check_itself(const fq_output_file *file, fq_error *err) {
    struct stat written, named;
    if (file->dir_fd < 0)
        return FQ_OK;
    const bool is_known = fstat(file->fd, &written) == 0 &&
                          fstatat(file->dir_fd, file->temporary, &named, AT_SYMLINK_NOFOLLOW) == 0;
    if (!is_known && errno != ENOENT)
        return fail_write(file, errno, "cannot be examined", err);
    if (is_known && written.st_dev == named.st_dev && written.st_ino == named.st_ino)
        return FQ_OK;
    return fq_fail(err, FQ_IO, "%s: was replaced or removed while it was written; start again",
                   file->path);
}

fq_status fq_output_file_finish(fq_output_file *file, fq_error *err) {
    // A failed fsync is final: what it could not write is not in the cache any more.
    fq_status status = FQ_OK;
    if (fq_retry_fsync(file->fd) != 0)
        status = fail_write(file, errno, "cannot be made durable", err);
    else
        status = check_itself(file, err);
    if (status != FQ_OK) {
        fq_output_file_drop(file);
        return status;
    }
    const int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0 && errno != EINTR) // interrupted, it is closed all the same
        status = fail_write(file, errno, "cannot be closed", err);
    else if (file->dir_fd >= 0 &&
             renameat(file->dir_fd, file->temporary, file->dir_fd, file->name) != 0)
        status = fail_write(file, errno, "cannot be given its name", err);
    else if (file->dir_fd >= 0 && fq_retry_fsync(file->dir_fd) != 0) {
        status = fail_write(file, errno, "its folder cannot be made durable", err);
        unlinkat(file->dir_fd, file->name, 0);
    }
    if (status == FQ_OK)
        close_file(file);
    else
        fq_output_file_drop(file);
    return status;
}

void fq_output_file_drop(fq_output_file *file) {
    // A lone file goes with OUTPUT.partial. What is renamed already has no temporary any more.
    if (file->dir_fd >= 0 && unlinkat(file->dir_fd, file->temporary, 0) != 0 && errno != ENOENT)
        __atomic_store_n(&file->output->drop_errno, errno, __ATOMIC_RELAXED);
    close_file(file);
}
