// What the kernels that quantize share: the scale of a block, quotients, and counting.
#ifndef FQ_KERNELS_CUDA_QUANTIZE_CUH
#define FQ_KERNELS_CUDA_QUANTIZE_CUH

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/launch.h"

// What a kernel is told of the whole matrix.
struct matrix {
    const void *source;
    uint8_t *codes;
    float *scales;
    fq_cuda_quantize_counts *counts;
    uint64_t rows, cols;
    fq_block block;
    uint64_t n_rows, n_cols; // blocks upon each other, side by side
    float amax_floor;
    bool pow2;
};

// The scale of fq_scale_of_amax.
static __device__ __forceinline__ float scale_of_amax(float amax, const matrix &m) {
    const float bounded = fmaxf(amax, m.amax_floor);
    if (bounded == 0.0f)
        return 1.0f;
    const float scale = __fdiv_rn(bounded, FQ_E4M3_MAX);
    if (!m.pow2)
        return scale > 0.0f ? scale : 0x1p-149f;
    const uint32_t bits = __float_as_uint(scale);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
    return __uint_as_float(min(max(exponent, 1u), 254u) << 23);
}

// value / scale as E4M3 needs it: by the reciprocal, rounded to nearest, and one correction. See
// "Quotients on the GPU" in docs/numerics.md. Written so that the quotient of -0 is -0.
static __device__ __forceinline__ float quotient(float value, float scale, float reciprocal) {
    const float q = __fmul_rn(value, reciprocal);
    return __fmaf_rn(-reciprocal, __fmaf_rn(q, scale, -value), q);
}

// True if quotient() gives the codes of the division. It does for powers of two; and it was tried
// for all elements of the 16-bit dtypes under the scales of every amax and of the default floor.
// Not for the least scales: there what is left of a value would have to be less than FP32 can say.
template <fq_dtype DTYPE>
static __device__ __forceinline__ bool has_quotient(float amax, float scale, const matrix &m) {
    const bool tried = DTYPE != FQ_F32 && scale >= 0x1p-90f &&
                       (amax >= m.amax_floor || m.amax_floor == FQ_DEFAULT_AMAX_FLOOR);
    return m.pow2 || tried;
}

// ---- Counting

static __device__ __forceinline__ unsigned long long *as_counter(uint64_t *count) {
    return reinterpret_cast<unsigned long long *>(count);
}

// What a thread has counted of its elements.
struct tally {
    uint32_t saturated, flushed_to_zero;

    __device__ __forceinline__ void add(float value, float exact_quotient, uint32_t code) {
        saturated += fabsf(exact_quotient) > FQ_E4M3_SATURATES;
        flushed_to_zero += value != 0.0f && (code & 0x7Fu) == 0;
    }

    // By all threads of a warp together.
    __device__ __forceinline__ void publish(fq_cuda_quantize_counts *counts) const {
        if (!__any_sync(~0u, saturated | flushed_to_zero))
            return;
        const uint32_t s = __reduce_add_sync(~0u, saturated);
        const uint32_t f = __reduce_add_sync(~0u, flushed_to_zero);
        if (threadIdx.x % 32 == 0) {
            atomicAdd(as_counter(&counts->saturated), s);
            atomicAdd(as_counter(&counts->flushed_to_zero), f);
        }
    }
};

// By one thread for each block.
static __device__ __forceinline__ void count_block(const matrix &m, float amax) {
    if (amax == 0.0f)
        atomicAdd(as_counter(&m.counts->zero_blocks), 1ull);
    else if (amax < m.amax_floor)
        atomicAdd(as_counter(&m.counts->floored_blocks), 1ull);
}

// The non-finite elements that a thread has met.
struct nonfinite_tally {
    uint32_t n;
    uint64_t first; // ~ of its number in the matrix

    __device__ __forceinline__ void add(uint64_t element) {
        n++;
        first = max(first, ~element);
    }

    __device__ __forceinline__ void publish(fq_cuda_quantize_counts *counts) const {
        if (n == 0)
            return;
        atomicAdd(as_counter(&counts->nonfinite), n);
        atomicMax(as_counter(&counts->first_nonfinite), first);
    }
};

// The kernel for blocks and alignments that quantize.cu has none for. Returns a cudaError_t.
unsigned quantize_any(fq_dtype dtype, const matrix &m, struct CUstream_st *stream);

#endif
