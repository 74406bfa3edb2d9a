// Runs a session's plan; again, where tensors that turn out to be non-finite change it.
#ifndef FQ_CMD_PASSES_H
#define FQ_CMD_PASSES_H

#include "formats/output.h"
#include "session.h"

// Carries out session->plan into output and fills session->counts, finished and nonfinite; shards
// that are finished are left alone. options lacks skip, progress, keep_nonfinite and committed.
// With the request's keep_nonfinite, tensors that hold NaN or Inf are planned again to be kept, and
// the shards that this changes are written again.
fq_status fq_passes_run(fq_session *session, fq_output *output, const fq_run_options *options,
                        fq_reply *reply, fq_error *err);

// Adds the warning that a tensor stays unquantized.
void fq_passes_warn_nonfinite(const fq_session *session, const fq_tensor *tensor, fq_reply *reply);

#endif
