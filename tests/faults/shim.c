// Loaded before libc (LD_PRELOAD), stands in place of the calls that a program makes, so that one
// of them can be made to go wrong: fault.h says how.
#include "fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static call kind_by_name(const char *path, call kind) {
    static const char journal[] = ".partial.journal";
    const size_t n = strlen(path), n_journal = strlen(journal);
    return n >= n_journal && strcmp(path + n - n_journal, journal) == 0 ? CALL_JOURNAL : kind;
}

static call kind_by_fd(int fd, call kind) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (n < 0)
        return kind;
    path[n] = '\0';
    return kind_by_name(path, kind);
}

// ---- Memory

void *malloc(size_t nbytes) {
    static void *(*real)(size_t);
    if (!real)
        real = NEXT(malloc);
    return fault_meet(CALL_ALLOC) == FAIL ? NULL : real(nbytes);
}

void *calloc(size_t n, size_t item_nbytes) {
    static void *(*real)(size_t, size_t);
    if (!real)
        real = NEXT(calloc);
    return fault_meet(CALL_ALLOC) == FAIL ? NULL : real(n, item_nbytes);
}

void *realloc(void *memory, size_t nbytes) {
    static void *(*real)(void *, size_t);
    if (!real)
        real = NEXT(realloc);
    return fault_meet(CALL_ALLOC) == FAIL ? NULL : real(memory, nbytes);
}

int posix_memalign(void **out, size_t alignment, size_t nbytes) {
    return fault_meet(CALL_ALLOC) == FAIL ? errno : NEXT(posix_memalign)(out, alignment, nbytes);
}

void *aligned_alloc(size_t alignment, size_t nbytes) {
    return fault_meet(CALL_ALLOC) == FAIL ? NULL : NEXT(aligned_alloc)(alignment, nbytes);
}

// AddressSanitizer brings its own of these, which do not call our malloc.

static char *copy_of(const char *text, size_t nbytes) {
    char *copy = malloc(nbytes + 1);
    if (!copy)
        return NULL;
    copy[nbytes] = '\0';
    return memcpy(copy, text, nbytes);
}

char *strdup(const char *text) { return copy_of(text, strlen(text)); }

char *strndup(const char *text, size_t max_nbytes) {
    return copy_of(text, strnlen(text, max_nbytes));
}

static int print_new(char **out, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *out = n < 0 ? NULL : malloc((size_t)n + 1);
    return *out ? vsnprintf(*out, (size_t)n + 1, format, args) : -1;
}

int asprintf(char **restrict out, const char *restrict format, ...) {
    va_list args;
    va_start(args, format);
    const int n = print_new(out, format, args);
    va_end(args);
    return n;
}

// asprintf, as it is called where _FORTIFY_SOURCE is in force.
int __asprintf_chk(char **out, int flag, const char *format, ...);
int __asprintf_chk(char **out, int flag, const char *format, ...) {
    (void)flag;
    va_list args;
    va_start(args, format);
    const int n = print_new(out, format, args);
    va_end(args);
    return n;
}

// ---- Bytes

ssize_t pread(int fd, void *out, size_t nbytes, off_t offset) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_PREAD));
    return met == FAIL ? -1 : fault_end(met, NEXT(pread)(fd, out, fault_part(met, nbytes), offset));
}

ssize_t pwrite(int fd, const void *data, size_t nbytes, off_t offset) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_PWRITE));
    return met == FAIL ? -1
                       : fault_end(met, NEXT(pwrite)(fd, data, fault_part(met, nbytes), offset));
}

// A mapping of a file: one of no file is memory, which libraries ask for as well.
void *mmap(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset) {
    const fate met = fd < 0 ? PASS : fault_meet(CALL_MMAP);
    return met == FAIL ? MAP_FAILED
                       : (void *)fault_end(
                             met, (long)NEXT(mmap)(at, nbytes, protection, flags, fd, offset));
}

ssize_t process_vm_writev(pid_t process, const struct iovec *from, unsigned long n_from,
                          const struct iovec *to, unsigned long n_to, unsigned long flags) {
    const fate met = fault_meet(CALL_PROCESS_VM_WRITEV);
    const struct iovec part = {from->iov_base, fault_part(met, from->iov_len)};
    return met == FAIL
               ? -1
               : fault_end(met, NEXT(process_vm_writev)(process, &part, n_from, to, n_to, flags));
}

int ftruncate(int fd, off_t nbytes) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_FTRUNCATE));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(ftruncate)(fd, nbytes));
}

int fsync(int fd) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_FSYNC));
    const int errno_value = errno;
    fault_sync(fd, met == FAIL && errno_value != EINTR);
    errno = errno_value;
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(fsync)(fd));
}

int sync_file_range(int fd, off64_t offset, off64_t nbytes, unsigned flags) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_SYNC_FILE_RANGE));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(sync_file_range)(fd, offset, nbytes, flags));
}

int madvise(void *memory, size_t nbytes, int advice) {
    const fate met = fault_meet(CALL_MADVISE);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(madvise)(memory, nbytes, advice));
}

// ---- Streams: pages are written through them, other than the standard ones

FILE *fopen(const char *restrict path, const char *restrict mode) {
    const fate met = fault_meet(strchr(mode, 'w') ? CALL_CREATE : CALL_OPEN);
    return met == FAIL ? NULL : NEXT(fopen)(path, mode);
}

FILE *fdopen(int fd, const char *mode) {
    return fault_meet(CALL_ALLOC) == FAIL ? NULL : NEXT(fdopen)(fd, mode);
}

int fflush(FILE *file) {
    const bool is_standard = !file || file == stdout || file == stderr;
    const fate met = is_standard ? PASS : fault_meet(CALL_FFLUSH);
    return met == FAIL ? EOF : (int)fault_end(met, NEXT(fflush)(file));
}

int fclose(FILE *file) {
    const fate met = fault_meet(CALL_CLOSE);
    const int errno_value = errno;
    const int rc = (int)fault_end(met, NEXT(fclose)(file));
    if (met != FAIL)
        return rc;
    errno = errno_value;
    return EOF;
}

// ---- Descriptors

static call kind_of_open(const char *path, int flags) {
    return kind_by_name(path, flags & O_CREAT ? CALL_CREATE : CALL_OPEN);
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    const fate met = fault_meet(kind_of_open(path, flags));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(open)(path, flags, mode));
}

int openat(int dir_fd, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    const fate met = fault_meet(kind_of_open(path, flags));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(openat)(dir_fd, path, flags, mode));
}

int close(int fd) {
    const int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
    const bool is_written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
    const fate met = fault_meet(kind_by_fd(fd, is_written ? CALL_CLOSE : CALL_CLOSE_READ));
    const int errno_value = errno;
    const int rc = (int)fault_end(met, NEXT(close)(fd));
    if (rc != 0 && errno == EBADF)
        fault_bad_close();
    if (met != FAIL)
        return rc;
    errno = errno_value;
    return -1;
}

int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *); // an int for some commands: passed on as it came
    va_end(args);
    const fate met = fault_meet(CALL_FCNTL);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(fcntl)(fd, command, argument));
}

int flock(int fd, int operation) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_FLOCK));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(flock)(fd, operation));
}

int fstat(int fd, struct stat *out) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_FSTAT));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(fstat)(fd, out));
}

int fstatfs(int fd, struct statfs *out) {
    const fate met = fault_meet(CALL_FSTATFS);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(fstatfs)(fd, out));
}

int fstatvfs(int fd, struct statvfs *out) {
    const fate met = fault_meet(CALL_FSTATVFS);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(fstatvfs)(fd, out));
}

int futimens(int fd, const struct timespec times[2]) {
    const fate met = fault_meet(kind_by_fd(fd, CALL_FUTIMENS));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(futimens)(fd, times));
}

// ---- Names

int stat(const char *restrict path, struct stat *restrict out) {
    const fate met = fault_meet(CALL_STAT);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(stat)(path, out));
}

int fstatat(int dir_fd, const char *restrict path, struct stat *restrict out, int flags) {
    const fate met = fault_meet(kind_by_name(path, CALL_FSTATAT));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(fstatat)(dir_fd, path, out, flags));
}

int statx(int dir_fd, const char *restrict path, int flags, unsigned mask,
          struct statx *restrict out) {
    const fate met = fault_meet(CALL_STATX);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(statx)(dir_fd, path, flags, mask, out));
}

int faccessat(int dir_fd, const char *path, int mode, int flags) {
    const fate met = fault_meet(CALL_FACCESSAT);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(faccessat)(dir_fd, path, mode, flags));
}

ssize_t readlink(const char *restrict path, char *restrict out, size_t nbytes) {
    const fate met = fault_meet(CALL_READLINK);
    return met == FAIL ? -1 : fault_end(met, NEXT(readlink)(path, out, nbytes));
}

char *realpath(const char *restrict path, char *restrict out) {
    return fault_meet(CALL_REALPATH) == FAIL ? NULL : NEXT(realpath)(path, out);
}

int scandirat(int dir_fd, const char *restrict path, struct dirent ***restrict out,
              int (*filter)(const struct dirent *),
              int (*compare)(const struct dirent **, const struct dirent **)) {
    const fate met = fault_meet(CALL_SCANDIRAT);
    return met == FAIL ? -1
                       : (int)fault_end(met, NEXT(scandirat)(dir_fd, path, out, filter, compare));
}

int mkdirat(int dir_fd, const char *path, mode_t mode) {
    const fate met = fault_meet(CALL_MKDIRAT);
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(mkdirat)(dir_fd, path, mode));
}

int unlinkat(int dir_fd, const char *path, int flags) {
    const fate met = fault_meet(kind_by_name(path, CALL_UNLINKAT));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(unlinkat)(dir_fd, path, flags));
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    const fate met = fault_meet(kind_by_name(to, CALL_RENAMEAT));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(renameat)(from_fd, from, to_fd, to));
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    if (fault_rename_flags_unknown()) {
        errno = EINVAL;
        return -1;
    }
    const fate met = fault_meet(kind_by_name(to, CALL_RENAMEAT2));
    return met == FAIL ? -1 : (int)fault_end(met, NEXT(renameat2)(from_fd, from, to_fd, to, flags));
}

// ---- Threads

typedef struct beginning {
    void *(*start)(void *);
    void *argument;
} beginning;

// Where a thread of the program begins. What it took to get there is not the program's doing.
static void *begin(void *context) {
    const beginning given = *(beginning *)context;
    free(context);
    fault_arm();
    return given.start(given.argument);
}

int pthread_create(pthread_t *restrict out, const pthread_attr_t *restrict attributes,
                   void *(*start)(void *), void *restrict argument) {
    const fate met = fault_meet(CALL_PTHREAD_CREATE);
    if (met == FAIL)
        return EAGAIN;
    beginning *given = NEXT(malloc)(sizeof *given);
    if (!given)
        return EAGAIN;
    *given = (beginning){start, argument};
    const int rc = NEXT(pthread_create)(out, attributes, begin, given);
    if (rc != 0)
        free(given);
    return (int)fault_end(met, rc);
}
