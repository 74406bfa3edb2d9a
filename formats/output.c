// OUTPUT from its first check to its final name: OUTPUT.partial is made, locked, and renamed.
#include "output_parts.h"

#include "lib/names.h"
#include "retry.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static const char *last_component(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

fq_status fq_output_default_path(char **out, const fq_input *input, const char *suffix,
                                 fq_error *err) {
    static const char extension[] = ".safetensors";
    const bool is_folder = input->checkpoint.is_folder;
    const char *name = last_component(input->checkpoint.path);
    size_t n = strlen(name);
    if (!is_folder && fq_has_suffix(name, extension))
        n -= sizeof extension - 1;
    if (is_folder && input->hub.repo) {
        name = input->hub.repo;
        n = strlen(name);
    }
    const char *folder = input->checkpoint.path;
    size_t folder_nbytes = (size_t)(last_component(folder) - folder);
    if (input->hub.repo) {
        folder = "./";
        folder_nbytes = 2;
    }
    if (asprintf(out, "%.*s%.*s-%s%s", (int)folder_nbytes, folder, (int)n, name, suffix,
                 is_folder ? "" : extension) >= 0)
        return FQ_OK;
    *out = NULL;
    return fq_fail_memory(err);
}

static void output_free(fq_output *output) {
    if (output->partial_fd >= 0)
        close(output->partial_fd); // gives the lock back
    fq_output_journal_finish(output);
    free(output->names);
    if (output->parent_fd >= 0)
        close(output->parent_fd);
    free(output->aside);
    free(output->partial);
    free(output->path);
    free(output);
}

// Fills in path, partial, aside and their names. A path that ends in no name of its own, such as
// "..", is resolved to one that does.
static fq_status set_paths(fq_output *output, const char *path, fq_error *err) {
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        n--;
    if (!output->is_folder && n > 0 && path[n] == '/')
        return fq_fail(err, FQ_USAGE,
                       "%s: ends in a slash, but the output of a lone file is a file; name it "
                       "with -o",
                       path);
    output->path = strndup(path, n);
    if (!output->path)
        return fq_fail_memory(err);
    const char *name = last_component(output->path);
    if (path[0] != '\0' && (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)) {
        free(output->path);
        output->path = realpath(path, NULL);
        if (!output->path)
            return fq_fail_errno(err, errno, "%s", path);
    }
    output->name = last_component(output->path);
    if (output->name[0] == '\0')
        return fq_fail(err, FQ_USAGE, "\"%s\": is no name for an output; name one with -o", path);
    if (asprintf(&output->partial, "%s.partial", output->path) < 0) {
        output->partial = NULL;
        return fq_fail_memory(err);
    }
    output->partial_name = last_component(output->partial);
    if (asprintf(&output->aside, "%s.old", output->partial) < 0) {
        output->aside = NULL;
        return fq_fail_memory(err);
    }
    output->aside_name = last_component(output->aside);
    return FQ_OK;
}

// What is beside OUTPUT while it is built has longer names.
static fq_status check_name(const fq_output *output, fq_error *err) {
    const size_t n = strlen(output->name), n_longest = strlen(output->journal.name);
    const long max = fpathconf(output->parent_fd, _PC_NAME_MAX); // -1: it does not say
    if (max < 0 || n_longest <= (size_t)max)
        return FQ_OK;
    return fq_fail(err, FQ_USAGE,
                   "%s: the name has %zu bytes, and at most %zu leave room for .partial.journal; "
                   "give it a shorter one with -o",
                   output->path, n, (size_t)max - (n_longest - n));
}

static fq_status open_parent(fq_output *output, fq_error *err) {
    const size_t n = (size_t)(output->name - output->path);
    char *parent = n ? strndup(output->path, n) : strdup(".");
    if (!parent)
        return fq_fail_memory(err);
    output->parent_fd = fq_retry_openat(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    const int errno_value = errno;
    free(parent);
    if (output->parent_fd >= 0)
        return check_name(output, err);
    if (errno_value == ENOENT)
        return fq_fail(err, FQ_IO, "%s: its folder does not exist; make it first", output->path);
    return fq_fail_errno(err, errno_value, "%s: its folder cannot be opened", output->path);
}

// Removes the OUTPUT.partial of a run that has ended, or only finds out whether that can be done.
static fq_status discard_partial(const fq_output *output, bool examine_only, fq_error *err) {
    fq_status status = FQ_OK;
    bool is_locked;
    const int fd = fq_retry_openat(output->parent_fd, output->partial_name,
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT)
        return FQ_OK;
    if (fd < 0 && errno != ELOOP) // a link is removed, not followed
        return fq_fail_errno(err, errno, "%s: cannot be opened", output->partial);
    if (fd >= 0)
        status = fq_output_lock(&is_locked, output, fd, output->partial_name, err);
    if (status == FQ_OK && !examine_only)
        status = fq_tree_remove(output->parent_fd, output->partial_name, output->partial, err);
    if (fd >= 0)
        close(fd);
    return status;
}

// Makes the folder and opens it. Returns -1 with errno set, and nothing is left.
static int make_folder(int dir_fd, const char *name) {
    if (mkdirat(dir_fd, name, 0777) != 0)
        return -1;
    const int fd =
        fq_retry_openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT) {
        // Gone at once: another run, with force, has taken it for one that was left behind. What is
        // there by now is that run's.
        errno = EEXIST;
    } else if (fd < 0) {
        const int errno_value = errno;
        unlinkat(dir_fd, name, AT_REMOVEDIR);
        errno = errno_value;
    }
    return fd;
}

static fq_status fail_create(const fq_output *output, fq_error *err) {
    return fq_fail_errno(err, errno, "%s: cannot be created", output->partial);
}

static fq_status make_partial(fq_output *output, fq_error *err) {
    const int dir_fd = output->parent_fd;
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    bool is_locked;
    output->partial_fd = output->is_folder
                             ? make_folder(dir_fd, output->partial_name)
                             : fq_retry_openat(dir_fd, output->partial_name, flags, 0666);
    if (output->partial_fd < 0)
        return errno == EEXIST ? fq_output_fail_in_use(output, err) : fail_create(output, err);
    const fq_status status =
        fq_output_lock(&is_locked, output, output->partial_fd, output->partial_name, err);
    if (status != FQ_OK && status != FQ_USAGE) // no other run's: nobody else would remove it
        unlinkat(dir_fd, output->partial_name, output->is_folder ? AT_REMOVEDIR : 0);
    return status;
}

// Other users must not foresee the names of temporary files, and two runs must not share one.
static void make_token(fq_output *output) {
    uint64_t random;
    struct timespec now;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
        clock_gettime(CLOCK_REALTIME, &now);
        random = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 16;
    }
    snprintf(output->token, sizeof output->token, "%0*" PRIx64, FQ_OUTPUT_TOKEN_NBYTES, random);
}

// An output whose place was found to be free and large enough; nothing is made yet. Unless
// examine_only, an old OUTPUT that a killed run had moved has its name again.
static fq_status prepare(fq_output **out, const char *path, const fq_input *input,
                         const fq_output_options *options, bool examine_only, fq_error *err) {
    fq_output *output = calloc(1, sizeof *output);
    if (!output)
        return fq_fail_memory(err);
    output->parent_fd = output->partial_fd = -1;
    output->is_folder = input->checkpoint.is_folder;
    output->force = options->force;
    output->warnings = options->warnings;
    output->needed_nbytes = fq_output_needed_nbytes(input, options->needed_nbytes);
    make_token(output);
    fq_output_init_sink(output);
    fq_status status = set_paths(output, path, err);
    if (status == FQ_OK)
        status = fq_output_journal_init(output, err);
    if (status == FQ_OK)
        status = open_parent(output, err);
    if (status == FQ_OK && options->resume)
        status = fq_output_find_run(output, input, options, err);
    if (status == FQ_OK)
        status = fq_output_find_aside(output, options, examine_only, err);
    if (status == FQ_OK)
        status = fq_output_check(output, input, err);
    if (status == FQ_OK && !output->is_published)
        status = fq_output_check_room(output, err);
    if (status == FQ_OK)
        *out = output;
    else
        output_free(output);
    return status;
}

// Makes OUTPUT.partial, and before it the journal.
static fq_status make(fq_output *output, const fq_journal_run *run, fq_error *err) {
    fq_status status = fq_output_journal_take(output, err);
    if (status == FQ_OK && output->force)
        status = discard_partial(output, false, err);
    if (status == FQ_OK)
        status = fq_output_remove_aside(output, err);
    if (status == FQ_OK)
        status = fq_output_journal_begin(output, run, err);
    if (status == FQ_OK)
        status = make_partial(output, err);
    fq_error ignored = {0}; // what is left of a journal alone does no harm
    if (status != FQ_OK)
        fq_output_journal_remove(output, &ignored);
    return status;
}

fq_status fq_output_open(fq_output **out, const char *path, const fq_input *input,
                         const fq_output_options *options, fq_error *err) {
    fq_output *output = NULL;
    fq_status status = prepare(&output, path, input, options, false, err);
    if (status != FQ_OK)
        return status;
    if (fq_output_found(output))
        fq_output_journal_go_on(output);
    else
        status = make(output, options->run, err);
    if (status == FQ_OK)
        *out = output;
    else
        output_free(output);
    return status;
}

// What making OUTPUT.partial would say.
static fq_status examine_place(const fq_output *output, fq_error *err) {
    fq_status status = fq_output_journal_examine(output, err);
    if (status == FQ_OK && output->force)
        status = discard_partial(output, true, err);
    if (status == FQ_OK && faccessat(output->parent_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
        status = fail_create(output, err);
    return status;
}

fq_status fq_output_examine(const char *path, const fq_input *input,
                            const fq_output_options *options, fq_error *err) {
    fq_output *output = NULL;
    fq_status status = prepare(&output, path, input, options, true, err);
    if (status != FQ_OK)
        return status;
    if (!fq_output_found(output))
        status = examine_place(output, err);
    output_free(output);
    return status;
}

static fq_status fail_commit(const fq_output *output, int errno_value, const char *what,
                             fq_error *err) {
    return fq_fail(err, fq_status_of_errno(errno_value),
                   "%s: %s: %s; go on with --resume, the finished files stay in %s", output->path,
                   what, strerror(errno_value), output->partial);
}

// Whether what this run has open as OUTPUT.partial is still there, and not something else.
static fq_status check_there(const fq_output *output, fq_error *err) {
    struct stat made, named;
    const bool is_known =
        fstat(output->partial_fd, &made) == 0 &&
        fstatat(output->parent_fd, output->partial_name, &named, AT_SYMLINK_NOFOLLOW) == 0;
    if (!is_known && errno != ENOENT)
        return fail_commit(output, errno, "it cannot be examined", err);
    if (is_known && fq_tree_is_same(&made, &named))
        return FQ_OK;
    return fq_fail(err, FQ_IO, "%s: was replaced or removed while it was written; start again",
                   output->partial);
}

// Gives OUTPUT.partial its final name, durably. *replaced: the old OUTPUT is OUTPUT.partial now.
static fq_status publish(const fq_output *output, bool *replaced, fq_error *err) {
    *replaced = false;
    if (output->drop_errno != 0)
        return fail_commit(output, output->drop_errno, "a temporary in it cannot be removed", err);
    if (output->is_folder && fq_retry_fsync(output->partial_fd) != 0)
        return fail_commit(output, errno, "its folder cannot be made durable", err);
    const fq_status status = check_there(output, err);
    if (status != FQ_OK)
        return status;
    const int rc = fq_output_give_name(replaced, output);
    if (rc != 0 && errno == EEXIST && output->force)
        return fq_fail(err, FQ_IO,
                       "%s: cannot be given its name, as %s is in the way; move that away, and go "
                       "on with --resume, the finished files stay in %s",
                       output->path, output->aside, output->partial);
    if (rc != 0)
        return fail_commit(output, errno, "cannot be given its name", err);
    if (fq_retry_fsync(output->parent_fd) == 0)
        return FQ_OK;
    const int errno_value = errno;
    fq_output_take_name_back(output, *replaced);
    return fail_commit(output, errno_value, "its new name cannot be made durable", err);
}

// From here on a run with resume finds out whether OUTPUT got its name.
static void note_complete(fq_output *output) {
    fq_json_text line = {0};
    const fq_journal_place new = fq_output_place(output, output->partial_name);
    const fq_journal_place old = fq_output_place(output, output->name);
    fq_journal_put_complete(&line, &new, &old);
    fq_output_journal_add(output, &line);
    fq_json_text_free(&line);
}

// A run that was killed may have left the old OUTPUT in the place of OUTPUT.partial.
static bool is_old_left(const fq_output *output) {
    const fq_journal_place there = fq_output_place(output, output->partial_name);
    return fq_journal_place_equal(&there, &output->journal.found.replaced);
}

fq_status fq_output_commit(fq_output *output, fq_error *err) {
    bool replaced = false;
    fq_error removal = {0};
    fq_status status = FQ_OK;
    if (output->is_published) {
        replaced = is_old_left(output);
    } else {
        note_complete(output);
        status = publish(output, &replaced, err);
    }
    fq_output_journal_warn(output);
    if (status == FQ_OK && replaced)
        fq_tree_remove(output->parent_fd, output->partial_name, output->partial, &removal);
    if (status == FQ_OK && removal.status == FQ_OK)
        fq_output_remove_aside(output, &removal);
    if (status == FQ_OK && removal.status != FQ_OK)
        status = fq_fail(err, removal.status,
                         "%s: is complete, but the old one could not be removed; %s", output->path,
                         removal.text);
    if (status == FQ_OK && fq_output_journal_remove(output, &removal) != FQ_OK)
        status = fq_fail(err, removal.status, "%s: is complete; %s; remove it", output->path,
                         removal.text);
    output_free(output);
    return status;
}

void fq_output_abandon(fq_output *output, bool keep, fq_error *err) {
    if (!output)
        return;
    fq_output_journal_warn(output);
    const bool is_gone = fq_output_place(output, output->partial_name).inode == 0;
    if (!keep && !output->is_published && (is_gone || check_there(output, err) == FQ_OK) &&
        fq_tree_remove(output->parent_fd, output->partial_name, output->partial, err) == FQ_OK)
        fq_output_journal_remove(output, err);
    output_free(output);
}
