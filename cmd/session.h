// What convert and dequant share: open the input, plan, run the plan, write the output.
#ifndef FQ_CMD_SESSION_H
#define FQ_CMD_SESSION_H

#include "command.h"
#include "formats/checksum.h"
#include "formats/input.h"
#include "formats/journal.h"
#include "lib/run.h"
#include "request.h"

// A request carried out, for the report. Zeroed before use.
typedef struct fq_session {
    const fq_request *request;
    fq_staging staging;
    fq_input input;
    fq_plan plan;
    fq_journal_run asked_for; // for the journal; of a dry run only with resume
    fq_step_counts **counts;  // [plan.n_shards][n_steps]; NULL after a dry run
    bool *finished; // [plan.n_shards]: shards that the journal names; NULL after a dry run
    const fq_tensor **nonfinite; // [n_nonfinite], found so far; room for every tensor
    size_t n_nonfinite;
    size_t n_taken;                             // shards that an interrupted run had finished
    uint64_t taken_nbytes_in, taken_nbytes_out; // theirs, of plan.bytes_in and plan.bytes_out
    char *output_path;
    char *quantization_config; // convert: JSON text, as in config.json; NULL otherwise
    fq_checksums checksums;    // of what is copied, with request->checksum
    const char *device;        // "cpu"; NULL after a dry run, or where all was done before
    char *device_description;  // "AVX-512"
    double seconds;            // of everything
    fq_messages plan_warnings; // of the plan as it stands
    fq_arena arena;            // owns asked_for, counts, finished, nonfinite, device_description
} fq_session;

// Carries out a request. Warnings, and faults in the input, go to reply. Zeroed *out before;
// fq_session_close it after any outcome. Unless FQ_OK, what stood at the output's
// name before stands there still, one case of fq_output_commit aside.
fq_status fq_session_run(fq_session *out, const fq_request *request, fq_reply *reply,
                         fq_error *err);

void fq_session_close(fq_session *session);

// Says of a dry run what the run would now be refused for, before it writes. FQ_USAGE, FQ_IO or
// FQ_DEVICE.
fq_status fq_session_check_output(const fq_session *session, fq_error *err);

// Adds the warning that packed scales deserve: no engine loads them from a folder yet. cure: "", or
// "; " and what to do.
void fq_session_warn_packed(fq_messages *warnings, const char *cure);

// Opens a request's input; faults are listed in reply and end with FQ_BAD_INPUT.
fq_status fq_session_open_input(fq_input *out, const char *path, const fq_opt_list *include_files,
                                fq_reply *reply, fq_error *err);

#endif
