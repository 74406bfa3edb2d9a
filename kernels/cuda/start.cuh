// Starting a kernel from the host.
#ifndef FQ_KERNELS_CUDA_START_CUH
#define FQ_KERNELS_CUDA_START_CUH

#include <cuda_runtime_api.h>

#include <stdint.h>

// What kernel<<<grid, threads, 0, stream>>>(arguments...) does, by one call that says whether it
// worked, and without the guarded statics of that syntax, which would need the C++ library.
template <typename... ARGUMENTS>
static int start(void (*kernel)(ARGUMENTS...), uint32_t grid, uint32_t threads, cudaStream_t stream,
                 ARGUMENTS... arguments) {
    void *pointers[] = {&arguments...};
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), dim3(grid), dim3(threads),
                            pointers, 0, stream);
}

static inline bool is_aligned(const void *memory, size_t nbytes) {
    return reinterpret_cast<uintptr_t>(memory) % nbytes == 0;
}

#endif
