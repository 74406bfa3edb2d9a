// The result of convert and dequant, for people and for programs, on stdout.
#ifndef FQ_CMD_REPORT_H
#define FQ_CMD_REPORT_H

#include "print.h"
#include "session.h"

#include "lib/fold.h"

// Carries out a request and prints what was done, or after a dry run what would be, as --json and
// --quiet ask.
fq_status fq_report_request(const fq_request *request, fq_reply *reply, fq_error *err);

// The JSON of a session. Warnings are reply's.
fq_status fq_report_json(const fq_session *session, const fq_reply *reply, fq_error *err);

// Folds items and prints one line for each fold: count, pattern, rest. head: what stands above the
// names and the rest, or NULL.
fq_status fq_report_folded(const fq_printer *printer, const fq_fold_item *head,
                           const fq_fold_item *items, size_t n, fq_error *err);

#endif
