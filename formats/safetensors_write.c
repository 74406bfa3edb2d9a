// A shard's safetensors header: compact JSON, padded so that the data start 8-byte aligned.
#include "safetensors.h"

#include "json.h"

#include <string.h>

enum { LENGTH_NBYTES = 8, ALIGNMENT = 8 };

static void put_pair(fq_json_text *out, const char *key, const char *value, bool *is_first) {
    if (!*is_first)
        fq_json_put(out, ",");
    *is_first = false;
    fq_json_put_string(out, key, strlen(key));
    fq_json_put(out, ":");
    fq_json_put_string(out, value, strlen(value));
}

// The layout's entries are sorted by key; `format` goes to its place among them.
static void put_metadata(fq_json_text *out, const fq_shard *layout) {
    bool is_first = true, has_format = false;
    fq_json_put(out, "\"__metadata__\":{");
    for (size_t i = 0; i < layout->n_metadata; i++) {
        const fq_metadata *entry = &layout->metadata[i];
        const int order = strcmp(entry->key, "format");
        if (order > 0 && !has_format)
            put_pair(out, "format", "pt", &is_first);
        has_format = has_format || order >= 0;
        put_pair(out, entry->key, entry->value, &is_first);
    }
    if (!has_format)
        put_pair(out, "format", "pt", &is_first);
    fq_json_put(out, "}");
}

static void put_tensor(fq_json_text *out, const fq_tensor *tensor) {
    fq_json_put(out, ",");
    fq_json_put_string(out, tensor->name, strlen(tensor->name));
    fq_json_put(out, ":{\"dtype\":\"");
    fq_json_put(out, fq_dtype_name(tensor->dtype));
    fq_json_put(out, "\",\"shape\":[");
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (i > 0)
            fq_json_put(out, ",");
        fq_json_put_u64(out, tensor->shape[i]);
    }
    fq_json_put(out, "],\"data_offsets\":[");
    fq_json_put_u64(out, tensor->offset);
    fq_json_put(out, ",");
    fq_json_put_u64(out, tensor->offset + tensor->nbytes);
    fq_json_put(out, "]}");
}

fq_status fq_safetensors_header(char **out, size_t *nbytes, const fq_shard *layout, fq_error *err) {
    fq_json_text text = {0};
    fq_json_put_bytes(&text, "\0\0\0\0\0\0\0", LENGTH_NBYTES); // the length's place
    fq_json_put(&text, "{");
    put_metadata(&text, layout);
    for (size_t i = 0; i < layout->n_tensors; i++)
        put_tensor(&text, &layout->tensors[i]);
    fq_json_put(&text, "}");
    while (text.n % ALIGNMENT != 0 && !text.out_of_memory)
        fq_json_put(&text, " ");
    fq_status status = FQ_OK;
    if (text.out_of_memory)
        status = fq_fail_memory(err);
    else if (text.n - LENGTH_NBYTES > FQ_SAFETENSORS_MAX_HEADER)
        status = fq_fail(err, FQ_BAD_INPUT,
                         "%s: the header would have %zu bytes, at most %d are allowed; spread the "
                         "tensors over more files",
                         layout->name, text.n - LENGTH_NBYTES, FQ_SAFETENSORS_MAX_HEADER);
    if (status != FQ_OK) {
        fq_json_text_free(&text);
        return status;
    }
    uint64_t header_nbytes = text.n - LENGTH_NBYTES;
    for (int i = 0; i < LENGTH_NBYTES; i++, header_nbytes >>= 8)
        text.bytes[i] = (char)(header_nbytes & 0xFF);
    *out = text.bytes;
    *nbytes = text.n;
    return FQ_OK;
}
