// GPUs through the CUDA runtime: see gpu.h.
#include "kernels/cuda/gpu.h"

#include <cuda_runtime_api.h>

#include <stdio.h>

static fq_status fail_driver(fq_error *err) {
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return fq_fail(err, FQ_DEVICE, "there is no NVIDIA driver");
    (void)cudaRuntimeGetVersion(&runtime);
    return fq_fail(err, FQ_DEVICE,
                   "the NVIDIA driver knows CUDA up to %d.%d, this build needs %d.%d",
                   driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

fq_status fq_gpu_count(uint32_t *out, fq_error *err) {
    int n = 0;
    const cudaError_t code = cudaGetDeviceCount(&n);
    *out = 0;
    if (code == cudaErrorInsufficientDriver)
        return fail_driver(err);
    if (code == cudaErrorNoDevice || (code == cudaSuccess && n == 0))
        return fq_fail(err, FQ_DEVICE, "there is no GPU");
    if (code != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "no GPU can be used: %s", cudaGetErrorString(code));
    *out = (uint32_t)n;
    return FQ_OK;
}

static const char *cure_of(unsigned code) {
    switch (code) {
    case cudaErrorMemoryAllocation:
        return "use less --memory or fewer --threads, or --device cpu";
    case cudaErrorNoKernelImageForDevice:
        return "this build has no kernels for that GPU; use --device cpu";
    default:
        return "try again, or use --device cpu";
    }
}

fq_status fq_gpu_check(uint32_t gpu, const char *call, unsigned code, fq_error *err) {
    if (code == cudaSuccess)
        return FQ_OK;
    (void)cudaGetLastError(); // it is told here, and not once more by a later call
    return fq_fail(err, FQ_DEVICE, "cuda:%u: %s: %s; %s", (unsigned)gpu, call,
                   cudaGetErrorString((cudaError_t)code), cure_of(code));
}

fq_status fq_gpu_use(uint32_t gpu, fq_error *err) {
    return fq_gpu_check(gpu, "cudaSetDevice", cudaSetDevice((int)gpu), err);
}

fq_status fq_gpu_finish(uint32_t gpu, fq_error *err) {
    return fq_gpu_check(gpu, "cudaStreamSynchronize", cudaStreamSynchronize(cudaStreamLegacy), err);
}

fq_status fq_gpu_name(char out[FQ_GPU_NAME], uint32_t gpu, fq_error *err) {
    struct cudaDeviceProp properties;
    const fq_status status = fq_gpu_check(gpu, "cudaGetDeviceProperties",
                                          cudaGetDeviceProperties(&properties, (int)gpu), err);
    if (!status)
        snprintf(out, FQ_GPU_NAME, "%s", properties.name);
    return status;
}
