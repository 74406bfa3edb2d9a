// A folder and everything below it: walked without following links, and removed.
#include "tree.h"

#include "retry.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct walk {
    fq_tree_visitor *visit;
    void *context;
    const char *root_path;
    char path[PATH_MAX]; // of the entry at hand, from the root
} walk;

static fq_status walk_folder(walk *w, int fd, size_t path_nbytes, uint32_t depth, fq_error *err);

static int is_entry(const struct dirent *item) {
    return strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

int fq_tree_list(struct dirent ***out, int fd) {
    return scandirat(fd, ".", out, is_entry, by_bytes);
}

static fq_status walk_into(walk *w, const fq_tree_entry *entry, size_t path_nbytes, uint32_t depth,
                           fq_error *err) {
    if (depth == FQ_TREE_MAX_DEPTH)
        return fq_fail(err, FQ_IO, "%s/%s: folders are nested deeper than %d", w->root_path,
                       entry->path, FQ_TREE_MAX_DEPTH);
    const int fd = fq_retry_openat(entry->dir_fd, entry->name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT)
        return FQ_OK;
    if (fd < 0)
        return fq_fail_errno(err, errno, "%s/%s: cannot open the folder", w->root_path,
                             entry->path);
    const fq_status status = walk_folder(w, fd, path_nbytes, depth + 1, err);
    close(fd);
    return status;
}

static fq_status walk_entry(walk *w, int dir_fd, const char *name, size_t path_nbytes,
                            uint32_t depth, fq_error *err) {
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT)
            return FQ_OK;
        return fq_fail_errno(err, errno, "%s/%.*s%s: cannot look at it", w->root_path,
                             (int)path_nbytes, w->path, name);
    }
    const size_t room = sizeof w->path - path_nbytes;
    const int n = snprintf(w->path + path_nbytes, room, "%s", name);
    if (n < 0 || (size_t)n + 1 >= room) // the 1 is for the '/' of a folder
        return fq_fail_errno(err, ENAMETOOLONG, "%s/%.*s%s", w->root_path, (int)path_nbytes,
                             w->path, name);
    const fq_tree_entry entry = {dir_fd, name, w->path, &st};
    bool skip = false;
    if (!S_ISDIR(st.st_mode))
        return w->visit(w->context, FQ_TREE_OTHER, &entry, &skip, err);

    fq_status status = w->visit(w->context, FQ_TREE_FOLDER, &entry, &skip, err);
    if (status != FQ_OK || skip)
        return status;
    const size_t end = path_nbytes + (size_t)n;
    w->path[end] = '/';
    w->path[end + 1] = '\0';
    status = walk_into(w, &entry, end + 1, depth, err);
    w->path[end] = '\0';
    if (status != FQ_OK)
        return status;
    return w->visit(w->context, FQ_TREE_FOLDER_END, &entry, &skip, err);
}

static fq_status walk_folder(walk *w, int fd, size_t path_nbytes, uint32_t depth, fq_error *err) {
    struct dirent **items = NULL;
    // The whole list first: a visitor may remove what it is shown.
    const int n = fq_tree_list(&items, fd);
    if (n < 0 && errno == ENOENT)
        return FQ_OK;
    if (n < 0)
        return fq_fail_errno(err, errno, "%s/%.*s: cannot list the folder", w->root_path,
                             (int)path_nbytes, w->path);
    fq_status status = FQ_OK;
    for (int i = 0; i < n && status == FQ_OK; i++)
        status = walk_entry(w, fd, items[i]->d_name, path_nbytes, depth, err);
    for (int i = 0; i < n; i++)
        free(items[i]);
    free(items);
    return status;
}

fq_status fq_tree_walk(int root_fd, const char *root_path, fq_tree_visitor *visit, void *context,
                       fq_error *err) {
    walk w = {.visit = visit, .context = context, .root_path = root_path};
    return walk_folder(&w, root_fd, 0, 0, err);
}

bool fq_tree_is_mount(int dir_fd, const char *name) {
    struct statx stx;
    struct stat st, parent;
    if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &stx) == 0 &&
        (stx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0)
        return (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           fstat(dir_fd, &parent) == 0 && st.st_dev != parent.st_dev;
}

static fq_status fail_mount(const char *path, const char *separator, const char *name,
                            fq_error *err) {
    return fq_fail(err, FQ_IO,
                   "%s%s%s: cannot remove it, as something is mounted there; unmount it", path,
                   separator, name);
}

static fq_status remove_entry(void *context, fq_tree_event event, const fq_tree_entry *entry,
                              bool *skip, fq_error *err) {
    (void)skip;
    const char *root_path = *(const char *const *)context;
    if (event == FQ_TREE_FOLDER)
        return fq_tree_is_mount(entry->dir_fd, entry->name)
                   ? fail_mount(root_path, "/", entry->path, err)
                   : FQ_OK;
    const int flags = event == FQ_TREE_FOLDER_END ? AT_REMOVEDIR : 0;
    if (unlinkat(entry->dir_fd, entry->name, flags) != 0 && errno != ENOENT)
        return fq_fail_errno(err, errno, "%s/%s: cannot remove it", root_path, entry->path);
    return FQ_OK;
}

fq_status fq_tree_remove(int dir_fd, const char *name, const char *path, fq_error *err) {
    struct stat st;
    int flags = 0;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? FQ_OK : fq_fail_errno(err, errno, "%s: cannot look at it", path);
    if (S_ISDIR(st.st_mode)) {
        if (fq_tree_is_mount(dir_fd, name))
            return fail_mount(path, "", "", err);
        const int fd =
            fq_retry_openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
        if (fd < 0)
            return fq_fail_errno(err, errno, "%s: cannot open the folder", path);
        const fq_status status = fq_tree_walk(fd, path, remove_entry, &path, err);
        close(fd);
        if (status != FQ_OK)
            return status;
        flags = AT_REMOVEDIR;
    }
    if (unlinkat(dir_fd, name, flags) != 0)
        return fq_fail_errno(err, errno, "%s: cannot remove it", path);
    return FQ_OK;
}

int fq_tree_is_at_or_below(int dir_fd, const char *path, const struct stat *root) {
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    struct stat st, below = {0};
    int result = -1;
    int fd = fq_retry_openat(dir_fd, path, flags, 0);
    while (fd >= 0 && fstat(fd, &st) == 0) {
        // The top is its own parent.
        result = fq_tree_is_same(&st, root) ? 1 : fq_tree_is_same(&st, &below) ? 0 : -1;
        if (result >= 0)
            break;
        below = st;
        const int up = fq_retry_openat(fd, "..", flags, 0);
        const int errno_value = errno;
        close(fd);
        errno = errno_value;
        fd = up;
    }
    const int errno_value = errno;
    if (fd >= 0)
        close(fd);
    errno = errno_value;
    return result;
}
