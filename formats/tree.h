// A folder and everything below it: walked without following links, and removed.
#ifndef FQ_FORMATS_TREE_H
#define FQ_FORMATS_TREE_H

#include "lib/error.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

// Deeper folders are refused: each level holds a file descriptor.
enum { FQ_TREE_MAX_DEPTH = 64 };

typedef enum fq_tree_event {
    FQ_TREE_FOLDER,     // a folder, before what is in it
    FQ_TREE_FOLDER_END, // the same folder, after that
    FQ_TREE_OTHER,      // anything else: files, links, pipes
} fq_tree_event;

typedef struct fq_tree_entry {
    int dir_fd;              // of the folder that holds it
    const char *name;        // in that folder
    const char *path;        // from the root of the walk: "sub/notes.txt"
    const struct stat *stat; // of the entry itself, links not followed
} fq_tree_entry;

// *skip, set at FQ_TREE_FOLDER, leaves the folder out. A status other than FQ_OK ends the walk.
typedef fq_status fq_tree_visitor(void *context, fq_tree_event event, const fq_tree_entry *entry,
                                  bool *skip, fq_error *err);

// Visits everything below the folder root_fd (borrowed), in the order of names (bytes). root_path
// is for messages. Entries that vanish meanwhile are passed over. FQ_IO if a folder cannot be read
// or lies too deep.
fq_status fq_tree_walk(int root_fd, const char *root_path, fq_tree_visitor *visit, void *context,
                       fq_error *err);

// True if something is mounted at that name: another file system, or a folder or file bound to it.
// Kernels before 5.8 do not tell; there, folders of another device count alone.
bool fq_tree_is_mount(int dir_fd, const char *name);

// Removes a file, link or folder with all it holds. Links are removed, never followed, and what is
// mounted there or inside is not entered but ends the removal. path is for messages. FQ_IO.
fq_status fq_tree_remove(int dir_fd, const char *name, const char *path, fq_error *err);

// The entries of the folder fd, sorted by name (bytes), "." and ".." aside. Returns their number,
// or -1 with errno set. Each entry and *out are the caller's (free).
int fq_tree_list(struct dirent ***out, int fd);

// True for two names of one file or folder: by device and inode, so that links do not hide it.
static inline bool fq_tree_is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// 1 if the folder at path in dir_fd, or one above it, is root: links and
// bind mounts do not hide it. 0 if not; -1 with errno set if that cannot be found out.
int fq_tree_is_at_or_below(int dir_fd, const char *path, const struct stat *root);

#endif
