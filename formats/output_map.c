// Writes to a file through a mapping, past the lock that lets one thread at a time write to it.
#include "output_parts.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

// Brought in and copied at once: so few that what was zeroed is still in the cache.
enum { CHUNK_NBYTES = 128 << 10 };

fq_output_mapping fq_output_map_choose(int fd) {
    struct statfs fs;
    const char *forced = getenv("FP8Q_MAP_OUTPUT");
    if (forced)
        return strcmp(forced, "always") == 0 ? FQ_MAP_ALWAYS : FQ_MAP_NEVER;
    if (fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
        return FQ_MAP_BUSY;
    return FQ_MAP_NEVER;
}

// The kernel copies, as it would for a debugger: where a page cannot be had, because the disk is
// full or the file was cut, that ends the copy, where an access by the program itself would be
// SIGBUS.
static size_t copy(char *to, const char *data, size_t nbytes) {
    size_t n_done = 0;
    while (n_done < nbytes) {
        const size_t left = nbytes - n_done, n = left < CHUNK_NBYTES ? left : CHUNK_NBYTES;
        const struct iovec from = {(void *)(data + n_done), n}, there = {to + n_done, n};
        const ssize_t n_copied = process_vm_writev(getpid(), &from, 1, &there, 1, 0);
        if (n_copied <= 0)
            break;
        n_done += (size_t)n_copied;
    }
    return n_done;
}

size_t fq_output_map_write(int fd, uint64_t offset, const void *data, size_t nbytes) {
    const size_t before = offset % (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, before + nbytes, PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - before));
    if (map == MAP_FAILED)
        return 0;
    const size_t n_done = copy(map + before, data, nbytes);
    munmap(map, before + nbytes);
    return n_done;
}
