// The room that an output takes: what it needs, and whether that is free.
#include "output_parts.h"

#include "retry.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { STAT_BLOCK_NBYTES = 512 }; // of st_blocks, by stat(2)

static fq_status add_nbytes(void *sum, fq_tree_event event, const fq_tree_entry *entry, bool *skip,
                            fq_error *err) {
    (void)skip;
    (void)err;
    if (event == FQ_TREE_OTHER)
        *(uint64_t *)sum += (uint64_t)entry->stat->st_blocks * STAT_BLOCK_NBYTES;
    return FQ_OK;
}

// Bytes on disk of an OUTPUT.partial that force will discard, or that is there already; 0 where
// that cannot be found out.
static uint64_t partial_nbytes(const fq_output *output) {
    struct stat st;
    fq_error ignored = {0};
    uint64_t sum = 0;
    if ((!output->force && !output->is_resumed) ||
        fstatat(output->parent_fd, output->partial_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return (uint64_t)st.st_blocks * STAT_BLOCK_NBYTES;
    const int fd = fq_retry_openat(output->parent_fd, output->partial_name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    fq_tree_walk(fd, output->partial, add_nbytes, &sum, &ignored);
    close(fd);
    return sum;
}

static void add_saturated(uint64_t *sum, uint64_t nbytes) {
    if (__builtin_add_overflow(*sum, nbytes, sum))
        *sum = UINT64_MAX;
}

// Tensor data and all that goes along. The headers of the output and its index name the same
// tensors as the headers of the input, so that each of the two is taken to be as long as those.
uint64_t fq_output_needed_nbytes(const fq_input *input, uint64_t data_nbytes) {
    uint64_t sum = data_nbytes;
    for (size_t i = 0; i < input->checkpoint.n_shards; i++)
        add_saturated(&sum, 2 * input->checkpoint.shards[i].data_start);
    for (size_t i = 0; i < input->n_side_files; i++) {
        if (input->side_files[i].kind == FQ_SIDE_COPY ||
            input->side_files[i].kind == FQ_SIDE_CONFIG)
            add_saturated(&sum, input->side_files[i].nbytes);
    }
    return sum;
}

fq_status fq_output_check_room(const fq_output *output, fq_error *err) {
    struct statvfs fs;
    while (fstatvfs(output->parent_fd, &fs) != 0) {
        if (errno != EINTR)
            return fq_fail_errno(err, errno, "%s: its file system cannot be examined",
                                 output->path);
    }
    const uint64_t free_nbytes = (uint64_t)fs.f_bavail * fs.f_frsize + partial_nbytes(output);
    if (fs.f_blocks == 0 || output->needed_nbytes <= free_nbytes) // 0: it does not say
        return FQ_OK;
    return fq_fail(err, FQ_IO,
                   "%s: needs about %" PRIu64 " bytes, but only %" PRIu64
                   " are free there; make room, or name another output with -o",
                   output->path, output->needed_nbytes, free_nbytes);
}
