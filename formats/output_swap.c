// OUTPUT gets its name: by one rename, or by way of OUTPUT.partial.old where the file system cannot
// exchange two names. What a killed run left there is found, put back or removed.
#include "output_parts.h"

#include "retry.h"
#include "tree.h"

#include <errno.h>
#include <stdio.h>

// True if a call failed because the file system does not know its flags.
static bool is_unsupported(int errno_value) {
    return errno_value == EINVAL || errno_value == ENOSYS || errno_value == EOPNOTSUPP;
}

// Renames within the parent, unless `to` exists. Returns 0, or -1 with errno set.
static int rename_new(int dir_fd, const char *from, const char *to) {
    struct stat st;
    if (renameat2(dir_fd, from, dir_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (!is_unsupported(errno))
        return -1;
    if (fstatat(dir_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(dir_fd, from, dir_fd, to);
}

// Exchanges OUTPUT and OUTPUT.partial; by way of a third name where that is not known as one step.
static int swap(const fq_output *output) {
    const int dir_fd = output->parent_fd;
    const char *new = output->partial_name, *old = output->name, *aside = output->aside_name;
    if (renameat2(dir_fd, new, dir_fd, old, RENAME_EXCHANGE) == 0)
        return 0;
    if (!is_unsupported(errno))
        return -1;
    if (rename_new(dir_fd, old, aside) != 0)
        return -1;
    const bool moved = renameat(dir_fd, new, dir_fd, old) == 0;
    if (moved && renameat(dir_fd, aside, dir_fd, new) == 0)
        return 0;
    const int errno_value = errno;
    if (moved)
        renameat(dir_fd, old, dir_fd, new);
    renameat(dir_fd, aside, dir_fd, old);
    errno = errno_value;
    return -1;
}

int fq_output_give_name(bool *replaced, const fq_output *output) {
    int rc = rename_new(output->parent_fd, output->partial_name, output->name);
    *replaced = false;
    if (rc != 0 && errno == EEXIST && output->force) {
        rc = swap(output);
        *replaced = rc == 0;
    }
    return rc;
}

void fq_output_take_name_back(const fq_output *output, bool replaced) {
    if (replaced)
        swap(output);
    else
        renameat(output->parent_fd, output->name, output->parent_fd, output->partial_name);
}

// ---- What a killed run left under the third name

static bool is_there(const fq_output *output, const char *name) {
    struct stat st;
    return fstatat(output->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

// No other run moves it meanwhile: this one has the journal's lock.
static fq_status put_back(const fq_output *output, fq_error *err) {
    if (rename_new(output->parent_fd, output->aside_name, output->name) == 0 &&
        fq_retry_fsync(output->parent_fd) == 0)
        return FQ_OK;
    return fq_fail_errno(err, errno, "%s: cannot be given its name %s back", output->aside,
                         output->path);
}

// What is known of the thing at that name by the journal of the killed run.
static fq_status judge_aside(fq_output *output, bool is_resume, bool examine_only, fq_error *err) {
    const fq_journal *found = &output->journal.found;
    const fq_journal_place aside = fq_output_place(output, output->aside_name);
    const fq_journal_place named = fq_output_place(output, output->name);
    const bool is_old = found->is_complete && fq_journal_place_equal(&aside, &found->replaced);
    output->is_aside_left = is_old && fq_journal_place_equal(&named, &found->output);
    if (is_old && !is_there(output, output->name)) {
        if (!output->force)
            return fq_fail(err, FQ_USAGE,
                           "%s: the old output is %s, where a run that was killed had moved it; "
                           "pass --resume and --force to go on with that run, or --force to start "
                           "again: either gives it its name back first",
                           output->path, output->aside);
        return examine_only ? FQ_OK : put_back(output, err);
    }
    if (output->is_aside_left && !output->force && !is_resume)
        return fq_fail(err, FQ_USAGE,
                       "%s: exists already; a run that was killed had completed it, and left what "
                       "it replaced as %s; pass --resume to remove that, --force to replace both, "
                       "or name another output with -o",
                       output->path, output->aside);
    if (output->warnings && !output->is_aside_left)
        fq_messages_add(output->warnings,
                        "%s: is there, perhaps an old output that a killed run had moved; look at "
                        "it, and rename or remove it",
                        output->aside);
    return FQ_OK;
}

fq_status fq_output_find_aside(fq_output *output, const fq_output_options *options,
                               bool examine_only, fq_error *err) {
    fq_error ignored = {0}; // of a journal that tells nothing
    if (!is_there(output, output->aside_name))
        return FQ_OK;
    if (!options->resume)
        fq_output_journal_find(output, &ignored);
    const fq_status status = judge_aside(output, options->resume, examine_only, err);
    if (!options->resume)
        fq_output_journal_forget(output);
    return status;
}

fq_status fq_output_remove_aside(const fq_output *output, fq_error *err) {
    return output->is_aside_left
               ? fq_tree_remove(output->parent_fd, output->aside_name, output->aside, err)
               : FQ_OK;
}
