// The CUDA backend.
#ifndef FQ_KERNELS_CUDA_BACKEND_H
#define FQ_KERNELS_CUDA_BACKEND_H

#include "lib/checker.h"
#include "lib/gemm.h"

// The CUDA backend and the number of GPUs: at least one, or FQ_DEVICE with the reason why none can
// be used. Makes no context. *out is static.
//
// The backend's lanes are streams, dealt out in turns to the GPUs of the options (at least one). A
// lane copies in, computes and copies out without the host waiting. Opening makes a context on each
// GPU, which takes a good part of a second. Any fault of a GPU is FQ_DEVICE, and may end all
// further work on it.
fq_status fq_cuda_find(const fq_backend **out, uint32_t *n_gpus, fq_error *err);

// The checks of that backend, on devices that were opened for them; NULL where none is built.
const fq_checker *fq_cuda_checker(void);

// Its GEMM; NULL where none is built.
const fq_gemm *fq_cuda_verify_gemm(void);

#endif
