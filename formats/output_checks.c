// What an output must not be: in the way, the input itself, inside, around or linked to it.
#include "output_parts.h"

#include "identity.h"
#include "retry.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

typedef struct checker {
    const fq_output *output;
    const fq_input *input;
    fq_identities shards;
    struct stat folder; // of the input
    const char *place;  // OUTPUT or OUTPUT.partial, whichever is looked at
} checker;

static fq_status fail_examine(const checker *c, fq_error *err) {
    return fq_fail_errno(err, errno, "%s: it, or a folder above it, cannot be examined", c->place);
}

// what: "is", "lies inside", "holds" ...
static fq_status fail_conflict(const checker *c, const char *what, fq_error *err) {
    return fq_fail(err, FQ_USAGE, "%s: %s the input %s; name another output with -o", c->place,
                   what, c->input->checkpoint.path);
}

static fq_status fail_shard(const checker *c, const fq_identity *found, const char *path,
                            fq_error *err) {
    const fq_checkpoint *checkpoint = &c->input->checkpoint;
    if (!checkpoint->is_folder && !path)
        return fail_conflict(c, "is", err);
    return fq_fail(err, FQ_USAGE,
                   "%s%s%s: is the same file as %s of the input %s (a link); name another output "
                   "with -o",
                   c->place, path ? "/" : "", path ? path : "",
                   checkpoint->shards[found->shard].name, checkpoint->path);
}

// True for the reasons for which there is nothing at a place, or a link there cannot be followed.
static bool leads_nowhere(int errno_value) {
    return errno_value == ENOENT || errno_value == ENOTDIR || errno_value == ELOOP ||
           errno_value == EACCES;
}

// Looks at what is at the place name, links followed.
static fq_status check_target(const checker *c, const char *name, fq_error *err) {
    struct stat st;
    const int parent_fd = c->output->parent_fd;
    if (fstatat(parent_fd, name, &st, 0) != 0)
        return leads_nowhere(errno) ? FQ_OK : fail_examine(c, err);
    const fq_identity *shard = fq_identities_find(&c->shards, &st);
    if (shard)
        return fail_shard(c, shard, NULL, err);
    if (!S_ISDIR(st.st_mode))
        return FQ_OK;
    if (c->input->checkpoint.is_folder && fq_tree_is_same(&st, &c->folder))
        return fail_conflict(c, "is", err);
    const bool is_folder = c->input->checkpoint.is_folder;
    const int is_inside = is_folder ? fq_tree_is_at_or_below(parent_fd, name, &c->folder) : 0;
    if (is_inside < 0 && errno == ENOENT)
        return FQ_OK; // gone at once: another run, with force, has discarded it
    if (is_inside < 0)
        return fail_examine(c, err);
    const int is_around = fq_tree_is_at_or_below(AT_FDCWD, c->input->folder, &st);
    if (is_around < 0)
        return fail_examine(c, err);
    return is_inside   ? fail_conflict(c, "lies inside", err)
           : is_around ? fail_conflict(c, "holds", err)
                       : FQ_OK;
}

// In a folder that may not be written nothing can be removed.
static fq_status check_removable(const checker *c, const fq_tree_entry *entry, fq_error *err) {
    if (faccessat(entry->dir_fd, ".", W_OK | X_OK, AT_EACCESS) == 0 || errno == ENOENT)
        return FQ_OK;
    return fq_fail(err, fq_status_of_errno(errno),
                   "%s/%s: could not be removed in the end: %s; make its folder writable (chmod), "
                   "or name another output with -o",
                   c->place, entry->path, strerror(errno));
}

static fq_status check_entry(void *context, fq_tree_event event, const fq_tree_entry *entry,
                             bool *skip, fq_error *err) {
    (void)skip;
    const checker *c = context;
    if (event != FQ_TREE_FOLDER_END && fq_tree_is_mount(entry->dir_fd, entry->name))
        return fq_fail(err, FQ_USAGE,
                       "%s/%s: is a mount point inside a folder that is to be removed; unmount it, "
                       "or name another output with -o",
                       c->place, entry->path);
    if (event == FQ_TREE_FOLDER && c->input->checkpoint.is_folder &&
        fq_tree_is_same(entry->stat, &c->folder))
        return fail_conflict(c, "holds", err);
    const fq_identity *shard = fq_identities_find(&c->shards, entry->stat);
    if (shard)
        return fail_shard(c, shard, entry->path, err);
    return event == FQ_TREE_FOLDER_END ? FQ_OK : check_removable(c, entry, err);
}

// Looks at everything in a folder that will be removed or resumed.
static fq_status check_contents(checker *c, const char *name, fq_error *err) {
    const int fd = fq_retry_openat(c->output->parent_fd, name,
                                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP || errno == ENOENT))
        return FQ_OK;
    if (fd < 0)
        return fq_fail_errno(err, errno, "%s: cannot open the folder", c->place);
    const fq_status status = fq_tree_walk(fd, c->place, check_entry, c, err);
    close(fd);
    return status;
}

// True if a sticky folder, such as /tmp, keeps the user from renaming or removing what is in it.
static bool is_kept_by_sticky(const fq_output *output, const struct stat *st) {
    struct stat parent;
    const uid_t user = geteuid();
    return fstat(output->parent_fd, &parent) == 0 && (parent.st_mode & S_ISVTX) != 0 && user != 0 &&
           user != parent.st_uid && user != st->st_uid;
}

// What is at the place name and has to go, but cannot or must not be moved or removed.
static fq_status check_movable(const checker *c, const char *name, const struct stat *st,
                               fq_error *err) {
    if (fq_tree_is_mount(c->output->parent_fd, name))
        return fq_fail(err, FQ_USAGE,
                       "%s: is a mount point and cannot be replaced; name another output with -o, "
                       "such as a folder in it",
                       c->place);
    if (is_kept_by_sticky(c->output, st))
        return fq_fail(err, FQ_USAGE,
                       "%s: belongs to another user, and its folder lets only owners replace "
                       "things (sticky); name another output with -o",
                       c->place);
    if (!S_ISDIR(st->st_mode))
        return FQ_OK;
    const int is_current = fq_tree_is_at_or_below(AT_FDCWD, ".", st);
    if (is_current < 0)
        return fail_examine(c, err);
    if (is_current)
        return fq_fail(err, FQ_USAGE,
                       "%s: is the current folder or holds it, and is not replaced; name another "
                       "output with -o",
                       c->place);
    return FQ_OK;
}

// Looks at what is at OUTPUT itself, links not followed.
static fq_status check_absent_or_force(const checker *c, fq_error *err) {
    struct stat st;
    const fq_output *output = c->output;
    if (fstatat(output->parent_fd, output->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? FQ_OK
                               : fq_fail_errno(err, errno, "%s: cannot be examined", c->place);
    if (output->is_folder && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        return fq_fail(err, FQ_USAGE,
                       "%s: is a file, but the output of the folder %s is a folder; name another "
                       "output with -o",
                       c->place, c->input->checkpoint.path);
    if (!output->is_folder && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return fq_fail(err, FQ_USAGE,
                       "%s: is no regular file, but the output of the file %s is one; name a file "
                       "with -o",
                       c->place, c->input->checkpoint.path);
    if (!output->force)
        return fq_fail(err, FQ_USAGE,
                       "%s: exists already; pass --force to replace it, or name another output "
                       "with -o",
                       c->place);
    return check_movable(c, output->name, &st, err);
}

static fq_status check_partial(checker *c, fq_error *err) {
    struct stat st;
    const fq_output *output = c->output;
    c->place = output->partial;
    fq_status status = check_target(c, output->partial_name, err);
    if (status != FQ_OK)
        return status;
    if (fstatat(output->parent_fd, output->partial_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? FQ_OK
                               : fq_fail_errno(err, errno, "%s: cannot be created", c->place);
    if (output->force || fq_output_found(output)) {
        status = check_movable(c, output->partial_name, &st, err);
        return status == FQ_OK ? check_contents(c, output->partial_name, err) : status;
    }
    return fq_fail(err, FQ_USAGE,
                   "%s: %s is there, of a run that was interrupted or is still going on; pass "
                   "--resume to go on with it or --force to discard it, or name another output "
                   "with -o",
                   output->path, output->partial);
}

// Refuses a place in folder, whether or not anything is there yet.
static fq_status check_outside(const checker *c, const struct stat *folder, const char *what,
                               fq_error *err) {
    const int is_inside = fq_tree_is_at_or_below(c->output->parent_fd, ".", folder);
    if (is_inside < 0)
        return fail_examine(c, err);
    return is_inside ? fail_conflict(c, what, err) : FQ_OK;
}

static fq_status check_parent(const checker *c, fq_error *err) {
    const fq_hub_snapshot *hub = &c->input->hub;
    const char *const managed[] = {hub->folder, hub->blobs};
    fq_status status = FQ_OK;
    if (c->input->checkpoint.is_folder)
        status = check_outside(c, &c->folder, "lies inside", err);
    for (size_t i = 0; i < sizeof managed / sizeof managed[0] && status == FQ_OK; i++) {
        struct stat st;
        if (!managed[i])
            continue;
        if (stat(managed[i], &st) == 0)
            status = check_outside(c, &st, "lies inside the Hugging Face repository of", err);
        else if (errno != ENOENT)
            status = fq_fail_errno(err, errno, "%s: cannot be examined", managed[i]);
    }
    return status;
}

// Found out now, not when all shards are written.
static fq_status check_side_files(const fq_input *input, fq_error *err) {
    for (size_t i = 0; i < input->n_side_files; i++) {
        const fq_side_file *file = &input->side_files[i];
        if (file->kind == FQ_SIDE_COPY &&
            faccessat(input->folder_fd, file->path, R_OK, AT_EACCESS) != 0)
            return fq_fail_errno(err, errno, "%s/%s: is to be copied, but cannot be read",
                                 input->folder, file->path);
    }
    return FQ_OK;
}

fq_status fq_output_check(const fq_output *output, const fq_input *input, fq_error *err) {
    checker c = {.output = output, .input = input, .place = output->path};
    fq_arena scratch = {0};
    fq_status status = fq_identities_of(&c.shards, &scratch, &input->checkpoint, err);
    if (status != FQ_OK)
        goto out;
    if (stat(input->folder, &c.folder) != 0) {
        status = fq_fail_errno(err, errno, "%s: cannot be examined", input->folder);
        goto out;
    }
    status = check_parent(&c, err);
    if (status == FQ_OK)
        status = check_target(&c, output->name, err);
    if (status == FQ_OK && !output->is_published)
        status = check_absent_or_force(&c, err);
    if (status == FQ_OK && output->force && !output->is_published)
        status = check_contents(&c, output->name, err);
    if (status == FQ_OK)
        status = check_partial(&c, err);
    if (status == FQ_OK)
        status = check_side_files(input, err);
out:
    fq_arena_free(&scratch);
    return status;
}
