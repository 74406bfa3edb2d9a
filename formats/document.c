// Documents: looked at before the work, written after it, and given their name last.
#include "document.h"

#include "identity.h"
#include "retry.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- The place

static fq_status fail_input(const fq_document *document, const fq_input *input, const char *what,
                            fq_error *err) {
    return fq_fail(err, FQ_USAGE, "%s: %s %s, which is left as it is; name a file elsewhere",
                   document->path, what, input->checkpoint.path);
}

static fq_status open_folder(fq_document *document, fq_error *err) {
    const size_t n = (size_t)(document->name - document->path);
    char *folder = n ? strndup(document->path, n) : strdup(".");
    if (!folder)
        return fq_fail_memory(err);
    document->folder_fd = fq_retry_openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    const int errno_value = errno;
    free(folder);
    if (document->folder_fd >= 0)
        return FQ_OK;
    if (errno_value == ENOENT)
        return fq_fail(err, FQ_IO, "%s: its folder does not exist; make it first", document->path);
    return fq_fail_errno(err, errno_value, "%s: its folder cannot be opened", document->path);
}

// Refuses what a rename must not replace: folders, pipes, devices, links such as /dev/stdout.
static fq_status check_place(const fq_document *document, struct stat *found, fq_error *err) {
    *found = (struct stat){0};
    if (fstatat(document->folder_fd, document->name, found, AT_SYMLINK_NOFOLLOW) != 0 &&
        errno != ENOENT)
        return fq_fail_errno(err, errno, "%s: cannot be examined", document->path);
    if (found->st_mode != 0 && !S_ISREG(found->st_mode))
        return fq_fail(err, FQ_USAGE, "%s: is no regular file, and is not replaced; name a file",
                       document->path);
    if (faccessat(document->folder_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        return fq_fail_errno(err, errno, "%s: cannot be created", document->path);
    return FQ_OK;
}

static fq_status check_outside(const fq_document *document, const fq_input *input,
                               const char *folder, fq_error *err) {
    struct stat st;
    if (stat(folder, &st) != 0)
        return errno == ENOENT ? FQ_OK
                               : fq_fail_errno(err, errno, "%s: cannot be examined", folder);
    const int is_inside = fq_tree_is_at_or_below(document->folder_fd, ".", &st);
    if (is_inside < 0)
        return fq_fail_errno(err, errno, "%s: it, or a folder above it, cannot be examined",
                             document->path);
    return is_inside ? fail_input(document, input, "lies in the folder of", err) : FQ_OK;
}

static fq_status check_input(const fq_document *document, const struct stat *found,
                             const fq_input *input, fq_error *err) {
    const bool is_folder = input->checkpoint.is_folder;
    const char *const folders[] = {is_folder ? input->folder : NULL, input->hub.folder,
                                   input->hub.blobs};
    fq_identities shards;
    fq_arena scratch = {0};
    fq_status status = FQ_OK;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0] && !status; i++) {
        if (folders[i])
            status = check_outside(document, input, folders[i], err);
    }
    if (!status)
        status = fq_identities_of(&shards, &scratch, &input->checkpoint, err);
    if (!status && found->st_mode != 0 && fq_identities_find(&shards, found))
        status = fail_input(document, input, "is a file of", err);
    fq_arena_free(&scratch);
    return status;
}

fq_status fq_document_open(fq_document *out, const char *path, const fq_input *const *inputs,
                           size_t n_inputs, fq_error *err) {
    const char *slash = strrchr(path, '/');
    struct stat found;
    *out = (fq_document){.path = path, .name = slash ? slash + 1 : path, .folder_fd = -1};
    if (out->name[0] == '\0')
        return fq_fail(err, FQ_USAGE, "\"%s\": names no file; name one", path);
    fq_status status = open_folder(out, err);
    if (!status)
        status = check_place(out, &found, err);
    for (size_t i = 0; i < n_inputs && !status; i++) {
        if (inputs[i]->folder)
            status = check_input(out, &found, inputs[i], err);
    }
    return status;
}

void fq_document_close(fq_document *document) {
    if (document->path && document->folder_fd >= 0)
        close(document->folder_fd);
    *document = (fq_document){0};
}

// ---- The text

enum { TEMPORARY_SIZE = 64, MAX_TRIES = 100 };

// A name that no other run has; -1 with errno set.
static int create_temporary(const fq_document *document, char out[TEMPORARY_SIZE]) {
    int fd = -1;
    errno = EEXIST;
    for (int i = 0; i < MAX_TRIES && fd < 0 && errno == EEXIST; i++) {
        snprintf(out, TEMPORARY_SIZE, ".fp8q-%ld-%d.tmp", (long)getpid(), i);
        fd = fq_retry_openat(document->folder_fd, out,
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    return fd;
}

// Writes and closes file.
static fq_status write_text(const fq_document *document, FILE *file, fq_document_writer *write,
                            const void *context, fq_error *err) {
    fq_status status = write(context, file, err);
    if (!status && (fflush(file) != 0 || ferror(file)))
        status = fq_fail_errno(err, errno, "%s: cannot be written", document->path);
    if (!status && fq_retry_fsync(fileno(file)) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be made durable", document->path);
    if (fclose(file) != 0 && !status && errno != EINTR) // interrupted, it is closed all the same
        status = fq_fail_errno(err, errno, "%s: cannot be closed", document->path);
    return status;
}

fq_status fq_document_write(const fq_document *document, fq_document_writer *write,
                            const void *context, fq_error *err) {
    const int folder_fd = document->folder_fd;
    char temporary[TEMPORARY_SIZE];
    const int fd = create_temporary(document, temporary);
    if (fd < 0)
        return fq_fail_errno(err, errno, "%s: cannot be created", document->path);
    FILE *file = fdopen(fd, "w");
    fq_status status = file ? write_text(document, file, write, context, err) : fq_fail_memory(err);
    if (!file)
        close(fd);
    if (!status && renameat(folder_fd, temporary, folder_fd, document->name) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be given its name", document->path);
    if (status) {
        unlinkat(folder_fd, temporary, 0);
        return status;
    }
    if (fq_retry_fsync(folder_fd) != 0)
        return fq_fail_errno(err, errno, "%s: its folder cannot be made durable", document->path);
    return FQ_OK;
}
