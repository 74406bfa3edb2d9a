// Outputs made in a scratch folder: for tests of their protocol.
#ifndef FQ_TESTS_SCRATCH_OUTPUT_H
#define FQ_TESTS_SCRATCH_OUTPUT_H

#include "formats/output.h"

#include "tests/scratch.h"

// A folder "NAME" with one shard, config.json and tokenizer.json, opened.
static inline void scratch_model(scratch_input *out, const char *name) {
    char path[256];
    scratch_mkdir(name);
    snprintf(path, sizeof path, "%s/model.safetensors", name);
    scratch_shard(path, "a");
    snprintf(path, sizeof path, "%s/config.json", name);
    scratch_write(path, "{}");
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    scratch_write(path, "{\"t\":1}");
    scratch_open(out, name, NULL);
    CHECK(out->status == FQ_OK && out->faults.n == 0);
}

// What all these runs are asked for.
static const fq_journal_run scratch_run = {.version = "1", .command = "test"};

static inline fq_output_options scratch_options(bool force) {
    return (fq_output_options){.force = force, .needed_nbytes = 100, .run = &scratch_run};
}

static inline fq_status scratch_output(fq_output **out, const char *name, const scratch_input *in,
                                       bool force, fq_error *err) {
    const fq_output_options options = scratch_options(force);
    *out = NULL;
    *err = (fq_error){0};
    return fq_output_open(out, scratch_path(name), &in->input, &options, err);
}

// What opening that output would say, found out without opening it.
static inline fq_status scratch_examine(const char *name, const scratch_input *in, bool force,
                                        fq_error *err) {
    const fq_output_options options = scratch_options(force);
    *err = (fq_error){0};
    return fq_output_examine(scratch_path(name), &in->input, &options, err);
}

// The plan's shard of scratch_put_shard: one U8 tensor "w" of n bytes, the tensor and its shape in
// the caller's memory.
static inline fq_plan_shard scratch_plan_shard(fq_tensor *tensor, uint64_t *shape, const char *name,
                                               size_t n) {
    *shape = n;
    *tensor = (fq_tensor){.name = "w", .dtype = FQ_U8, .rank = 1, .shape = shape, .nbytes = n};
    return (fq_plan_shard){
        .layout = {.name = name, .data_nbytes = n, .tensors = tensor, .n_tensors = 1}};
}

// Writes a shard of one U8 tensor "w" of n bytes through the output's sink, in two pieces, the
// second one first, and notes it in the journal.
static inline fq_status scratch_put_shard(fq_output *output, const char *name, size_t n,
                                          fq_error *err) {
    fq_tensor tensor;
    uint64_t shape;
    const fq_plan_shard shard = scratch_plan_shard(&tensor, &shape, name, n);
    fq_sink *sink = fq_output_sink(output);
    fq_sink_file *file = NULL;
    fq_sink_digest digest;
    char *bytes = malloc(n);
    memset(bytes, 'y', n);
    fq_status status = sink->begin(sink, &file, &shard.layout, err);
    if (status == FQ_OK) {
        const size_t half = n / 2;
        const fq_sink_rows first = fq_sink_run(0, half), second = fq_sink_run(half, n - half);
        status = sink->write(file, &second, bytes + half, err);
        if (status == FQ_OK)
            status = sink->write(file, &first, bytes, err);
        if (status == FQ_OK)
            status = sink->commit(file, &digest, err);
        else
            sink->abort(file);
    }
    if (status == FQ_OK)
        fq_output_note_shard(output, &shard, &digest, NULL);
    free(bytes);
    return status;
}

// A whole run with one shard, side files and config.json; ended in any case.
static inline fq_status scratch_convert(const char *name, const scratch_input *in, bool force,
                                        fq_error *err) {
    fq_output *output = NULL;
    fq_status status = scratch_output(&output, name, in, force, err);
    if (status != FQ_OK)
        return status;
    status = scratch_put_shard(output, "model.safetensors", 1000, err);
    if (status == FQ_OK && in->input.checkpoint.is_folder) {
        status = fq_output_copy_side_files(output, &in->input, err);
        if (status == FQ_OK)
            status = fq_output_put(output, "config.json", "{\"q\":1}", 7, err);
    }
    if (status == FQ_OK)
        return fq_output_commit(output, err);
    fq_output_abandon(output, false, &(fq_error){0});
    return status;
}

// The file is a sound safetensors file with n bytes of data, all 'y'.
static inline void scratch_check_shard(const char *name, size_t n) {
    scratch_input in;
    scratch_open(&in, name, NULL);
    CHECK_STR(scratch_lines(&in.faults), "");
    const fq_shard *shard = in.input.checkpoint.shards;
    if (CHECK(in.status == FQ_OK && in.input.checkpoint.n_tensors == 1) &&
        CHECK(shard->data_nbytes == n)) {
        char *bytes = malloc(n);
        CHECK(shard->source->read(shard->source, shard->data_start, bytes, n, &in.err) == FQ_OK);
        CHECK(bytes[0] == 'y' && memcmp(bytes, bytes + 1, n - 1) == 0);
        free(bytes);
    }
    scratch_close(&in);
}

#endif
