// Calls that a signal may interrupt: made again until they are not. File systems in user space and
// some of the network end them with EINTR even where the handler asks for SA_RESTART.
#ifndef FQ_FORMATS_RETRY_H
#define FQ_FORMATS_RETRY_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

// openat; mode is for O_CREAT. Returns -1 with errno set.
static inline int fq_retry_openat(int dir_fd, const char *path, int flags, mode_t mode) {
    int fd;
    do
        fd = openat(dir_fd, path, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

// fsync. Interrupted, it has told nothing yet; any other failure is final.
static inline int fq_retry_fsync(int fd) {
    int rc;
    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

#endif
