// Quantizes activations in 1×128 blocks: codes, and scales in the order that the GEMM loads.
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/start.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace {

constexpr uint32_t BLOCK = FQ_CUDA_GEMM_BLOCK;
constexpr uint32_t PER_THREAD = 8;             // elements: 16 bytes of BF16
constexpr uint32_t LANES = BLOCK / PER_THREAD; // of a 1×128 block
constexpr uint32_t THREADS = 256, ROWS = 32;   // a thread block takes 32 rows of one 128 of K
constexpr uint32_t STEP = THREADS / LANES;     // rows at a time

// max(amax, floor) / 448, rounded up to a power of two if asked: fq_scale_of_amax (lib/fp8.h).
__device__ float scale_of_amax(float amax, float amax_floor, bool pow2) {
    const float bounded = fmaxf(amax, amax_floor);
    if (bounded == 0.0f)
        return 1.0f;
    const float scale = __fdiv_rn(bounded, 448.0f);
    if (!pow2)
        return scale > 0.0f ? scale : __uint_as_float(1);
    const uint32_t bits = __float_as_uint(scale);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0);
    return __uint_as_float(min(max(exponent, 1u), 254u) << 23);
}

// Eight elements from (row, col), zeros beyond k.
__device__ void load_eight(float (&out)[PER_THREAD], const fq_cuda_activations &x, uint64_t row,
                           uint64_t col, bool aligned) {
    const __nv_bfloat16 *from = (const __nv_bfloat16 *)x.source + row * x.source_stride + col;
    if (aligned && col + PER_THREAD <= x.k) {
        const uint4 words = *(const uint4 *)from;
        const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (uint32_t i = 0; i < PER_THREAD; i++)
            out[i] = __uint_as_float(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xFFFF0000);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++)
        out[i] = col + i < x.k ? __bfloat162float(from[i]) : 0.0f;
}

__device__ void store_eight(const fq_cuda_activations &x, uint64_t row, uint64_t col, bool aligned,
                            const float (&values)[PER_THREAD], float scale) {
    uint8_t codes[PER_THREAD];
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++)
        codes[i] = __nv_cvt_float_to_fp8(__fdiv_rn(values[i], scale), __NV_SATFINITE, __NV_E4M3);
    uint8_t *to = x.codes + row * x.codes_stride + col;
    if (aligned && col + PER_THREAD <= x.k) {
        uint64_t word = 0;
#pragma unroll
        for (uint32_t i = 0; i < PER_THREAD; i++)
            word |= (uint64_t)codes[i] << 8 * i;
        *(uint64_t *)to = word;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++)
        if (col + i < x.k)
            to[i] = codes[i];
}

__global__ void __launch_bounds__(THREADS)
    quantize(const fq_cuda_activations x, uint32_t n_k_blocks, bool aligned) {
    __shared__ float scales[ROWS];
    const uint64_t k_block = blockIdx.x % n_k_blocks,
                   row0 = (uint64_t)(blockIdx.x / n_k_blocks) * ROWS;
    const uint64_t col = k_block * BLOCK + threadIdx.x % LANES * PER_THREAD;
    float values[ROWS / STEP][PER_THREAD];
#pragma unroll
    for (uint32_t i = 0; i < ROWS / STEP; i++) {
        const uint64_t row = row0 + i * STEP + threadIdx.x / LANES;
        if (row < x.m)
            load_eight(values[i], x, row, col, aligned);
    }
#pragma unroll
    for (uint32_t i = 0; i < ROWS / STEP; i++) {
        const uint32_t in_block = i * STEP + threadIdx.x / LANES;
        const uint64_t row = row0 + in_block;
        float amax = 0.0f;
#pragma unroll
        for (uint32_t e = 0; e < PER_THREAD; e++)
            amax = fmaxf(amax, fabsf(values[i][e]));
#pragma unroll
        for (uint32_t distance = LANES / 2; distance > 0; distance /= 2)
            amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFF, amax, distance));
        const float scale = scale_of_amax(amax, x.amax_floor, x.pow2_scales);
        if (threadIdx.x % LANES == 0)
            scales[in_block] = scale;
        if (row < x.m)
            store_eight(x, row, col, aligned, values[i], scale);
    }
    __syncthreads();
    if (threadIdx.x < ROWS && row0 + threadIdx.x < x.m)
        x.scales[k_block * x.scales_stride + row0 + threadIdx.x] = scales[threadIdx.x];
}

} // namespace

fq_status fq_cuda_activations_enqueue(const fq_cuda_activations *activations, cudaStream_t stream,
                                      fq_error *err) {
    const fq_cuda_activations x = *activations;
    if (x.m == 0 || x.k == 0)
        return FQ_OK;
    const uint64_t n_k_blocks = (x.k + BLOCK - 1) / BLOCK;
    const uint64_t n_blocks = (x.m + ROWS - 1) / ROWS * n_k_blocks;
    if (n_blocks > INT32_MAX)
        return fq_fail(err, FQ_USAGE, "quantize_activations: more than 2^31 blocks of 32×128");
    const bool aligned = (uintptr_t)x.source % 16 == 0 && x.source_stride % 8 == 0 &&
                         (uintptr_t)x.codes % 8 == 0 && x.codes_stride % 8 == 0;
    const unsigned status = start(quantize, dim3((uint32_t)n_blocks), THREADS, stream, x,
                                  (uint32_t)n_k_blocks, aligned);
    if (status != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "quantize_activations: %s",
                       cudaGetErrorString((cudaError_t)status));
    return FQ_OK;
}
