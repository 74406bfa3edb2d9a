// Any bytes as a safetensors file: no fault of memory, tensors that tile the data, and a header
// that was accepted reads the same when written anew.
//
// Under test: formats/safetensors_read.c formats/safetensors_entries.c formats/safetensors_write.c
#include "formats/safetensors.h"

#include "fuzz.h"
#include "model_text.h"
#include "tests/memory_source.h"

static void check_tiling(const fq_shard *shard) {
    uint64_t at = 0;
    for (size_t i = 0; i < shard->n_tensors; i++) {
        const fq_tensor *tensor = &shard->tensors[i];
        uint64_t nbytes;
        DEMAND(fq_tensor_nbytes(&nbytes, tensor->dtype, tensor->shape, tensor->rank));
        DEMAND(tensor->offset == at && tensor->nbytes == nbytes && tensor->rank <= FQ_MAX_RANK);
        at += nbytes;
    }
    DEMAND(at == shard->data_nbytes);
}

static void check_same(const fq_shard *a, const fq_shard *b) {
    DEMAND(a->n_tensors == b->n_tensors && a->data_nbytes == b->data_nbytes);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const fq_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        DEMAND(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && x->rank == y->rank);
        DEMAND(memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0);
        DEMAND(x->offset == y->offset && x->nbytes == y->nbytes && x->shard == y->shard);
    }
    size_t k = 0; // b has `format` besides, where a lacks it
    for (size_t i = 0; i < a->n_metadata; i++, k++) {
        while (k < b->n_metadata && strcmp(a->metadata[i].key, b->metadata[k].key) != 0)
            k++;
        DEMAND(k < b->n_metadata && strcmp(a->metadata[i].value, b->metadata[k].value) == 0);
    }
    DEMAND(b->n_metadata - a->n_metadata <= 1);
}

// size counts data that are only announced, too: nobody reads them.
static void read_file(const uint8_t *bytes, uint64_t size) {
    fq_arena arena = {0};
    fq_shard shard = {.name = "F"}, again = {.name = "F"};
    fq_error err = {0};
    char *header = NULL;
    size_t nbytes = 0;
    memory_source memory = memory_source_of("F", bytes, size);
    const fq_status status = fq_safetensors_read(&shard, &arena, &memory.source, 3, &err);
    DEMAND(status == FQ_OK || (status == FQ_BAD_INPUT && strncmp(err.text, "F: ", 3) == 0));
    if (status == FQ_OK) {
        DEMAND(shard.data_start + shard.data_nbytes == size);
        check_tiling(&shard);
        DEMAND(fq_safetensors_header(&header, &nbytes, &shard, &err) == FQ_OK);
        // Only the header is there to be read; the data are announced.
        memory = memory_source_of("F", header, nbytes + shard.data_nbytes);
        DEMAND(fq_safetensors_read(&again, &arena, &memory.source, 3, &err) == FQ_OK);
        check_same(&shard, &again);
    }
    free(header);
    fq_arena_free(&arena);
}

// The bytes as they are; and, since mutations seldom keep lengths right, those behind the first 8
// once more as a header with a right one, before as many data as it speaks of, up to the greatest.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_file(data, size);
    if (size <= 8)
        return 0;
    const model_bytes header = {(const char *)data + 8, size - 8};
    const model_file file = model_file_of_header(header, UINT64_MAX / 2, false);
    read_file(file.bytes, file.n);
    free(file.bytes);
    return 0;
}
