// Checksums of copied tensors, by XXH3-128.
#include "checksum.h"

#include "lib/pool.h"
#include "output_parts.h"
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { READ_NBYTES = 1 << 20 };

fq_status fq_checksums_init(fq_checksums *out, const fq_checkpoint *checkpoint, fq_error *err) {
    out->checkpoint = checkpoint;
    out->items = calloc(checkpoint->n_tensors + 1, sizeof *out->items);
    if (!out->items)
        return fq_fail_memory(err);
    for (size_t i = 0; i < checkpoint->n_tensors; i++)
        memset(out->items[i].digits, '0', FQ_CHECKSUM_DIGITS);
    return FQ_OK;
}

void fq_checksums_finish(fq_checksums *checksums) {
    free(checksums->items);
    *checksums = (fq_checksums){0};
}

static fq_checksum *item_of(const fq_checksums *checksums, const fq_tensor *tensor) {
    return &checksums->items[fq_checkpoint_position(checksums->checkpoint, tensor->name)];
}

const char *fq_checksums_find(const fq_checksums *checksums, const fq_tensor *tensor) {
    const fq_checksum *item = checksums->items ? item_of(checksums, tensor) : NULL;
    return item && item->is_known ? item->digits : NULL;
}

// ---- In the plan

static fq_status check_header(const fq_shard *layout, fq_error *err) {
    char *header = NULL;
    size_t nbytes;
    const fq_status status = fq_safetensors_header(&header, &nbytes, layout, err);
    free(header);
    return status;
}

static fq_status plan_shard(const fq_checksums *checksums, fq_plan_shard *shard, fq_arena *arena,
                            fq_error *err) {
    fq_shard *layout = &shard->layout;
    size_t n = layout->n_metadata;
    fq_metadata *metadata = fq_arena_array(arena, n + shard->n_steps, sizeof *metadata);
    if (!metadata)
        return fq_fail_memory(err);
    if (n > 0)
        memcpy(metadata, layout->metadata, n * sizeof *metadata);
    for (size_t i = 0; i < shard->n_steps; i++) {
        const fq_step *step = &shard->steps[i];
        if (step->action != FQ_COPY)
            continue;
        metadata[n].key = fq_arena_printf(arena, FQ_CHECKSUM_KEY "%s", step->source->name);
        metadata[n].value = item_of(checksums, step->source)->digits;
        if (!metadata[n++].key)
            return fq_fail_memory(err);
    }
    fq_metadata_sort(metadata, n);
    layout->metadata = metadata;
    layout->n_metadata = n;
    return check_header(layout, err);
}

fq_status fq_checksums_plan(const fq_checksums *checksums, fq_plan *plan, fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < plan->n_shards && !status; i++)
        status = plan_shard(checksums, &plan->shards[i], &plan->arena, err);
    return status;
}

// ---- What its threads share

typedef struct worker {
    size_t shard;
    const fq_step *step;
    char *buffer; // [READ_NBYTES]
} worker;

typedef struct work {
    const fq_checksums *checksums;
    const fq_plan *plan;
    const fq_output *output; // verify only
    bool *finished;          // verify only
    const fq_check_options *options;
    worker *workers;    // [n_threads]
    size_t shard, step; // the next to be taken
} work;

static fq_status run(const fq_pool_work *functions, work *w, fq_error *err) {
    const uint32_t n_threads = w->options->n_threads;
    fq_arena arena = {0};
    fq_status status = FQ_OK;
    w->workers = fq_arena_array(&arena, n_threads, sizeof *w->workers);
    if (!w->workers)
        status = fq_fail_memory(err);
    for (uint32_t i = 0; i < n_threads && !status; i++) {
        w->workers[i].buffer = fq_arena_alloc(&arena, READ_NBYTES);
        if (!w->workers[i].buffer)
            status = fq_fail_memory(err);
    }
    if (!status)
        status = fq_pool_run(functions, w, n_threads, w->options->cancelled, err);
    fq_arena_free(&arena);
    return status;
}

// Adds a piece; false if the run is to stop.
static bool add_piece(const work *w, XXH3_state_t *state, const char *bytes, size_t nbytes) {
    const fq_check_options *options = w->options;
    XXH3_128bits_update(state, bytes, nbytes);
    if (options->progress)
        __atomic_fetch_add(&options->progress->bytes_read, nbytes, __ATOMIC_RELAXED);
    return !options->cancelled || !__atomic_load_n(options->cancelled, __ATOMIC_RELAXED);
}

static void set_digits(char out[FQ_CHECKSUM_DIGITS + 1], XXH3_state_t *state) {
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    snprintf(out, FQ_CHECKSUM_DIGITS + 1, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
             (uint64_t)hash.low64);
}

// ---- Reading the source

static bool take_tensor(void *context, uint32_t index, uint64_t limit, uint64_t *order,
                        fq_error *err) {
    work *w = context;
    (void)err;
    for (; w->shard < w->plan->n_shards; w->shard++, w->step = 0) {
        const fq_plan_shard *shard = &w->plan->shards[w->shard];
        for (; w->step < shard->n_steps; w->step++) {
            const fq_step *step = &shard->steps[w->step];
            if (step->action != FQ_COPY || item_of(w->checksums, step->source)->is_known)
                continue;
            *order = (uint64_t)w->shard << 32 | w->step;
            if (*order >= limit)
                return false;
            w->workers[index].step = step;
            w->step++;
            return true;
        }
    }
    return false;
}

static fq_status read_tensor(void *context, uint32_t index, fq_error *err) {
    const work *w = context;
    const fq_tensor *tensor = w->workers[index].step->source;
    const fq_shard *shard = &w->checksums->checkpoint->shards[tensor->shard];
    char *buffer = w->workers[index].buffer;
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (uint64_t at = 0; at < tensor->nbytes;) {
        const uint64_t left = tensor->nbytes - at;
        const size_t n = left < READ_NBYTES ? (size_t)left : READ_NBYTES;
        const fq_status status = shard->source->read(
            shard->source, shard->data_start + tensor->offset + at, buffer, n, err);
        if (status)
            return status;
        if (!add_piece(w, &state, buffer, n))
            return FQ_OK; // the pool says why
        at += n;
    }
    fq_checksum *item = item_of(w->checksums, tensor);
    set_digits(item->digits, &state);
    item->is_known = true;
    return FQ_OK;
}

fq_status fq_checksums_read(fq_checksums *checksums, const fq_plan *plan,
                            const fq_check_options *options, fq_error *err) {
    static const fq_pool_work functions = {.take = take_tensor, .carry_out = read_tensor};
    work w = {.checksums = checksums, .plan = plan, .options = options};
    return run(&functions, &w, err);
}

// ---- Reading the copies back

static bool take_shard(void *context, uint32_t index, uint64_t limit, uint64_t *order,
                       fq_error *err) {
    work *w = context;
    (void)err;
    if (w->shard >= w->plan->n_shards || w->shard >= limit)
        return false;
    *order = w->workers[index].shard = w->shard++;
    return true;
}

static fq_status fail_shard(const work *w, size_t index, const char *tensor, int errno_value,
                            fq_error *err) {
    const char *name = w->plan->shards[index].layout.name;
    const char *in = w->output->is_folder ? "/" : "";
    const char *file = w->output->is_folder ? name : "";
    if (errno_value != 0)
        return fq_fail_errno(err, errno_value, "%s%s%s: cannot be read back", w->output->partial,
                             in, file);
    fq_output_remove_file(w->output, name);
    w->finished[index] = false;
    return fq_fail(err, FQ_IO,
                   "%s%s%s: %s: is on disk not what it is in the input; the file is removed, check "
                   "disk and memory",
                   w->output->partial, in, file, tensor);
}

// One copy, at a place in the file. A file that ends early is one that differs.
static fq_status verify_copy(const work *w, const worker *me, int fd, uint64_t offset,
                             const fq_step *step, fq_error *err) {
    char digits[FQ_CHECKSUM_DIGITS + 1];
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (uint64_t at = 0; at < step->target->nbytes;) {
        const uint64_t left = step->target->nbytes - at;
        const ssize_t n = pread(fd, me->buffer, left < READ_NBYTES ? (size_t)left : READ_NBYTES,
                                (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_shard(w, me->shard, NULL, errno, err);
        if (n == 0)
            break;
        if (!add_piece(w, &state, me->buffer, (size_t)n))
            return FQ_OK; // the pool says why
        at += (uint64_t)n;
    }
    set_digits(digits, &state);
    if (strcmp(digits, item_of(w->checksums, step->source)->digits) == 0)
        return FQ_OK;
    return fail_shard(w, me->shard, step->source->name, 0, err);
}

static fq_status verify_shard(void *context, uint32_t index, fq_error *err) {
    const work *w = context;
    const worker *me = &w->workers[index];
    const fq_plan_shard *shard = &w->plan->shards[me->shard];
    char *header = NULL;
    size_t header_nbytes = 0;
    fq_status status = fq_safetensors_header(&header, &header_nbytes, &shard->layout, err);
    free(header);
    if (status)
        return status;
    const int fd = fq_output_open_file(w->output, shard->layout.name);
    if (fd < 0)
        return fail_shard(w, me->shard, NULL, errno, err);
    // Its pages are clean since it was fsynced: what is read now comes from the disk.
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    for (size_t i = 0; i < shard->n_steps && !status; i++) {
        const fq_step *step = &shard->steps[i];
        if (step->action == FQ_COPY)
            status = verify_copy(w, me, fd, header_nbytes + step->target->offset, step, err);
    }
    close(fd);
    return status;
}

fq_status fq_checksums_verify(const fq_checksums *checksums, const fq_plan *plan,
                              const fq_output *output, bool *finished,
                              const fq_check_options *options, fq_error *err) {
    static const fq_pool_work functions = {.take = take_shard, .carry_out = verify_shard};
    work w = {.checksums = checksums,
              .plan = plan,
              .output = output,
              .finished = finished,
              .options = options};
    return run(&functions, &w, err);
}
