// Other programs, run to their end and measured.
#ifndef FQ_CMD_PROCESS_H
#define FQ_CMD_PROCESS_H

#include "lib/error.h"

#include <stdint.h>

// What a process took.
typedef struct fq_process_usage {
    double seconds;       // from its start to its end, as a clock on the wall sees it
    uint64_t peak_nbytes; // of memory, resident
} fq_process_usage;

// This program's own file, as a name for fq_process_run.
extern const char fq_process_self[];

// Runs the program argv[0] (looked up in PATH) with these arguments (ends with NULL), its stdin and
// stdout empty, its stderr shared. A program of another exit code than 0 is an error: of the same
// status where it is fp8q itself, else FQ_IO. FQ_CANCELLED if it was stopped as this program is.
fq_status fq_process_run(fq_process_usage *out, const char *const *argv, fq_error *err);

#endif
