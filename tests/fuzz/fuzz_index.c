// Any text as an index: no fault of memory, no path out of the folder, and one that was accepted
// fits the shards that it describes and reads the same when written anew.
//
// Under test: formats/index_read.c formats/index_check.c formats/index_write.c
#include "formats/index_check.h"
#include "formats/output.h"

#include "fuzz.h"
#include "tests/memory_source.h"

// A plan whose shards are those that the index tells of.
static void make_shards(fq_plan *plan, const fq_index *index, fq_arena *arena) {
    plan->shards = fq_arena_array(arena, index->n_shard_names, sizeof *plan->shards);
    DEMAND(plan->shards);
    plan->n_shards = index->n_shard_names;
    for (size_t i = 0; i < plan->n_shards; i++) {
        fq_shard *shard = &plan->shards[i].layout;
        shard->name = index->shard_names[i];
        shard->tensors = fq_arena_array(arena, index->n_entries, sizeof *shard->tensors);
        DEMAND(shard->tensors);
    }
    for (size_t i = 0; i < index->n_entries; i++) {
        const fq_index_entry *entry = &index->entries[i];
        DEMAND(entry->shard < plan->n_shards);
        fq_shard *shard = &plan->shards[entry->shard].layout;
        DEMAND(strcmp(shard->name, entry->shard_name) == 0);
        shard->tensors[shard->n_tensors++] =
            (fq_tensor){.name = entry->tensor, .nbytes = 1, .shard = entry->shard};
    }
}

// The index fits its shards, and no longer where one of them lacks its last tensor.
static void check_fits(const fq_index *index, const fq_plan *plan, bool spoil, fq_arena *arena) {
    memory_source source = memory_source_of("S", "", 0);
    fq_messages faults = {0}, warnings = {0};
    const fq_tensor *duplicate = NULL;
    fq_error err = {0};
    fq_checkpoint checkpoint = {.n_shards = plan->n_shards};
    checkpoint.shards = fq_arena_array(arena, plan->n_shards, sizeof *checkpoint.shards);
    DEMAND(checkpoint.shards);
    for (size_t i = 0; i < plan->n_shards; i++) {
        checkpoint.shards[i] = plan->shards[i].layout;
        checkpoint.shards[i].source = &source.source;
    }
    if (spoil)
        checkpoint.shards[index->entries[0].shard].n_tensors--;
    DEMAND(fq_checkpoint_index(&checkpoint, arena, &duplicate, &err) == FQ_OK && !duplicate);
    fq_index_check(index, &checkpoint, "F", &faults, &warnings);
    DEMAND(spoil ? faults.n == 1 : faults.n == 0 && warnings.n <= 1); // total_size
    fq_messages_free(&faults);
    fq_messages_free(&warnings);
}

static void check_written(const fq_index *index, const fq_plan *plan, fq_arena *arena) {
    const fq_input input = {.index_metadata = index->metadata,
                            .n_index_metadata = index->n_metadata};
    fq_index again;
    fq_messages faults = {0};
    fq_error err = {0};
    char *text = NULL;
    size_t nbytes = 0;
    DEMAND(fq_index_text(&text, &nbytes, plan, &input, &err) == FQ_OK);
    DEMAND(fq_index_read(&again, arena, text, nbytes, "F", &faults, &err) == FQ_OK);
    DEMAND(faults.n == 0 && again.n_entries == index->n_entries);
    for (size_t i = 0; i < again.n_entries; i++) {
        const fq_index_entry *a = &index->entries[i], *b = &again.entries[i];
        DEMAND(strcmp(a->tensor, b->tensor) == 0 && strcmp(a->shard_name, b->shard_name) == 0);
    }
    DEMAND(again.n_metadata == index->n_metadata);
    for (size_t i = 0; i < again.n_metadata; i++) {
        const fq_index_metadata *a = &index->metadata[i], *b = &again.metadata[i];
        DEMAND(strcmp(a->key, b->key) == 0 && strcmp(a->value, b->value) == 0);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fq_arena arena = {0};
    fq_index index;
    fq_plan plan = {0};
    fq_messages faults = {0};
    fq_error err = {0};
    const fq_status status =
        fq_index_read(&index, &arena, (const char *)data, size, "F", &faults, &err);
    DEMAND(status == FQ_OK || (status == FQ_BAD_INPUT && strncmp(err.text, "F: ", 3) == 0));
    DEMAND(status == FQ_OK || index.n_entries == 0);
    for (size_t i = 0; i < index.n_entries; i++) {
        DEMAND(!fq_shard_name_problem(index.entries[i].shard_name));
        DEMAND(i == 0 || strcmp(index.entries[i - 1].tensor, index.entries[i].tensor) < 0);
    }
    if (index.n_entries > 0) {
        make_shards(&plan, &index, &arena);
        check_fits(&index, &plan, false, &arena);
        check_fits(&index, &plan, true, &arena);
        check_written(&index, &plan, &arena);
    }
    fq_messages_free(&faults);
    fq_arena_free(&arena);
    return 0;
}
