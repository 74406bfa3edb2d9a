// Going on with an interrupted run: found and compared, its shards checked, the rest swept away.
#include "output_parts.h"

#include "crc.h"
#include "lib/pool.h"
#include "retry.h"
#include "safetensors.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

// ---- What may be there

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// All that a run with this plan may write, whether or not this one does.
static fq_status list_names(fq_output *output, const fq_input *input, const fq_plan *plan,
                            fq_error *err) {
    const size_t capacity = plan->n_shards + input->n_side_files + 2;
    size_t n = 0;
    output->names = malloc(capacity * sizeof *output->names);
    if (!output->names)
        return fq_fail_memory(err);
    for (size_t i = 0; i < plan->n_shards; i++)
        output->names[n++] = plan->shards[i].layout.name;
    for (size_t i = 0; i < input->n_side_files; i++) {
        if (input->side_files[i].kind == FQ_SIDE_COPY)
            output->names[n++] = input->side_files[i].path;
    }
    output->names[n++] = fq_output_index_name(input);
    output->names[n++] = "config.json";
    qsort(output->names, n, sizeof *output->names, compare_names);
    output->n_names = n;
    return FQ_OK;
}

// The first name that does not come before path.
static size_t lower_bound(const fq_output *output, const char *path) {
    size_t low = 0, high = output->n_names;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(output->names[middle], path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_known_file(const fq_output *output, const fq_tree_entry *entry) {
    const size_t i = lower_bound(output, entry->path);
    return (i < output->n_names && strcmp(output->names[i], entry->path) == 0) ||
           fq_output_is_temporary(entry->name);
}

// A folder that a file of this run is in.
static bool is_known_folder(const fq_output *output, const char *path) {
    const size_t n = strlen(path);
    for (size_t i = lower_bound(output, path); i < output->n_names; i++) {
        if (strncmp(output->names[i], path, n) != 0)
            return false;
        if (output->names[i][n] == '/')
            return true;
    }
    return false;
}

static fq_status check_known(void *context, fq_tree_event event, const fq_tree_entry *entry,
                             bool *skip, fq_error *err) {
    (void)skip;
    const fq_output *output = context;
    const bool is_known = event == FQ_TREE_OTHER ? is_known_file(output, entry)
                                                 : is_known_folder(output, entry->path);
    return is_known ? FQ_OK
                    : fq_fail(err, FQ_USAGE,
                              "%s/%s: is nothing that this run writes; move it away, or discard "
                              "all of %s with --force instead",
                              output->partial, entry->path, output->partial);
}

// ---- Finding it

static fq_status fail_strange(const fq_output *output, const char *what, fq_error *err) {
    return fq_fail(err, FQ_USAGE,
                   "%s: %s %s, and cannot be resumed; remove it, or discard it with --force "
                   "instead",
                   output->path, output->partial, what);
}

// Opens OUTPUT.partial. -1 if there is none.
static fq_status open_partial(fq_output *output, fq_error *err) {
    const int kind = output->is_folder ? O_RDONLY | O_DIRECTORY : O_RDWR;
    struct stat st;
    bool is_locked;
    const char *strange = NULL;
    const int fd = fq_retry_openat(output->parent_fd, output->partial_name,
                                   kind | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY, 0);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR || errno == EISDIR || errno == ENXIO))
        return fail_strange(output, "is a link, or no output of this input", err);
    if (fd < 0)
        return fq_fail_errno(err, errno, "%s: cannot be opened", output->partial);
    output->partial_fd = fd;
    fq_status status = FQ_OK;
    if (!output->is_folder)
        status = fq_output_examine_file(&strange, fd, output->partial, err);
    else if (fstat(fd, &st) != 0)
        status = fq_fail_errno(err, errno, "%s: cannot be examined", output->partial);
    else if (st.st_uid != geteuid())
        strange = "belongs to another user";
    if (status != FQ_OK)
        return status;
    if (strange)
        return fail_strange(output, strange, err);
    return fq_output_lock(&is_locked, output, fd, output->partial_name, err);
}

static fq_status find_partial(fq_output *output, const fq_input *input, const fq_plan *plan,
                              fq_error *err) {
    fq_status status = open_partial(output, err);
    if (status == FQ_OK)
        status = list_names(output, input, plan, err);
    if (status == FQ_OK && output->is_folder)
        status = fq_tree_walk(output->partial_fd, output->partial, check_known, output, err);
    output->is_resumed = status == FQ_OK;
    return status;
}

fq_status fq_output_find_run(fq_output *output, const fq_input *input,
                             const fq_output_options *options, fq_error *err) {
    const fq_journal *found = &output->journal.found;
    fq_status status = fq_output_journal_find(output, err);
    if (status != FQ_OK)
        return status;
    const fq_journal_place named = fq_output_place(output, output->name);
    const bool has_name = found->is_complete && fq_journal_place_equal(&named, &found->output);
    const bool is_there = fq_output_place(output, output->partial_name).inode != 0;
    if (is_there && !has_name && output->journal.fd < 0)
        return fail_strange(output, "has no journal", err);
    if (is_there && !has_name && found->nbytes == 0)
        return fail_strange(output, "has a journal that cannot be read", err);
    if (!is_there && !has_name) {
        fq_output_journal_forget(output);
        return FQ_OK;
    }
    status = fq_journal_compare(&found->run, options->run, output->path, output->partial, err);
    if (status == FQ_OK && !has_name)
        status = find_partial(output, input, options->plan, err);
    output->is_published = status == FQ_OK && has_name;
    return status;
}

const fq_journal *fq_output_found(const fq_output *output) {
    return output->is_resumed || output->is_published ? &output->journal.found : NULL;
}

bool fq_output_is_published(const fq_output *output) { return output->is_published; }

// ---- Checking its shards

enum { READ_NBYTES = 1 << 20 };

typedef enum verdict { NOT_CHECKED, GOOD, ABSENT, CHANGED } verdict;

typedef struct check {
    const fq_output *output;
    const fq_plan *plan;
    const fq_journal_shard *const *lines; // [plan->n_shards]
    const fq_check_options *options;
    verdict *verdicts; // [plan->n_shards]
    size_t n_taken;    // of the plan's shards
    size_t *current;   // [n_threads]: the shard that a thread is at
    char **buffers;    // [n_threads][READ_NBYTES]
} check;

// Compares the part of the header that lies in a piece of the file.
static bool has_header(const char *piece, uint64_t at, size_t n, const char *header,
                       size_t header_nbytes) {
    if (at >= header_nbytes)
        return true;
    const size_t left = header_nbytes - (size_t)at;
    return memcmp(piece, header + at, left < n ? left : n) == 0;
}

// What cannot be read may be whole: the run ends, and leaves it to the user to remove it.
static fq_status fail_check(const check *c, const fq_shard *layout, fq_error *err) {
    const bool is_folder = c->output->is_folder;
    return fq_fail(
        err, fq_status_of_errno(errno),
        "%s%s%s: cannot be checked: %s; try again, or remove it to have it written again",
        c->output->partial, is_folder ? "/" : "", is_folder ? layout->name : "", strerror(errno));
}

// Sets *out, unless the run is to stop: the pool then ends with FQ_CANCELLED. -1 with errno set.
static int check_bytes(verdict *out, const check *c, int fd, const fq_journal_shard *line,
                       const char *header, size_t header_nbytes, char *buffer) {
    uint32_t crc = 0;
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *out = CHANGED;
    for (uint64_t at = 0; at < line->digest.nbytes;) {
        if (c->options->cancelled && __atomic_load_n(c->options->cancelled, __ATOMIC_RELAXED))
            return 0;
        const uint64_t left = line->digest.nbytes - at;
        const ssize_t n =
            pread(fd, buffer, left < READ_NBYTES ? (size_t)left : READ_NBYTES, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0 || !has_header(buffer, at, (size_t)n, header, header_nbytes))
            return 0;
        crc = fq_crc32(crc, buffer, (size_t)n);
        at += (size_t)n;
        if (c->options->progress)
            __atomic_fetch_add(&c->options->progress->bytes_read, (uint64_t)n, __ATOMIC_RELAXED);
    }
    *out = crc == line->digest.crc32 ? GOOD : CHANGED;
    return 0;
}

static bool take_shard(void *context, uint32_t worker, uint64_t limit, uint64_t *order,
                       fq_error *err) {
    check *c = context;
    (void)err;
    while (c->n_taken < c->plan->n_shards && !c->lines[c->n_taken])
        c->n_taken++;
    if (c->n_taken >= c->plan->n_shards || c->n_taken >= limit)
        return false;
    *order = c->current[worker] = c->n_taken++;
    return true;
}

// What has another name may be changed by it; what is another user's, by that user.
static bool is_own_file(const struct stat *st) {
    return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_uid == geteuid();
}

// Looks at an open file. -1 with errno set.
static int check_file(verdict *out, const check *c, int fd, size_t index, const char *header,
                      size_t header_nbytes, char *buffer) {
    struct stat st;
    const fq_journal_shard *line = c->lines[index];
    const uint64_t nbytes = header_nbytes + c->plan->shards[index].layout.data_nbytes;
    if (fstat(fd, &st) != 0)
        return -1;
    *out = CHANGED;
    if (!is_own_file(&st) || (uint64_t)st.st_size != nbytes || line->digest.nbytes != nbytes)
        return 0;
    return check_bytes(out, c, fd, line, header, header_nbytes, buffer);
}

static fq_status check_shard(void *context, uint32_t worker, fq_error *err) {
    check *c = context;
    const size_t index = c->current[worker];
    const fq_shard *layout = &c->plan->shards[index].layout;
    verdict *out = &c->verdicts[index];
    char *header = NULL;
    size_t header_nbytes = 0;
    fq_status status = fq_safetensors_header(&header, &header_nbytes, layout, err);
    if (status != FQ_OK)
        return status;
    const int fd = fq_output_open_file(c->output, layout->name);
    if (fd < 0 && errno == ENOENT)
        *out = ABSENT;
    else if (fd < 0 && (errno == ELOOP || errno == ENOTDIR || errno == ENXIO)) // a link, a socket
        *out = CHANGED;
    else if (fd < 0 ||
             check_file(out, c, fd, index, header, header_nbytes, c->buffers[worker]) != 0)
        status = fail_check(c, layout, err);
    if (fd >= 0)
        close(fd);
    free(header);
    return status;
}

static fq_status check_shards(check *c, fq_error *err) {
    static const fq_pool_work work = {.take = take_shard, .carry_out = check_shard};
    fq_arena arena = {0};
    const uint32_t n_threads = c->options->n_threads;
    fq_status status = FQ_OK;
    c->current = fq_arena_array(&arena, n_threads, sizeof *c->current);
    c->buffers = fq_arena_array(&arena, n_threads, sizeof *c->buffers);
    for (uint32_t i = 0; i < n_threads && c->buffers; i++) {
        c->buffers[i] = fq_arena_alloc(&arena, READ_NBYTES);
        if (!c->buffers[i])
            status = fq_fail_memory(err);
    }
    if (!c->current || !c->buffers)
        status = fq_fail_memory(err);
    if (status == FQ_OK)
        status = fq_pool_run(&work, c, n_threads, c->options->cancelled, err);
    fq_arena_free(&arena);
    return status;
}

// ---- Taking it up

typedef struct sweep {
    const fq_output *output;
    const fq_plan *plan;
    const bool *accepted;
} sweep;

static int compare_shard(const void *name, const void *shard) {
    return strcmp(name, ((const fq_plan_shard *)shard)->layout.name);
}

static bool is_accepted(const sweep *s, const char *path) {
    const fq_plan_shard *shard =
        bsearch(path, s->plan->shards, s->plan->n_shards, sizeof *shard, compare_shard);
    return shard && s->accepted[shard - s->plan->shards];
}

// Folders go, too, where they are empty: whatever makes them anew makes them durable.
static fq_status sweep_entry(void *context, fq_tree_event event, const fq_tree_entry *entry,
                             bool *skip, fq_error *err) {
    (void)skip;
    const sweep *s = context;
    if (event == FQ_TREE_FOLDER)
        return FQ_OK;
    if (event == FQ_TREE_OTHER && (is_accepted(s, entry->path) || !is_known_file(s->output, entry)))
        return FQ_OK;
    const int flags = event == FQ_TREE_FOLDER_END ? AT_REMOVEDIR : 0;
    if (unlinkat(entry->dir_fd, entry->name, flags) == 0 || errno == ENOENT ||
        (flags && (errno == ENOTEMPTY || errno == EEXIST)))
        return FQ_OK;
    return fq_fail_errno(err, errno, "%s/%s: cannot be removed", s->output->partial, entry->path);
}

static void warn_of(const check *c, size_t i) {
    fq_messages *warnings = c->output->warnings;
    if (!warnings)
        return;
    const char *slash = c->output->is_folder ? "/" : "";
    const char *name = c->output->is_folder ? c->plan->shards[i].layout.name : "";
    if (c->verdicts[i] == ABSENT)
        fq_messages_add(warnings, "%s%s%s: is gone, and is written again", c->output->partial,
                        slash, name);
    else if (c->verdicts[i] == CHANGED)
        fq_messages_add(warnings,
                        "%s%s%s: is not as the interrupted run finished it, and is written again",
                        c->output->partial, slash, name);
}

fq_status fq_output_take_up(bool *accepted, fq_output *output, const fq_plan *plan,
                            const fq_journal_shard *const *lines, const fq_check_options *options,
                            fq_error *err) {
    check c = {.output = output, .plan = plan, .lines = lines, .options = options};
    c.verdicts = calloc(plan->n_shards + 1, sizeof *c.verdicts);
    if (!c.verdicts)
        return fq_fail_memory(err);
    fq_status status = check_shards(&c, err);
    for (size_t i = 0; i < plan->n_shards && status == FQ_OK; i++) {
        accepted[i] = c.verdicts[i] == GOOD;
        warn_of(&c, i);
    }
    free(c.verdicts);
    sweep s = {.output = output, .plan = plan, .accepted = accepted};
    if (status == FQ_OK && output->is_folder)
        status = fq_tree_walk(output->partial_fd, output->partial, sweep_entry, &s, err);
    return status;
}

bool fq_output_note_shard(fq_output *output, const fq_plan_shard *shard,
                          const fq_sink_digest *digest, const fq_step_counts *counts) {
    fq_json_text line = {0};
    fq_journal_put_shard(&line, shard->layout.name, digest, counts, shard->n_steps);
    const bool done = fq_output_journal_add(output, &line);
    fq_json_text_free(&line);
    return done;
}

void fq_output_note_nonfinite(fq_output *output, const fq_tensor *const *tensors, size_t n) {
    fq_json_text line = {0};
    fq_journal_put_nonfinite(&line, tensors, n);
    fq_output_journal_add(output, &line);
    fq_json_text_free(&line);
}
