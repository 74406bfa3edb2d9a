// GPUs: how many there are, which one a thread uses, and what to say when one fails.
#ifndef FQ_KERNELS_CUDA_GPU_H
#define FQ_KERNELS_CUDA_GPU_H

#include "lib/error.h"

#include <stdint.h>

enum { FQ_GPU_NAME = 256 }; // bytes of the longest name, NUL included

// At least one, or FQ_DEVICE with the reason why none can be used. Makes no context.
fq_status fq_gpu_count(uint32_t *out, fq_error *err);

// Makes the GPU the thread's current one; makes its context if there is none.
fq_status fq_gpu_use(uint32_t gpu, fq_error *err);

// "NVIDIA H200".
fq_status fq_gpu_name(char out[FQ_GPU_NAME], uint32_t gpu, fq_error *err);

// FQ_OK if code, a cudaError_t, is success; else FQ_DEVICE that names the GPU and the call.
fq_status fq_gpu_check(uint32_t gpu, const char *call, unsigned code, fq_error *err);

// Waits until what was filled or copied without a stream is there: cudaMemset returns before, and
// cudaMemcpy may, and the streams of lanes do not wait for it. That shows where the GPU has others
// to serve, too. FQ_DEVICE as fq_gpu_check.
fq_status fq_gpu_finish(uint32_t gpu, fq_error *err);

#endif
