// Runs a session's plan; again, where tensors that turn out to be non-finite change it.
#ifndef FQ_CMD_PASSES_H
#define FQ_CMD_PASSES_H

#include "session.h"

// Carries out session->plan into sink and sets session->counts. options lacks skip, progress and
// keep_nonfinite. With the request's keep_nonfinite, tensors that hold NaN or Inf are planned
// again to be kept, and the shards that this changes are written again.
fq_status fq_passes_run(fq_session *session, fq_sink *sink, const fq_run_options *options,
                        fq_reply *reply, fq_error *err);

#endif
