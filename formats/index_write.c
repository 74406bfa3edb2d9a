// The index of an output: which of its shards holds which tensor.
#include "output.h"

#include "json.h"

#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *tensor;
    const char *shard;
} row;

static int compare_rows(const void *a, const void *b) {
    return strcmp(((const row *)a)->tensor, ((const row *)b)->tensor);
}

static void put_metadata(fq_json_text *text, uint64_t total_size, const fq_input *input) {
    fq_json_put(text, "{\n  \"metadata\": {\n    \"total_size\": ");
    fq_json_put_u64(text, total_size);
    for (size_t i = 0; i < input->n_index_metadata; i++) {
        const fq_index_metadata *entry = &input->index_metadata[i];
        fq_json_put(text, ",\n    ");
        fq_json_put_string(text, entry->key, strlen(entry->key));
        fq_json_put(text, ": ");
        fq_json_put(text, entry->value);
    }
    fq_json_put(text, "\n  },\n  \"weight_map\": {");
}

static void put_rows(fq_json_text *text, const row *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fq_json_put(text, i == 0 ? "\n    " : ",\n    ");
        fq_json_put_string(text, rows[i].tensor, strlen(rows[i].tensor));
        fq_json_put(text, ": ");
        fq_json_put_string(text, rows[i].shard, strlen(rows[i].shard));
    }
    fq_json_put(text, "\n  }\n}\n");
}

fq_status fq_index_text(char **out, size_t *nbytes, const fq_plan *plan, const fq_input *input,
                        fq_error *err) {
    size_t n = 0, capacity = 0;
    uint64_t total_size = 0;
    fq_json_text text = {0};
    for (size_t i = 0; i < plan->n_shards; i++)
        capacity += plan->shards[i].layout.n_tensors;
    row *rows = calloc(capacity + 1, sizeof *rows);
    if (!rows)
        return fq_fail_memory(err);
    for (size_t i = 0; i < plan->n_shards; i++) {
        const fq_shard *shard = &plan->shards[i].layout;
        for (size_t k = 0; k < shard->n_tensors; k++) {
            rows[n++] = (row){shard->tensors[k].name, shard->name};
            total_size += shard->tensors[k].nbytes;
        }
    }
    qsort(rows, n, sizeof *rows, compare_rows);
    put_metadata(&text, total_size, input);
    put_rows(&text, rows, n);
    free(rows);
    if (text.out_of_memory) {
        fq_json_text_free(&text);
        return fq_fail_memory(err);
    }
    *out = text.bytes;
    *nbytes = text.n;
    return FQ_OK;
}

const char *fq_output_index_name(const fq_input *input) {
    return input->index_name ? input->index_name : "model.safetensors.index.json";
}
