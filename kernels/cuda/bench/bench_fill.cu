// Normal random numbers from a counter: see bench_fill.h.
#include "kernels/cuda/bench/bench_fill.h"
#include "kernels/cuda/start.cuh"

#include <cuda_bf16.h>

namespace {

constexpr uint32_t THREADS = 256, MAX_BLOCKS = 4096;

// splitmix64: the number that a counter stands for.
__device__ uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

// Box and Muller's: two uniform numbers, the first one not 0.
__global__ void __launch_bounds__(THREADS) fill(__nv_bfloat16 *out, uint64_t n, uint64_t seed) {
    const uint64_t stride = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < n; i += stride) {
        const uint64_t random = mix(seed ^ i * 0xD1342543DE82EF95u);
        const float u = ((uint32_t)(random & 0xFFFFFF) + 1) * 0x1p-24f;
        const float v = (uint32_t)(random >> 32) * 0x1p-32f;
        out[i] = __float2bfloat16_rn(sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
    }
}

} // namespace

unsigned fq_cuda_bench_fill(void *out, uint64_t n, uint64_t seed, cudaStream_t stream) {
    const uint64_t n_blocks = (n + THREADS - 1) / THREADS;
    return start(fill, dim3((uint32_t)(n_blocks < MAX_BLOCKS ? n_blocks : MAX_BLOCKS)), THREADS,
                 stream, (__nv_bfloat16 *)out, n, seed);
}
