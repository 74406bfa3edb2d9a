// The device of a run: what --device names, looked for and opened.
#ifndef FQ_CMD_DEVICE_H
#define FQ_CMD_DEVICE_H

#include "common.h"
#include "session.h"

// What a run needs a device for.
typedef struct fq_device_needs {
    const char *device; // as --device names it
    const fq_staging *staging;
    uint64_t nbytes, n_files; // as in fq_device_work
    double n_products;        // likewise
    bool for_checks;          // as in fq_device_options
} fq_device_needs;

// Opens the device. Where "auto" chose a GPU that cannot be used after all (it is full, or
// another's), that is a warning, and *backend the CPU's. Close *out with *backend.
fq_status fq_device_open(fq_device **out, const fq_backend **backend, const fq_device_needs *needs,
                         fq_messages *warnings, fq_error *err);

// FQ_OK if the device is there. Opens nothing, and does not look where "auto" was asked for, which
// finds something always.
fq_status fq_session_check_device(const fq_session *session, fq_error *err);

// Opens the device for the session's plan and staging, as fq_device_open does.
fq_status fq_session_open_device(fq_device **out, const fq_backend **backend,
                                 const fq_session *session, fq_reply *reply, fq_error *err);

#endif
