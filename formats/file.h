// Regular files on disk, opened with care: as sources of bytes, and as whole texts.
#ifndef FQ_FORMATS_FILE_H
#define FQ_FORMATS_FILE_H

#include "lib/source.h"

#include <sys/types.h>

// Opens the file at path, relative to dir_fd (AT_FDCWD: the current folder), as a source that reads
// with pread: never blocks on a FIFO, refuses all but regular files (FQ_BAD_INPUT), handles EINTR
// and short reads. name is what messages call it; copied. *out is owned by the caller. An input
// that does not exist or cannot be opened is FQ_IO.
fq_status fq_file_open(fq_source **out, int dir_fd, const char *path, const char *name,
                       fq_error *err);

// FQ_IO if the open file's size or mtime is not what it was when it was opened. A file that only
// got another name, or a new one under its old name, does no harm: the open one is read.
fq_status fq_file_check_unchanged(const fq_source *source, fq_error *err);

// When an open file source was last changed, as it was opened: nanoseconds since 1970, modulo 2^64.
uint64_t fq_file_mtime_ns(const fq_source *source);

// Device and inode of an open file source.
void fq_file_identity(const fq_source *source, dev_t *device, ino_t *inode);

// Closes a source that fq_file_open made. NULL is taken.
void fq_file_close(fq_source *source);

// Reads a whole source of at most max_nbytes into *out (NUL-terminated, owned by the caller, free).
// A larger one is FQ_BAD_INPUT.
fq_status fq_source_read_all(char **out, size_t *nbytes, fq_source *source, uint64_t max_nbytes,
                             fq_error *err);

#endif
