// The shards and the config of a model's text as a checkpoint in memory.
#ifndef FQ_TESTS_MODEL_CHECKPOINT_H
#define FQ_TESTS_MODEL_CHECKPOINT_H

#include "formats/config.h"

#include "model_text.h"
#include "tests/memory_source.h"

typedef struct model_checkpoint {
    fq_checkpoint checkpoint;
    fq_model model;
    fq_shard shards[MODEL_MAX_PARTS];
    memory_source sources[MODEL_MAX_PARTS];
    uint8_t *bytes[MODEL_MAX_PARTS];
    fq_arena arena;
} model_checkpoint;

static inline bool model_checkpoint_add(model_checkpoint *out, model_text *model,
                                        const model_part *part, uint64_t max_nbytes,
                                        bool with_data) {
    fq_error err = {0};
    const size_t i = out->checkpoint.n_shards;
    const model_file file = model_make_file(model, part->text, max_nbytes, with_data);
    fq_shard *shard = &out->shards[i];
    out->bytes[i] = file.bytes;
    out->sources[i] = memory_source_of(part->name, file.bytes, file.n);
    *shard = (fq_shard){.name = part->name, .source = &out->sources[i].source};
    out->checkpoint.n_shards++;
    return fq_safetensors_read(shard, &out->arena, shard->source, (uint32_t)i, &err) == FQ_OK;
}

// Data are made up to max_nbytes a shard, or not at all: then only announced. False if some file is
// refused. Borrows model; model_checkpoint_free it after any outcome.
static inline bool model_checkpoint_make(model_checkpoint *out, model_text *model,
                                         uint64_t max_nbytes, bool with_data) {
    const fq_tensor *duplicate = NULL;
    const model_part *config = model_find(model, "config.json");
    fq_error err = {0};
    *out = (model_checkpoint){.model = fq_model_unknown()};
    out->checkpoint = (fq_checkpoint){.path = "model", .is_folder = true, .shards = out->shards};
    if (config && fq_config_read(&out->model, &out->arena, config->text.at, config->text.n,
                                 "config.json", &err) != FQ_OK)
        return false;
    // In the order of names, as a folder is read.
    for (size_t i = 0; i < sizeof model_names / sizeof model_names[0]; i++) {
        const model_part *part = model_find(model, model_names[i]);
        if (part && model_is_shard(part->name) &&
            !model_checkpoint_add(out, model, part, max_nbytes, with_data))
            return false;
    }
    DEMAND(fq_checkpoint_index(&out->checkpoint, &out->arena, &duplicate, &err) == FQ_OK);
    return !duplicate;
}

static inline void model_checkpoint_free(model_checkpoint *memory) {
    for (size_t i = 0; i < memory->checkpoint.n_shards; i++)
        free(memory->bytes[i]);
    fq_arena_free(&memory->arena);
}

// Every line names a file or the model, and is one line.
static inline void check_messages(const fq_messages *messages) {
    for (size_t i = 0; i < messages->n; i++) {
        const char *line = messages->lines[i];
        bool is_named = strncmp(line, "model: ", 7) == 0;
        for (size_t k = 0; k < sizeof model_names / sizeof model_names[0]; k++) {
            const size_t n = strlen(model_names[k]);
            is_named |= strncmp(line, model_names[k], n) == 0 && strncmp(line + n, ": ", 2) == 0;
        }
        DEMAND(is_named);
    }
    DEMAND(messages->n_lost == 0);
}

#endif
