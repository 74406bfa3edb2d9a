// Starting a kernel from the host.
#ifndef FQ_KERNELS_CUDA_START_CUH
#define FQ_KERNELS_CUDA_START_CUH

#include <cuda_runtime_api.h>

#include <stdint.h>

// What kernel<<<grid, threads, 0, stream>>>(arguments...) does, by one call that says whether it
// worked, and without the guarded statics of that syntax, which would need the C++ library.
template <typename... ARGUMENTS>
static unsigned start(void (*kernel)(ARGUMENTS...), dim3 grid, uint32_t threads,
                      cudaStream_t stream, ARGUMENTS... arguments) {
    void *pointers[] = {&arguments...};
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, dim3(threads), pointers,
                            0, stream);
}

// One thread block for each tile; columns first, so that neighbours in time are so in memory.
// Kernels go on to further rows of tiles where there are more than a grid may have.
static inline dim3 grid_of_tiles(uint64_t n_cols, uint64_t n_rows) {
    const uint64_t max_rows = 65535;
    return dim3((uint32_t)n_cols, (uint32_t)(n_rows < max_rows ? n_rows : max_rows));
}

static inline bool is_aligned(const void *memory, size_t nbytes) {
    return reinterpret_cast<uintptr_t>(memory) % nbytes == 0;
}

#endif
