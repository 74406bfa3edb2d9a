// A safetensors file's frame: length, header, and tensors that cover the data without a gap.
#include "safetensors.h"

#include "safetensors_entries.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_NBYTES = 8 }; // of the header's length, little-endian

// What lies in the place of weights in practice. Only asked when the length makes no sense: a good
// file's may begin like anything. Short ones are only believed when the length exceeds its limit,
// as it does in such files; a safetensors file that is cut short may begin like that, too.
static const struct {
    const char *magic;
    const char *what;
} foreign_formats[] = {
    {"version https://git-lfs", "this is a Git LFS pointer, not the weights; run git lfs pull"},
    {"<", "this is a web page or XML; download the weights again"},
    {"{", "this is JSON, not weights; download the weights again"},
    {"GGUF", "this is a GGUF model; give fp8q the safetensors that it was made from"},
    {"PK\3\4", "this is a PyTorch file (zip); save the weights as safetensors"},
    {"\x80\x02", "this looks like a Python pickle; save the weights as safetensors"},
    {"\x80\x03", "this looks like a Python pickle; save the weights as safetensors"},
    {"\x80\x04", "this looks like a Python pickle; save the weights as safetensors"},
    {"\x80\x05", "this looks like a Python pickle; save the weights as safetensors"},
    {"\x89HDF", "this is an HDF5 file; save the weights as safetensors"},
    {"\x28\xB5\x2F\xFD", "this is compressed with zstd; unpack it with zstd -d"},
    {"\x1F\x8B", "this looks compressed with gzip; unpack it with gzip -d"},
};

enum { LONGEST_MAGIC = 32, LONG_MAGIC = 4 };

// FQ_BAD_INPUT for a length that cannot be one, in the words of what the file is instead.
// start: the first LONGEST_MAGIC bytes, zeros where the file ends before.
static fq_status fail_length(const fq_source *source, const char *start, uint64_t header_nbytes,
                             fq_error *err) {
    const char *file = source->name;
    const bool exceeds_limit = header_nbytes > FQ_SAFETENSORS_MAX_HEADER;
    if (source->nbytes < LENGTH_NBYTES)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: %" PRIu64 " bytes are too few for a safetensors file; fetch it again",
                       file, source->nbytes);
    for (size_t i = 0; i < sizeof foreign_formats / sizeof foreign_formats[0]; i++) {
        const char *magic = foreign_formats[i].magic;
        const size_t n = strlen(magic);
        if (memcmp(start, magic, n) == 0 && (n >= LONG_MAGIC || exceeds_limit))
            return fq_fail(err, FQ_BAD_INPUT, "%s: %s", file, foreign_formats[i].what);
    }
    if (exceeds_limit)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: says that its header has %" PRIu64 " bytes, at most %d are allowed; is "
                       "this a safetensors file?",
                       file, header_nbytes, FQ_SAFETENSORS_MAX_HEADER);
    return fq_fail(err, FQ_BAD_INPUT,
                   "%s: is cut short: says that its header has %" PRIu64 " bytes, but has only "
                   "%" PRIu64 " in all; fetch it again",
                   file, header_nbytes, source->nbytes);
}

// Reads and checks the header's length.
static fq_status read_length(uint64_t *out, fq_source *source, fq_error *err) {
    char start[LONGEST_MAGIC] = {0};
    const size_t n = source->nbytes < sizeof start ? (size_t)source->nbytes : sizeof start;
    const fq_status status = source->read(source, 0, start, n, err);
    if (status != FQ_OK)
        return status;
    uint64_t header_nbytes = 0;
    for (int i = LENGTH_NBYTES - 1; i >= 0; i--)
        header_nbytes = header_nbytes << 8 | (unsigned char)start[i];
    if (source->nbytes < LENGTH_NBYTES || header_nbytes > FQ_SAFETENSORS_MAX_HEADER ||
        header_nbytes > source->nbytes - LENGTH_NBYTES)
        return fail_length(source, start, header_nbytes, err);
    *out = header_nbytes;
    return FQ_OK;
}

static int compare_places(const void *a, const void *b) {
    const fq_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->nbytes != y->nbytes)
        return x->nbytes < y->nbytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

// Each tensor of the sorted list must start where the one before it ends, and the last one must end
// the file. Tensors of 0 bytes may share a boundary. offset + nbytes was a number of the header.
static fq_status check_coverage(const fq_tensor *tensors, size_t n, uint64_t data_nbytes,
                                const char *file, fq_error *err) {
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const fq_tensor *tensor = &tensors[i];
        if (tensor->offset > end)
            return fq_entries_fail(err, file, tensor->name,
                                   "starts at byte %" PRIu64
                                   ", but the tensor before it ends at %" PRIu64,
                                   tensor->offset, end);
        if (tensor->offset < end)
            return fq_entries_fail(err, file, tensor->name, "overlaps %.200s", tensors[i - 1].name);
        end = tensor->offset + tensor->nbytes;
    }
    if (end > data_nbytes)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: is cut short: %" PRIu64 " bytes are missing at its end; fetch it again",
                       file, end - data_nbytes);
    if (end < data_nbytes)
        return fq_fail(err, FQ_BAD_INPUT,
                       "%s: the last %" PRIu64 " bytes belong to no tensor; fetch it again", file,
                       data_nbytes - end);
    return FQ_OK;
}

// Moves the entries into the arena, sorted, and checks them as a whole.
static fq_status make_shard(fq_shard *out, fq_arena *arena, const fq_entries *entries,
                            uint64_t data_nbytes, uint32_t shard_index, const char *file,
                            fq_error *err) {
    fq_tensor *tensors = fq_arena_array(arena, entries->n_tensors, sizeof *tensors);
    fq_metadata *metadata = fq_arena_array(arena, entries->n_metadata, sizeof *metadata);
    if (!tensors || !metadata)
        return fq_fail_memory(err);
    for (size_t i = 0; i < entries->n_tensors; i++) {
        tensors[i] = entries->tensors[i];
        tensors[i].shard = shard_index;
    }
    for (size_t i = 0; i < entries->n_metadata; i++)
        metadata[i] = entries->metadata[i];
    qsort(tensors, entries->n_tensors, sizeof *tensors, compare_places);
    fq_metadata_sort(metadata, entries->n_metadata);
    const fq_status status = check_coverage(tensors, entries->n_tensors, data_nbytes, file, err);
    if (status != FQ_OK)
        return status;
    out->data_nbytes = data_nbytes;
    out->metadata = metadata;
    out->n_metadata = entries->n_metadata;
    out->tensors = tensors;
    out->n_tensors = entries->n_tensors;
    return FQ_OK;
}

fq_status fq_safetensors_read(fq_shard *out, fq_arena *arena, fq_source *source,
                              uint32_t shard_index, fq_error *err) {
    uint64_t header_nbytes = 0;
    char *header = NULL;
    fq_entries entries = {0};
    fq_status status = read_length(&header_nbytes, source, err);
    if (status != FQ_OK)
        goto out;
    header = malloc((size_t)header_nbytes + 1);
    if (!header) {
        status = fq_fail_memory(err);
        goto out;
    }
    status = source->read(source, LENGTH_NBYTES, header, (size_t)header_nbytes, err);
    if (status == FQ_OK)
        status = fq_entries_read(&entries, arena, header, (size_t)header_nbytes, source->name, err);
    if (status != FQ_OK)
        goto out;
    free(header); // up to 100 MB that sorting need not find taken
    header = NULL;
    const uint64_t data_nbytes = source->nbytes - LENGTH_NBYTES - header_nbytes;
    status = make_shard(out, arena, &entries, data_nbytes, shard_index, source->name, err);
    if (status == FQ_OK)
        out->data_start = LENGTH_NBYTES + header_nbytes;
out:
    fq_entries_free(&entries);
    free(header);
    return status;
}
