// How far a run is, shown on stderr by a thread of its own.
#ifndef FQ_CMD_PROGRESS_H
#define FQ_CMD_PROGRESS_H

#include "common.h"
#include "lib/run.h"

typedef struct fq_progress_view fq_progress_view;

// Starts to show progress towards total_nbytes (read and written): a bar on a terminal, a line
// every few seconds otherwise, nothing with --quiet or --no-progress. progress is borrowed until
// fq_progress_stop. *out may be NULL: nothing is shown, also where a thread or memory is lacking.
void fq_progress_start(fq_progress_view **out, const fq_common_options *options,
                       const fq_progress *progress, uint64_t total_nbytes);

// Clears the bar and ends the thread. NULL is taken.
void fq_progress_stop(fq_progress_view *view);

#endif
