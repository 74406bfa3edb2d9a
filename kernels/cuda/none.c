// Stands in for the CUDA backend in builds without it: there is none to be found.
#include "kernels/cuda/backend.h"

fq_status fq_cuda_find(const fq_backend **out, uint32_t *n_gpus, fq_error *err) {
    *out = NULL;
    *n_gpus = 0;
    return fq_fail(err, FQ_DEVICE, "this build has no CUDA backend");
}

const fq_checker *fq_cuda_checker(void) { return NULL; }

const fq_gemm *fq_cuda_verify_gemm(void) { return NULL; }
