// The index of a model folder held against its shards: one pass over two sorted lists of names.
#include "index_check.h"

#include "json.h"
#include "name_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_SHOWN = 20 }; // of one kind of fault

typedef struct checker {
    const fq_index *index;
    const fq_checkpoint *checkpoint;
    const char *file;
    fq_messages *faults;
    size_t n_missing, n_misplaced;
    uint64_t nbytes; // of the tensors that the index names
    fq_name_list unnamed;
} checker;

static void report_missing(checker *c, const fq_index_entry *entry) {
    const bool was_read = c->checkpoint->shards[entry->shard].source != NULL;
    if (was_read && ++c->n_missing <= LINES_SHOWN)
        fq_messages_add(c->faults, "%s: %s: is in no shard, but the index names it for %s", c->file,
                        entry->tensor, entry->shard_name);
}

// Takes the tensors by_name[begin, ...) that bear the entry's name (several are reported
// elsewhere), and returns the place after them.
static size_t check_entry(checker *c, const fq_index_entry *entry, size_t begin) {
    const fq_checkpoint *checkpoint = c->checkpoint;
    bool is_in_place = false;
    size_t end = begin;
    for (; end < checkpoint->n_tensors; end++) {
        const fq_tensor *tensor = checkpoint->by_name[end];
        if (strcmp(tensor->name, entry->tensor) != 0)
            break;
        is_in_place |= tensor->shard == entry->shard;
    }
    c->nbytes += checkpoint->by_name[begin]->nbytes;
    if (!is_in_place && ++c->n_misplaced <= LINES_SHOWN)
        fq_messages_add(c->faults, "%s: %s: is in %s, but the index names it for %s", c->file,
                        entry->tensor, fq_tensor_file(checkpoint, checkpoint->by_name[begin]),
                        entry->shard_name);
    return end;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

// True if the JSON text of total_size is that number, also where it is written as a float.
static bool is_total(const char *json, uint64_t nbytes) {
    uint64_t value;
    if (fq_json_u64(&value, json, strlen(json)))
        return value == nbytes;
    const uint64_t exact_in_double = UINT64_C(1) << 53;
    return is_digit(json[0]) && nbytes <= exact_in_double && strtod(json, NULL) == (double)nbytes;
}

static void check_total_size(const checker *c, fq_messages *warnings) {
    const char *said = c->index->total_size;
    if (!said)
        fq_messages_add(warnings, "%s: total_size is missing; convert and dequant write it",
                        c->file);
    else if (!is_digit(said[said[0] == '-']))
        fq_messages_add(warnings,
                        "%s: total_size is no number; convert and dequant write the right one",
                        c->file);
    else if (!is_total(said, c->nbytes))
        fq_messages_add(warnings,
                        "%s: total_size is %.40s, but the tensors have %" PRIu64
                        " bytes; convert and dequant write the right one",
                        c->file, said, c->nbytes);
}

void fq_index_check(const fq_index *index, const fq_checkpoint *checkpoint, const char *file,
                    fq_messages *faults, fq_messages *warnings) {
    checker c = {.index = index, .checkpoint = checkpoint, .file = file, .faults = faults};
    size_t i = 0, k = 0;
    while (i < index->n_entries || k < checkpoint->n_tensors) {
        int order = i == index->n_entries ? 1 : k == checkpoint->n_tensors ? -1 : 0;
        if (order == 0)
            order = strcmp(index->entries[i].tensor, checkpoint->by_name[k]->name);
        if (order < 0)
            report_missing(&c, &index->entries[i++]);
        else if (order > 0)
            fq_name_list_add(&c.unnamed, checkpoint->by_name[k++]->name);
        else
            k = check_entry(&c, &index->entries[i++], k);
    }
    if (c.n_missing > LINES_SHOWN)
        fq_messages_add(faults, "%s: %zu more tensors are in no shard", file,
                        c.n_missing - LINES_SHOWN);
    if (c.n_misplaced > LINES_SHOWN)
        fq_messages_add(faults, "%s: %zu more tensors are named for a wrong shard", file,
                        c.n_misplaced - LINES_SHOWN);
    if (faults->n > 0) // an incomplete picture
        return;
    if (c.unnamed.n > 0)
        fq_messages_add(warnings, "%s: tensors of its shards are not named in it, but kept: %s",
                        file, c.unnamed.text);
    check_total_size(&c, warnings);
}
