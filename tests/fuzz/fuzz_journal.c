// Any lines as a journal, with their checksums as they are and made right: no fault of memory, what
// is read reads the same when written anew, and counts fit a plan or are refused.
//
// Under test: formats/journal.c formats/journal_read.c formats/journal_write.c
#include "formats/journal_parts.h"

#include "fuzz.h"

#include <string.h>

// Every line with the checksum and the bracket that end it.
static fq_json_text with_checks(const char *data, size_t size) {
    fq_json_text out = {0};
    for (size_t at = 0; at < size;) {
        const char *end = memchr(data + at, '\n', size - at);
        const size_t n = end ? (size_t)(end - data) - at : size - at;
        char check[FQ_JOURNAL_CHECK_NBYTES + 1];
        fq_journal_check(check, data + at, n);
        fq_json_put_bytes(&out, data + at, n);
        fq_json_put(&out, check);
        fq_json_put(&out, "\n");
        at += n + 1;
    }
    DEMAND(!out.out_of_memory);
    return out;
}

// A plan of two shards, whose steps count all there is.
static fq_plan make_plan(void) {
    static fq_step steps[2][3];
    static fq_plan_shard shards[2];
    const char *names[] = {"a", "model.safetensors"};
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < 3; i++)
            steps[s][i] =
                (fq_step){.action = (fq_action)i, .source_matrix = {.rows = 10, .cols = 10}};
        shards[s] = (fq_plan_shard){.layout = {.name = names[s]}, .steps = steps[s], .n_steps = 3};
    }
    return (fq_plan){.shards = shards, .n_shards = 2};
}

static void check_figures(const fq_step_counts *counts, const fq_step *step) {
    const fq_quantize_counts *q = &counts->quantize;
    const fq_dequantize_counts *d = &counts->dequantize;
    const uint64_t max_q = step->action == FQ_QUANTIZE ? 100 : 0;
    const uint64_t max_d = step->action == FQ_DEQUANTIZE ? 100 : 0;
    DEMAND(q->saturated <= max_q && q->flushed_to_zero <= max_q && q->zero_blocks <= max_q);
    DEMAND(q->floored_blocks <= max_q && q->nonfinite == 0);
    DEMAND(d->saturated <= max_d && d->nan_codes <= max_d);
}

static void check_counts(const fq_journal *journal) {
    const fq_plan plan = make_plan();
    const fq_journal_shard **lines = NULL;
    fq_arena arena = {0};
    fq_error err = {0};
    DEMAND(fq_journal_match(&lines, &arena, journal, &plan, &err) == FQ_OK);
    for (size_t s = 0; s < plan.n_shards; s++) {
        fq_step_counts counts[3] = {0};
        if (!lines[s])
            continue;
        DEMAND(strcmp(lines[s]->name, plan.shards[s].layout.name) == 0);
        if (!fq_journal_counts(counts, lines[s], &plan.shards[s]))
            continue;
        for (size_t i = 0; i < 3; i++)
            check_figures(&counts[i], &plan.shards[s].steps[i]);
    }
    fq_arena_free(&arena);
}

// The journal's lines written anew, those of shards without their counts.
static fq_json_text write_anew(const fq_journal *journal) {
    fq_json_text out = {0};
    fq_journal_put_run(&out, &journal->run);
    for (size_t i = 0; i < journal->n_nonfinite; i++) {
        const fq_tensor tensor = {.name = journal->nonfinite[i]}, *list[] = {&tensor};
        fq_journal_put_nonfinite(&out, list, 1);
    }
    for (size_t i = 0; i < journal->n_shards; i++)
        fq_journal_put_shard(&out, journal->shards[i].name, &journal->shards[i].digest, NULL, 0);
    if (journal->is_complete)
        fq_journal_put_complete(&out, &journal->output, &journal->replaced);
    DEMAND(!out.out_of_memory);
    return out;
}

static void check_same_place(const fq_journal_place *a, const fq_journal_place *b) {
    DEMAND(a->inode == b->inode && a->birth_ns == b->birth_ns);
}

static void check_same(const fq_journal *a, const fq_journal *b) {
    fq_error err = {0};
    DEMAND(fq_journal_compare(&a->run, &b->run, "O", "P", &err) == FQ_OK);
    DEMAND(a->n_nonfinite == b->n_nonfinite && a->n_shards == b->n_shards);
    for (size_t i = 0; i < a->n_nonfinite; i++)
        DEMAND(strcmp(a->nonfinite[i], b->nonfinite[i]) == 0);
    for (size_t i = 0; i < a->n_shards; i++) {
        const fq_journal_shard *x = &a->shards[i], *y = &b->shards[i];
        DEMAND(strcmp(x->name, y->name) == 0);
        DEMAND(x->digest.nbytes == y->digest.nbytes && x->digest.crc32 == y->digest.crc32);
    }
    DEMAND(a->is_complete == b->is_complete);
    if (a->is_complete) {
        check_same_place(&a->output, &b->output);
        check_same_place(&a->replaced, &b->replaced);
    }
}

static void read_journal(const char *text, size_t size) {
    fq_journal journal, again;
    fq_error err = {0};
    DEMAND(fq_journal_parse(&journal, text, size, &err) == FQ_OK);
    DEMAND(journal.nbytes <= size && (journal.nbytes == 0 || text[journal.nbytes - 1] == '\n'));
    if (journal.nbytes > 0) {
        DEMAND(journal.run.version && journal.run.command);
        check_counts(&journal);
        fq_json_text written = write_anew(&journal);
        DEMAND(fq_journal_is_begun(written.bytes, written.n));
        DEMAND(fq_journal_parse(&again, written.bytes, written.n, &err) == FQ_OK);
        DEMAND(again.nbytes == written.n);
        check_same(&journal, &again);
        fq_journal_free(&again);
        fq_json_text_free(&written);
    }
    fq_journal_free(&journal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_journal((const char *)data, size);
    fq_json_text checked = with_checks((const char *)data, size);
    if (checked.n > 0)
        read_journal(checked.bytes, checked.n);
    fq_json_text_free(&checked);
    return 0;
}
