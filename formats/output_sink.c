// The sink of an output: safetensors files whose headers come first and whose data go to their
// places.
#include "output_parts.h"

#include "safetensors.h"

#include <stdlib.h>

struct fq_sink_file {
    fq_output_file file;
    uint64_t data_start;
};

static fq_status sink_begin(fq_sink *sink, fq_sink_file **out, const fq_shard *layout,
                            fq_error *err) {
    fq_output *output = (fq_output *)sink;
    char *header = NULL;
    size_t header_nbytes = 0;
    uint64_t nbytes;
    fq_sink_file *shard = calloc(1, sizeof *shard);
    if (!shard)
        return fq_fail_memory(err);
    fq_status status = fq_safetensors_header(&header, &header_nbytes, layout, err);
    if (status == FQ_OK)
        status = fq_output_file_create(&shard->file, output, layout->name, 0666, err);
    if (status != FQ_OK)
        goto out;
    shard->data_start = header_nbytes;
    if (__builtin_add_overflow(header_nbytes, layout->data_nbytes, &nbytes))
        nbytes = UINT64_MAX; // refused as too large
    status = fq_output_file_resize(&shard->file, nbytes, err);
    if (status == FQ_OK)
        status = fq_output_file_write(&shard->file, 0, header, header_nbytes, err);
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

static fq_status sink_write(fq_sink_file *shard, uint64_t offset, const void *data, size_t nbytes,
                            fq_error *err) {
    return fq_output_file_write(&shard->file, shard->data_start + offset, data, nbytes, err);
}

static fq_status sink_commit(fq_sink_file *shard, fq_error *err) {
    fq_output *output = shard->file.output;
    const fq_status status = fq_output_file_finish(&shard->file, err);
    if (status == FQ_OK)
        __atomic_fetch_add(&output->n_finished, 1, __ATOMIC_RELAXED);
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
