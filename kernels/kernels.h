// The backends of this build.
#ifndef FQ_KERNELS_H
#define FQ_KERNELS_H

#include "lib/checker.h"

// Finds the backend for --device: "auto", "cpu", "cuda", "cuda:0,1". *out is static. FQ_DEVICE,
// saying what to use instead, if this build or machine lacks the device; FQ_USAGE for other names.
fq_status fq_backend_find(const fq_backend **out, const char *device, fq_error *err);

// The checks of a backend; static. NULL if it has none.
const fq_checker *fq_checker_find(const fq_backend *backend);

#endif
