// What reading and writing a journal share.
#ifndef FQ_FORMATS_JOURNAL_PARTS_H
#define FQ_FORMATS_JOURNAL_PARTS_H

#include "journal.h"

enum {
    FQ_JOURNAL_FORMAT = 1, // of the lines
    FQ_JOURNAL_N_FIELDS = 6,
    // A line's checksum ends it: the CRC-32 of all bytes before, as `,"check":"0123abcd"}`.
    FQ_JOURNAL_CHECK_NBYTES = 20,
};

#define FQ_JOURNAL_FIRST_KEY "fp8q_journal"

// A figure of fq_step_counts.
typedef struct fq_journal_field {
    const char *name;
    size_t offset; // in fq_step_counts
    fq_action action;
} fq_journal_field;

extern const fq_journal_field fq_journal_fields[FQ_JOURNAL_N_FIELDS];

// The end of a line whose other bytes are text.
void fq_journal_check(char out[FQ_JOURNAL_CHECK_NBYTES + 1], const char *text, size_t nbytes);

#endif
