// The sink of an output: safetensors files whose headers come first and whose data go to their
// places.
#include "output_parts.h"

#include "crc.h"
#include "safetensors.h"

#include <stdlib.h>

struct fq_sink_file {
    fq_output_file file;
    uint64_t data_start;
    uint64_t nbytes;
    uint32_t crc32; // of all that was written so far, each at its place; added to atomically
};

// Writes rows whose offset counts from the start of the file.
static fq_status write_rows(fq_sink_file *shard, const fq_sink_rows *rows, const void *data,
                            fq_error *err) {
    const char *row = data;
    fq_status status = FQ_OK;
    for (uint64_t i = 0; i < rows->n_rows && status == FQ_OK; i++, row += rows->row_nbytes)
        status = fq_output_file_write(&shard->file, rows->offset + i * rows->stride, row,
                                      rows->row_nbytes, err);
    if (status == FQ_OK)
        __atomic_fetch_xor(&shard->crc32, fq_crc32_of_rows(rows, data, shard->nbytes),
                           __ATOMIC_RELAXED);
    return status;
}

static fq_status sink_begin(fq_sink *sink, fq_sink_file **out, const fq_shard *layout,
                            fq_error *err) {
    fq_output *output = (fq_output *)sink;
    char *header = NULL;
    size_t header_nbytes = 0;
    fq_sink_file *shard = calloc(1, sizeof *shard);
    if (!shard)
        return fq_fail_memory(err);
    fq_status status = fq_safetensors_header(&header, &header_nbytes, layout, err);
    if (status == FQ_OK)
        status = fq_output_file_create(&shard->file, output, layout->name, 0666, err);
    if (status != FQ_OK)
        goto out;
    shard->data_start = header_nbytes;
    if (__builtin_add_overflow(header_nbytes, layout->data_nbytes, &shard->nbytes))
        shard->nbytes = UINT64_MAX; // refused as too large
    status = fq_output_file_resize(&shard->file, shard->nbytes, err);
    const fq_sink_rows all = fq_sink_run(0, header_nbytes);
    if (status == FQ_OK)
        status = write_rows(shard, &all, header, err);
    if (status != FQ_OK) {
        fq_output_file_drop(&shard->file);
        goto out;
    }
    *out = shard;
    shard = NULL;
out:
    free(header);
    free(shard);
    return status;
}

static fq_status sink_write(fq_sink_file *shard, const fq_sink_rows *rows, const void *data,
                            fq_error *err) {
    fq_sink_rows placed = *rows;
    placed.offset += shard->data_start;
    return write_rows(shard, &placed, data, err);
}

static fq_status sink_commit(fq_sink_file *shard, fq_sink_digest *out, fq_error *err) {
    const fq_status status = fq_output_file_finish(&shard->file, err);
    *out = (fq_sink_digest){.nbytes = shard->nbytes, .crc32 = shard->crc32};
    free(shard);
    return status;
}

static void sink_abort(fq_sink_file *shard) {
    fq_output_file_drop(&shard->file);
    free(shard);
}

void fq_output_init_sink(fq_output *output) {
    output->sink = (fq_sink){
        .begin = sink_begin, .write = sink_write, .commit = sink_commit, .abort = sink_abort};
}

fq_sink *fq_output_sink(fq_output *output) { return &output->sink; }
