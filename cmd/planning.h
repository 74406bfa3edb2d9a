// The plan of a session: made before its run, and again where tensors turn out to be non-finite.
#ifndef FQ_CMD_PLANNING_H
#define FQ_CMD_PLANNING_H

#include "session.h"

// Makes session->plan, which is zeroed, with the tensors in nonfinite[n] kept; plan_warnings,
// quantization_config and checksums with it. Faults are listed in reply and end with FQ_BAD_INPUT.
fq_status fq_session_plan(fq_session *session, const fq_tensor *const *nonfinite, size_t n,
                          fq_reply *reply, fq_error *err);

#endif
