// The table of the backends in this build, and the look-up for --device.
#include "kernels/kernels.h"

#include "kernels/cpu/backend.h"

#include <string.h>

// The fastest first: that one is "auto".
static const fq_backend *const backends[] = {&fq_cpu_backend};
enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

fq_status fq_backend_find(const fq_backend **out, const char *device, fq_error *err) {
    if (strcmp(device, "auto") == 0) {
        *out = backends[0];
        return FQ_OK;
    }
    for (size_t i = 0; i < N_BACKENDS; i++) {
        if (strcmp(device, backends[i]->name) == 0) {
            *out = backends[i];
            return FQ_OK;
        }
    }
    if (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", strlen("cuda:")) == 0)
        return fq_fail(err, FQ_DEVICE,
                       "--device %s: this build has no CUDA backend; use --device cpu", device);
    return fq_fail(err, FQ_USAGE,
                   "--device %s: no such device; use auto, cpu, cuda or cuda:N[,M...]", device);
}

const fq_checker *fq_checker_find(const fq_backend *backend) {
    return backend == &fq_cpu_backend ? &fq_cpu_checker : NULL;
}
