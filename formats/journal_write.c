// The lines of a journal, written.
#include "journal_parts.h"

#include "utf8.h"

#include <stdio.h>
#include <string.h>

// A name, or a value from the command line: any bytes but NUL. JSON holds characters, so a byte
// that is no part of one stands as %FF, and the percent sign as %25.
static void put_name(fq_json_text *out, const char *name) {
    fq_json_text plain = {0};
    const size_t nbytes = strlen(name);
    for (size_t i = 0; i < nbytes;) {
        uint32_t point;
        const size_t n = fq_utf8_decode(&point, name + i, nbytes - i);
        if (n > 0 && point != '%') {
            fq_json_put_bytes(&plain, name + i, n);
            i += n;
        } else {
            char escape[8];
            snprintf(escape, sizeof escape, "%%%02X", (unsigned)(unsigned char)name[i++]);
            fq_json_put(&plain, escape);
        }
    }
    fq_json_put_string(out, plain.bytes ? plain.bytes : "", plain.n);
    out->out_of_memory |= plain.out_of_memory;
    fq_json_text_free(&plain);
}

// The key of the next member, or nothing for the next element of a list.
static void put_key(fq_json_text *out, bool is_first, const char *key) {
    if (!is_first)
        fq_json_put(out, ",");
    if (!key)
        return;
    fq_json_put_string(out, key, strlen(key));
    fq_json_put(out, ":");
}

static void put_u64(fq_json_text *out, const char *key, uint64_t value) {
    put_key(out, false, key);
    fq_json_put_u64(out, value);
}

static void end_line(fq_json_text *out, size_t begin) {
    char check[FQ_JOURNAL_CHECK_NBYTES + 1];
    if (out->out_of_memory)
        return;
    fq_journal_check(check, out->bytes + begin, out->n - begin);
    fq_json_put(out, check);
    fq_json_put(out, "\n");
}

static void put_options(fq_json_text *out, const fq_journal_run *run) {
    fq_json_put(out, ",\"options\":{");
    for (size_t i = 0; i < run->n_options; i++) {
        put_key(out, i == 0, run->options[i].name);
        fq_json_put(out, "[");
        for (size_t k = 0; k < run->options[i].n_values; k++) {
            put_key(out, k == 0, NULL);
            put_name(out, run->options[i].values[k]);
        }
        fq_json_put(out, "]");
    }
    fq_json_put(out, "}");
}

static void put_inputs(fq_json_text *out, const fq_journal_run *run) {
    fq_json_put(out, ",\"input\":[");
    for (size_t i = 0; i < run->n_inputs; i++) {
        const fq_journal_input *input = &run->inputs[i];
        put_key(out, i == 0, NULL);
        fq_json_put(out, "{\"name\":");
        put_name(out, input->name);
        put_u64(out, "nbytes", input->nbytes);
        put_u64(out, "mtime_ns", input->mtime_ns);
        put_u64(out, "crc32", input->crc32);
        fq_json_put(out, "}");
    }
    fq_json_put(out, "]");
}

void fq_journal_put_run(fq_json_text *out, const fq_journal_run *run) {
    const size_t begin = out->n;
    fq_json_put(out, "{\"" FQ_JOURNAL_FIRST_KEY "\":");
    fq_json_put_u64(out, FQ_JOURNAL_FORMAT);
    fq_json_put(out, ",\"version\":");
    put_name(out, run->version);
    fq_json_put(out, ",\"command\":");
    put_name(out, run->command);
    put_options(out, run);
    put_inputs(out, run);
    end_line(out, begin);
}

void fq_journal_put_nonfinite(fq_json_text *out, const fq_tensor *const *tensors, size_t n) {
    const size_t begin = out->n;
    fq_json_put(out, "{\"nonfinite\":[");
    for (size_t i = 0; i < n; i++) {
        put_key(out, i == 0, NULL);
        put_name(out, tensors[i]->name);
    }
    fq_json_put(out, "]");
    end_line(out, begin);
}

static uint64_t figure(const fq_step_counts *counts, size_t offset) {
    uint64_t value;
    memcpy(&value, (const char *)counts + offset, sizeof value);
    return value;
}

// The figures other than 0, as step, value, step, value, ...
static void put_counts(fq_json_text *out, const fq_step_counts *counts, size_t n_steps) {
    bool is_first_field = true;
    fq_json_put(out, ",\"counts\":{");
    for (size_t f = 0; f < FQ_JOURNAL_N_FIELDS; f++) {
        const fq_journal_field *field = &fq_journal_fields[f];
        bool is_first = true;
        for (size_t i = 0; i < n_steps; i++) {
            const uint64_t value = figure(&counts[i], field->offset);
            if (value == 0)
                continue;
            if (is_first) {
                put_key(out, is_first_field, field->name);
                fq_json_put(out, "[");
            }
            put_key(out, is_first, NULL);
            fq_json_put_u64(out, i);
            put_u64(out, NULL, value);
            is_first = is_first_field = false;
        }
        if (!is_first)
            fq_json_put(out, "]");
    }
    fq_json_put(out, "}");
}

void fq_journal_put_shard(fq_json_text *out, const char *name, const fq_sink_digest *digest,
                          const fq_step_counts *counts, size_t n_steps) {
    const size_t begin = out->n;
    fq_json_put(out, "{\"shard\":");
    put_name(out, name);
    put_u64(out, "nbytes", digest->nbytes);
    put_u64(out, "crc32", digest->crc32);
    put_counts(out, counts, n_steps);
    end_line(out, begin);
}

static void put_place(fq_json_text *out, bool is_first, const char *key,
                      const fq_journal_place *place) {
    put_key(out, is_first, key);
    fq_json_put(out, "{\"inode\":");
    fq_json_put_u64(out, place->inode);
    put_u64(out, "birth_ns", place->birth_ns);
    fq_json_put(out, "}");
}

void fq_journal_put_complete(fq_json_text *out, const fq_journal_place *output,
                             const fq_journal_place *replaced) {
    const size_t begin = out->n;
    fq_json_put(out, "{");
    put_place(out, true, "complete", output);
    put_place(out, false, "replaced", replaced);
    end_line(out, begin);
}
