// Reads and writes at the speed of the memory, in unequal shares: see bench_copy.h.
#include "kernels/cuda/bench/bench_copy.h"
#include "kernels/cuda/start.cuh"

enum {
    THREADS = FQ_CUDA_COPY_UNIT / 16, // each moves 16 bytes of a unit
    UNITS = 4,                        // of a thread block: enough reads at once to fill the memory
};

// Each block of threads reads all of its units before it writes the first.
template <int N_READ, int N_WRITTEN>
static __global__ void __launch_bounds__(THREADS)
    copy_units(uint4 *out, const uint4 *in, uint64_t n) {
    const uint64_t first = (uint64_t)blockIdx.x * UNITS;
    uint4 chunks[UNITS][N_READ];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
#pragma unroll
        for (int r = 0; r < N_READ; r++) {
            if (first + u < n)
                chunks[u][r] = __ldcs(&in[((first + u) * N_READ + r) * THREADS + threadIdx.x]);
        }
    }
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        uint4 sum = chunks[u][0]; // all that was read is wanted
#pragma unroll
        for (int r = 1; r < N_READ; r++) {
            sum.x ^= chunks[u][r].x;
            sum.y ^= chunks[u][r].y;
            sum.z ^= chunks[u][r].z;
            sum.w ^= chunks[u][r].w;
        }
#pragma unroll
        for (int w = 0; w < N_WRITTEN; w++) {
            if (first + u < n)
                __stcs(&out[((first + u) * N_WRITTEN + w) * THREADS + threadIdx.x], sum);
        }
    }
}

unsigned fq_cuda_bench_copy(void *out, const void *in, uint64_t n, uint32_t n_read,
                            uint32_t n_written, cudaStream_t stream) {
    uint4 *to = static_cast<uint4 *>(out);
    const uint4 *from = static_cast<const uint4 *>(in);
    const uint32_t grid = static_cast<uint32_t>((n + UNITS - 1) / UNITS);
    if (n_read == 2)
        return start(copy_units<2, 1>, grid, THREADS, stream, to, from, n);
    if (n_read == 4)
        return start(copy_units<4, 1>, grid, THREADS, stream, to, from, n);
    if (n_written == 2)
        return start(copy_units<1, 2>, grid, THREADS, stream, to, from, n);
    if (n_written == 4)
        return start(copy_units<1, 4>, grid, THREADS, stream, to, from, n);
    return start(copy_units<1, 1>, grid, THREADS, stream, to, from, n);
}
