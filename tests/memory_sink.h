// Shards kept in memory as a sink, with a call that can be made to fail: for tests of the run.
#ifndef FQ_TESTS_MEMORY_SINK_H
#define FQ_TESTS_MEMORY_SINK_H

#include "lib/sink.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_SINK_MAX_FILES = 32 };

struct fq_sink_file {
    struct memory_sink *sink;
    const fq_shard *layout;
    unsigned char *bytes;   // [data_nbytes]
    unsigned char *n_times; // [data_nbytes]: how often each byte was written
    bool open, committed, aborted;
};

typedef struct memory_sink {
    fq_sink sink; // first: the two are cast into each other
    fq_sink_file files[MEMORY_SINK_MAX_FILES];
    size_t n_files;
    long fail_at; // the call that fails, counted from 0 over all calls but abort; -1: none
    long n_calls;
    pthread_mutex_t lock;
} memory_sink;

// With the lock held.
static inline fq_status memory_sink_count(memory_sink *memory, fq_error *err) {
    return memory->n_calls++ == memory->fail_at ? fq_fail(err, FQ_IO, "sink: no space left")
                                                : FQ_OK;
}

static inline fq_status memory_sink_begin(fq_sink *sink, fq_sink_file **out, const fq_shard *layout,
                                          fq_error *err) {
    memory_sink *memory = (memory_sink *)sink;
    pthread_mutex_lock(&memory->lock);
    fq_status status = memory_sink_count(memory, err);
    if (!status && memory->n_files == MEMORY_SINK_MAX_FILES)
        status = fq_fail(err, FQ_IO, "sink: too many files for this test");
    if (!status) {
        fq_sink_file *file = &memory->files[memory->n_files++];
        *file = (fq_sink_file){.sink = memory, .layout = layout, .open = true};
        file->bytes = malloc(layout->data_nbytes + 1);
        file->n_times = calloc(layout->data_nbytes + 1, 1);
        *out = file;
    }
    pthread_mutex_unlock(&memory->lock);
    return status;
}

static inline fq_status memory_sink_write(fq_sink_file *file, const fq_sink_rows *rows,
                                          const void *data, fq_error *err) {
    const unsigned char *bytes = data;
    pthread_mutex_lock(&file->sink->lock);
    fq_status status = memory_sink_count(file->sink, err);
    const uint64_t end = rows->offset + (rows->n_rows - 1) * rows->stride + rows->row_nbytes;
    if (!status && (!file->open || end > file->layout->data_nbytes))
        status = fq_fail(err, FQ_IO, "sink: written after the end");
    for (uint64_t row = 0; row < rows->n_rows && !status; row++) {
        const uint64_t offset = rows->offset + row * rows->stride;
        memcpy(file->bytes + offset, bytes + row * rows->row_nbytes, rows->row_nbytes);
        for (uint64_t i = 0; i < rows->row_nbytes; i++)
            file->n_times[offset + i]++;
    }
    pthread_mutex_unlock(&file->sink->lock);
    return status;
}

// The digest is of the data alone: a header is no part of this sink. In the place of a CRC stands
// the file's number.
static inline fq_status memory_sink_commit(fq_sink_file *file, fq_sink_digest *out, fq_error *err) {
    pthread_mutex_lock(&file->sink->lock);
    *out = (fq_sink_digest){.nbytes = file->layout->data_nbytes,
                            .crc32 = (uint32_t)(file - file->sink->files)};
    const fq_status status = memory_sink_count(file->sink, err);
    file->open = false;
    file->committed = !status;
    pthread_mutex_unlock(&file->sink->lock);
    return status;
}

static inline void memory_sink_abort(fq_sink_file *file) {
    file->open = false;
    file->aborted = true;
}

static inline void memory_sink_init(memory_sink *memory, long fail_at) {
    memset(memory, 0, sizeof *memory);
    memory->sink =
        (fq_sink){memory_sink_begin, memory_sink_write, memory_sink_commit, memory_sink_abort};
    memory->fail_at = fail_at;
    pthread_mutex_init(&memory->lock, NULL);
}

static inline void memory_sink_finish(memory_sink *memory) {
    for (size_t i = 0; i < memory->n_files; i++) {
        free(memory->files[i].bytes);
        free(memory->files[i].n_times);
    }
    pthread_mutex_destroy(&memory->lock);
}

// Every byte of the file's data was written exactly once.
static inline bool memory_sink_is_complete(const fq_sink_file *file) {
    for (uint64_t i = 0; i < file->layout->data_nbytes; i++) {
        if (file->n_times[i] != 1)
            return false;
    }
    return true;
}

// The committed file of that name, or NULL.
static inline fq_sink_file *memory_sink_find(memory_sink *memory, const char *name) {
    for (size_t i = 0; i < memory->n_files; i++) {
        if (memory->files[i].committed && strcmp(memory->files[i].layout->name, name) == 0)
            return &memory->files[i];
    }
    return NULL;
}

#endif
