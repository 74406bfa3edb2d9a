// What the kernels that quantize share: the scale of a block, quotients, and counting.
#ifndef FQ_KERNELS_CUDA_QUANTIZE_CUH
#define FQ_KERNELS_CUDA_QUANTIZE_CUH

#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/launch.h"

// How amax becomes a scale.
struct scaling {
    float amax_floor;
    bool pow2;
};

// What the elements of a block are divided by.
struct divisor {
    float scale;
    float reciprocal; // rounded to nearest; where short_cut
    bool short_cut;   // quotients may be had from the reciprocal
};

// The scale of fq_scale_of_amax.
static __device__ __forceinline__ float scale_of_amax(float amax, const scaling &how) {
    const float bounded = fmaxf(amax, how.amax_floor);
    if (bounded == 0.0f)
        return 1.0f;
    const float scale = __fdiv_rn(bounded, FQ_E4M3_MAX);
    if (!how.pow2)
        return scale > 0.0f ? scale : 0x1p-149f;
    const uint32_t bits = __float_as_uint(scale);
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
    return __uint_as_float(min(max(exponent, 1u), 254u) << 23);
}

// See "Quotients on the GPU" in docs/numerics.md: the short cut is exact for powers of two, and was
// tried for every BF16 element under the normal scale of every BF16 amax or of the default floor.
template <fq_dtype DTYPE>
static __device__ __forceinline__ divisor divisor_of(float amax, const scaling &how) {
    divisor by;
    by.scale = scale_of_amax(amax, how);
    const bool tried = DTYPE == FQ_BF16 && by.scale >= FLT_MIN &&
                       (amax >= how.amax_floor || how.amax_floor == FQ_DEFAULT_AMAX_FLOOR);
    by.short_cut = how.pow2 || tried;
    by.reciprocal = by.short_cut ? __frcp_rn(by.scale) : 0.0f;
    return by;
}

// value / scale: IEEE's, or with the short cut one that has the same E4M3 code.
template <bool SHORT_CUT>
static __device__ __forceinline__ float quotient(float value, const divisor &by) {
    if (!SHORT_CUT)
        return __fdiv_rn(value, by.scale);
    const float q = __fmul_rn(value, by.reciprocal);
    return __fmaf_rn(by.reciprocal, __fmaf_rn(-q, by.scale, value), q);
}

// ---- Counting

static __device__ __forceinline__ unsigned long long *as_counter(uint64_t *count) {
    return reinterpret_cast<unsigned long long *>(count);
}

// What a thread has counted of its elements.
struct tally {
    uint32_t saturated, flushed_to_zero;

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

// False if no element of that magnitude or more, in a block of that amax, is one that is counted:
// flushed to zero is what lies under 2^-10 scales or a little more, saturated what is over 464.
static __device__ __forceinline__ bool may_count(float least, float amax, const divisor &by) {
    const bool may_flush = least <= __fmul_rn(by.scale, 0x1p-9f);
    return may_flush || (!by.short_cut && __fdiv_rn(amax, by.scale) > FQ_E4M3_SATURATES);
}

static __device__ __forceinline__ void count_element(tally &sum, float value, uint32_t code,
                                                     const divisor &by) {
    sum.flushed_to_zero += value != 0.0f && (code & 0x7Fu) == 0;
    sum.saturated += fabsf(__fdiv_rn(value, by.scale)) > FQ_E4M3_SATURATES;
}

// By one thread for each block.
static __device__ __forceinline__ void count_block(fq_cuda_quantize_counts *counts, float amax,
                                                   const scaling &how) {
    if (amax == 0.0f)
        atomicAdd(as_counter(&counts->zero_blocks), 1ull);
    else if (amax < how.amax_floor)
        atomicAdd(as_counter(&counts->floored_blocks), 1ull);
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
int quantize_any(const fq_quantize_job *job, fq_cuda_quantize_counts *counts,
                 struct CUstream_st *stream);

#endif
