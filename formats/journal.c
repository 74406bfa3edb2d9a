// What a journal means: compared with another run, and its counts spread over the steps of a plan.
#include "journal_parts.h"

#include "crc.h"
#include "name_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(kind, member, action)                                                                \
    { #kind "." #member, offsetof(fq_step_counts, kind.member), action }

const fq_journal_field fq_journal_fields[FQ_JOURNAL_N_FIELDS] = {
    FIELD(quantize, saturated, FQ_QUANTIZE),     FIELD(quantize, flushed_to_zero, FQ_QUANTIZE),
    FIELD(quantize, zero_blocks, FQ_QUANTIZE),   FIELD(quantize, floored_blocks, FQ_QUANTIZE),
    FIELD(dequantize, saturated, FQ_DEQUANTIZE), FIELD(dequantize, nan_codes, FQ_DEQUANTIZE),
};

void fq_journal_check(char out[FQ_JOURNAL_CHECK_NBYTES + 1], const char *text, size_t nbytes) {
    snprintf(out, FQ_JOURNAL_CHECK_NBYTES + 1, ",\"check\":\"%08x\"}",
             (unsigned)fq_crc32(0, text, nbytes));
}

// The action whose field lies at that offset.
static fq_action action_of(size_t offset) {
    size_t i = 0;
    while (fq_journal_fields[i].offset != offset)
        i++;
    return fq_journal_fields[i].action;
}

bool fq_journal_counts(fq_step_counts *out, const fq_journal_shard *shard,
                       const fq_plan_shard *plan) {
    for (size_t i = 0; i < shard->n_counts; i++) {
        const fq_journal_count *count = &shard->counts[i];
        if (count->step >= plan->n_steps)
            return false;
        const fq_step *step = &plan->steps[count->step];
        if (step->action != action_of(count->field) ||
            count->value > step->source_matrix.rows * step->source_matrix.cols)
            return false;
        memcpy((char *)&out[count->step] + count->field, &count->value, sizeof count->value);
    }
    return true;
}

static int compare_names(const void *name, const void *shard) {
    return strcmp(name, ((const fq_plan_shard *)shard)->layout.name);
}

fq_status fq_journal_match(const fq_journal_shard ***out, fq_arena *arena,
                           const fq_journal *journal, const fq_plan *plan, fq_error *err) {
    const fq_journal_shard **lines = fq_arena_array(arena, plan->n_shards, sizeof *lines);
    if (!lines)
        return fq_fail_memory(err);
    for (size_t i = 0; i < journal->n_shards; i++) {
        const fq_plan_shard *shard = bsearch(journal->shards[i].name, plan->shards, plan->n_shards,
                                             sizeof *shard, compare_names);
        if (shard)
            lines[shard - plan->shards] = &journal->shards[i];
    }
    *out = lines;
    return FQ_OK;
}

static bool same_values(const fq_journal_option *a, const fq_journal_option *b) {
    if (a->n_values != b->n_values)
        return false;
    for (size_t i = 0; i < a->n_values; i++) {
        if (strcmp(a->values[i], b->values[i]) != 0)
            return false;
    }
    return true;
}

// "sm90", or several joined by commas.
static const char *value_text(fq_name_list *list, const fq_journal_option *option) {
    for (size_t i = 0; i < option->n_values; i++)
        fq_name_list_add(list, option->values[i]);
    return option->n_values > 0 ? list->text : "not given";
}

static fq_status compare_options(const fq_journal_run *then, const fq_journal_run *now,
                                 const char *output, const char *partial, fq_error *err) {
    const fq_journal_option none = {0};
    const size_t n = then->n_options > now->n_options ? then->n_options : now->n_options;
    for (size_t i = 0; i < n; i++) {
        const fq_journal_option *a = i < then->n_options ? &then->options[i] : &none;
        const fq_journal_option *b = i < now->n_options ? &now->options[i] : &none;
        if (a->name && b->name && strcmp(a->name, b->name) != 0)
            a = &none;
        if (a->name && b->name && same_values(a, b))
            continue;
        fq_name_list value_then = {0}, value_now = {0};
        return fq_fail(err, FQ_USAGE,
                       "%s: %s: was %s in the run that left %s, is %s now; give it as it was, or "
                       "discard that run's work with --force instead",
                       output, b->name ? b->name : a->name, value_text(&value_then, a), partial,
                       value_text(&value_now, b));
    }
    return FQ_OK;
}

static fq_status compare_inputs(const fq_journal_run *then, const fq_journal_run *now,
                                const char *output, const char *partial, fq_error *err) {
    const size_t n = then->n_inputs > now->n_inputs ? then->n_inputs : now->n_inputs;
    for (size_t i = 0; i < n; i++) {
        const fq_journal_input *a = i < then->n_inputs ? &then->inputs[i] : NULL;
        const fq_journal_input *b = i < now->n_inputs ? &now->inputs[i] : NULL;
        if (a && b && strcmp(a->name, b->name) == 0 && a->nbytes == b->nbytes &&
            a->mtime_ns == b->mtime_ns && a->crc32 == b->crc32)
            continue;
        return fq_fail(err, FQ_USAGE,
                       "%s: %s of the input is not what it was in the run that left %s; name that "
                       "run's input, or discard its work with --force instead",
                       output, b ? b->name : a->name, partial);
    }
    return FQ_OK;
}

fq_status fq_journal_compare(const fq_journal_run *then, const fq_journal_run *now,
                             const char *output, const char *partial, fq_error *err) {
    if (strcmp(then->version, now->version) != 0)
        return fq_fail(err, FQ_USAGE,
                       "%s: %s was left by fp8q %s, and this is fp8q %s; go on with that version, "
                       "or discard its work with --force instead",
                       output, partial, then->version, now->version);
    if (strcmp(then->command, now->command) != 0)
        return fq_fail(err, FQ_USAGE,
                       "%s: %s was left by fp8q %s, and this is fp8q %s; go on with that command, "
                       "or discard its work with --force instead",
                       output, partial, then->command, now->command);
    const fq_status status = compare_options(then, now, output, partial, err);
    return status ? status : compare_inputs(then, now, output, partial, err);
}

bool fq_journal_place_equal(const fq_journal_place *a, const fq_journal_place *b) {
    return a->inode != 0 && a->inode == b->inode && a->birth_ns == b->birth_ns;
}

void fq_journal_free(fq_journal *journal) {
    fq_arena_free(&journal->arena);
    memset(journal, 0, sizeof *journal);
}
