// The result of verify, for people and for programs.
#ifndef FQ_CMD_VERIFY_REPORT_H
#define FQ_CMD_VERIFY_REPORT_H

#include "lib/verify.h"
#include "print.h"

// A finished check, and what it took. Nothing is owned.
typedef struct fq_verify_report {
    const fq_verify *verify;
    const fq_activations_options *activations; // NULL: no GEMM check
    const char *device;                        // "cpu"
    const char *device_description;            // "AVX-512"
    double seconds;
    const fq_messages *warnings;
} fq_verify_report;

// Which figures there are for some weight.
typedef struct fq_verify_columns {
    bool errors;
    bool products; // against the reference,
    bool gemm;     // or against themselves alone
} fq_verify_columns;

fq_verify_columns fq_verify_find_columns(const fq_verify *verify);

// What helps against the gravest of a weight's faults, static; NULL if it has none.
const char *fq_verify_cure(const fq_verify_tensor *tensor);

// The weights, worst first, totals by kind of layer, problems and the verdict. quiet: what fails
// alone.
fq_status fq_verify_text(const fq_printer *printer, const fq_verify_report *report, bool quiet,
                         fq_error *err);

// All of it as JSON, on stdout.
fq_status fq_verify_json(const fq_verify_report *report, fq_error *err);

// All of it as one page of HTML, which needs no other file and no network.
fq_status fq_verify_html(const fq_verify_report *report, FILE *file, fq_error *err);

// The weights by fq_verify_is_worse, the worst first. [n_tensors], in
// arena's memory; NULL when out of memory.
const fq_verify_tensor **fq_verify_worst_first(fq_arena *arena, const fq_verify *verify);

// Weights of one kind, together.
typedef struct fq_verify_kind {
    const char *kind;
    uint64_t n, n_failed;
    double rel_l2;             // NaN where no weight has a reference
    double worst_rel_l2;       // of a weight
    double worst_block_rel_l2; // of a block
} fq_verify_kind;

// Sums by kind, sorted by name: [*n], in arena's memory; NULL when out of memory.
fq_verify_kind *fq_verify_kinds(fq_arena *arena, size_t *n, const fq_verify *verify);

#endif
