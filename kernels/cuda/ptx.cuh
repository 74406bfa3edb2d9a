// Every line of inline PTX: single instructions that CUDA C++ has no name for, or only in headers
// that take longer to compile than the kernels.
#ifndef FQ_KERNELS_CUDA_PTX_CUH
#define FQ_KERNELS_CUDA_PTX_CUH

#include <stdint.h>

// The greater of each pair of BF16; NaN if one is NaN.
static __device__ __forceinline__ uint32_t ptx_max_bf16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

static __device__ __forceinline__ uint32_t ptx_max_f16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The lesser of each pair; NaN only if both are NaN.
static __device__ __forceinline__ uint32_t ptx_min_bf16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("min.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

static __device__ __forceinline__ uint32_t ptx_min_f16x2(uint32_t a, uint32_t b) {
    uint32_t out;
    asm("min.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}

// The value of an F16, widened: exact.
static __device__ __forceinline__ float ptx_f32_of_f16(uint16_t half) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(half));
    return out;
}

// Two values rounded to nearest, ties to even; low in the lower half.
static __device__ __forceinline__ uint32_t ptx_bf16x2_of_f32(float low, float high) {
    uint32_t out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

static __device__ __forceinline__ uint32_t ptx_f16x2_of_f32(float low, float high) {
    uint32_t out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

#if __CUDA_ARCH__ >= 890
// Two E4M3 codes, to nearest, ties to even, cut at ±448; low in the lower byte.
static __device__ __forceinline__ uint32_t ptx_e4m3x2_of_f32(float low, float high) {
    uint16_t out;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
    return out;
}
#endif

#endif
