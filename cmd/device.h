// The device of a run: what --device names, looked for and opened.
#ifndef FQ_CMD_DEVICE_H
#define FQ_CMD_DEVICE_H

#include "session.h"

// FQ_OK if the device is there. Opens nothing, and does not look where "auto" was asked for, which
// finds something always.
fq_status fq_session_check_device(const fq_session *session, fq_error *err);

// Opens the device for the session's plan and staging. Where "auto" chose a GPU that cannot be
// used after all (it is full, or another's), that is a warning, and *backend the CPU's. Close *out
// with *backend.
fq_status fq_session_open_device(fq_device **out, const fq_backend **backend,
                                 const fq_session *session, fq_reply *reply, fq_error *err);

#endif
