// Any text as a journal, as it is and with its lines signed: no fault of memory, what is read ends
// with a whole line, and what was asked for reads the same when written anew.
#include "formats/crc.h"
#include "formats/journal.h"

#include "fuzz.h"

#include <string.h>

static void check_written(const fq_journal *journal) {
    fq_json_text text = {0};
    fq_journal again;
    fq_error err = {0};
    fq_journal_put_run(&text, &journal->run);
    DEMAND(!text.out_of_memory);
    DEMAND(fq_journal_parse(&again, text.bytes, text.n, &err) == FQ_OK && again.nbytes == text.n);
    DEMAND(fq_journal_compare(&journal->run, &again.run, "O", "P", &err) == FQ_OK);
    fq_journal_free(&again);
    fq_json_text_free(&text);
}

static void check_journal(const char *text, size_t size) {
    fq_journal journal;
    fq_error err = {0};
    DEMAND(fq_journal_parse(&journal, text, size, &err) == FQ_OK);
    DEMAND(journal.nbytes <= size);
    DEMAND(journal.nbytes == 0 || text[journal.nbytes - 1] == '\n');
    DEMAND(journal.nbytes > 0 || (journal.n_shards == 0 && journal.n_nonfinite == 0));
    for (size_t i = 0; i < journal.n_shards; i++)
        DEMAND(journal.shards[i].name && journal.shards[i].n_counts <= size);
    if (journal.nbytes > 0)
        check_written(&journal);
    fq_journal_free(&journal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    fq_json_text signed_lines = {0};
    check_journal(text, size);
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t n = end ? (size_t)(end - text) - at : size - at;
        char check[32];
        snprintf(check, sizeof check, ",\"check\":\"%08x\"}\n",
                 (unsigned)fq_crc32(0, text + at, n));
        fq_json_put_bytes(&signed_lines, text + at, n);
        fq_json_put(&signed_lines, check);
        at += n + 1;
    }
    if (signed_lines.n > 0)
        check_journal(signed_lines.bytes, signed_lines.n);
    fq_json_text_free(&signed_lines);
    return 0;
}
