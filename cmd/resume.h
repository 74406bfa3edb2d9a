// What a session puts into the journal of its output, and how it goes on from another's.
#ifndef FQ_CMD_RESUME_H
#define FQ_CMD_RESUME_H

#include "session.h"

#include "formats/output.h"

// What the session was asked for: every option that changes bytes, and the input. The session has
// its input and plan. Memory from session->arena.
fq_status fq_resume_describe(fq_journal_run *out, fq_session *session, fq_error *err);

// Goes on from the run that fq_output_found tells of. Tensors that it found to hold NaN or Inf are
// looked at again, and planned to be kept; its shards are checked, and their counts taken. Fills
// session->finished, counts, nonfinite, n_taken and taken_nbytes. After a failure finished still
// tells which shards are worth keeping.
fq_status fq_resume_take_up(fq_session *session, fq_output *output, fq_reply *reply, fq_error *err);

#endif
