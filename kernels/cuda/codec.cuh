// The codecs of lib/fp8.h for device code, several values at a time, and the layout of a tile.
#ifndef FQ_KERNELS_CUDA_CODEC_CUH
#define FQ_KERNELS_CUDA_CODEC_CUH

#include "kernels/cuda/ptx.cuh"
#include "lib/fp8.h"
#include "lib/tensor.h"

#include <float.h>

// A tile is 128 columns wide. Of each row a thread takes a chunk: 16 bytes of floats, the widest
// access there is, and their codes. Neighbours in a warp take neighbours in a row, so that accesses
// are of whole sectors of memory. 16 rows are taken at once.
static constexpr int TILE_COLS = 128;
static constexpr int ROWS_AT_ONCE = 16;

template <fq_dtype DTYPE> struct tile {
    static constexpr int ELEMENT_NBYTES = DTYPE == FQ_F32 ? 4 : 2;
    static constexpr int CHUNK = 16 / ELEMENT_NBYTES; // elements
    static constexpr int ROW_THREADS = TILE_COLS / CHUNK;
    static constexpr int THREADS = ROW_THREADS * ROWS_AT_ONCE;
};

// The elements of a chunk, as they lie in memory.
template <fq_dtype DTYPE> struct chunk { uint32_t words[4]; };

// Their codes.
template <fq_dtype DTYPE> struct chunk_codes {
    static constexpr int N_WORDS = tile<DTYPE>::CHUNK / 4;
    uint32_t words[N_WORDS];

    // Code k in the lowest byte; k is known when compiling. What is above it is no matter.
    __device__ __forceinline__ uint32_t at(int k) const { return words[k / 4] >> (8 * (k % 4)); }
};

// Data that is read once and written once is not worth keeping in the caches.
template <fq_dtype DTYPE>
static __device__ __forceinline__ chunk<DTYPE> load_chunk(const void *array, uint64_t first) {
    const char *at = static_cast<const char *>(array) + first * tile<DTYPE>::ELEMENT_NBYTES;
    const uint4 v = __ldcs(reinterpret_cast<const uint4 *>(at));
    return {{v.x, v.y, v.z, v.w}};
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ void store_chunk(void *array, uint64_t first,
                                                   const chunk<DTYPE> &in) {
    char *at = static_cast<char *>(array) + first * tile<DTYPE>::ELEMENT_NBYTES;
    __stcs(reinterpret_cast<uint4 *>(at),
           make_uint4(in.words[0], in.words[1], in.words[2], in.words[3]));
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ chunk_codes<DTYPE> load_codes(const uint8_t *at) {
    chunk_codes<DTYPE> out;
    if constexpr (out.N_WORDS == 2) {
        const uint2 v = __ldcs(reinterpret_cast<const uint2 *>(at));
        out.words[0] = v.x, out.words[1] = v.y;
    } else {
        out.words[0] = __ldcs(reinterpret_cast<const uint32_t *>(at));
    }
    return out;
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ void store_codes(uint8_t *at, const chunk_codes<DTYPE> &in) {
    if constexpr (in.N_WORDS == 2)
        __stcs(reinterpret_cast<uint2 *>(at), make_uint2(in.words[0], in.words[1]));
    else
        __stcs(reinterpret_cast<uint32_t *>(at), in.words[0]);
}

// ---- Floating dtypes

// The value of an element from its bits, widened to FP32: exact.
template <fq_dtype DTYPE> static __device__ __forceinline__ float value_of_bits(uint32_t bits) {
    if (DTYPE == FQ_F32)
        return __uint_as_float(bits);
    return DTYPE == FQ_BF16 ? __uint_as_float(bits << 16) : ptx_f32_of_f16((uint16_t)bits);
}

// Element k of a chunk; k is known when compiling.
template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t bits_in_chunk(const chunk<DTYPE> &c, int k) {
    if (DTYPE == FQ_F32)
        return c.words[k];
    return k % 2 ? c.words[k / 2] >> 16 : c.words[k / 2] & 0xFFFFu;
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ float value_in_chunk(const chunk<DTYPE> &c, int k) {
    if (DTYPE == FQ_BF16) // the upper half needs no shift
        return __uint_as_float(k % 2 ? c.words[k / 2] & 0xFFFF0000u : c.words[k / 2] << 16);
    return value_of_bits<DTYPE>(bits_in_chunk(c, k));
}

// True if the element is Inf or NaN.
template <fq_dtype DTYPE> static __device__ __forceinline__ bool is_nonfinite(uint32_t bits) {
    const uint32_t exponent = DTYPE == FQ_F32 ? 0x7F800000u : DTYPE == FQ_BF16 ? 0x7F80u : 0x7C00u;
    return (bits & exponent) == exponent;
}

template <fq_dtype DTYPE> static __device__ __forceinline__ uint32_t magnitude(uint32_t bits) {
    return bits & (DTYPE == FQ_F32 ? 0x7FFFFFFFu : 0x7FFFu);
}

// The least and the greatest magnitude of many elements, as bits of the dtype, which order like the
// values, Inf and NaN above all others. 16-bit dtypes are compared two by two.
template <fq_dtype DTYPE> struct range { uint32_t least, greatest; };

template <fq_dtype DTYPE> static __device__ __forceinline__ range<DTYPE> empty_range() {
    const uint32_t inf = DTYPE == FQ_F32    ? 0x7F800000u
                         : DTYPE == FQ_BF16 ? 0x7F807F80u
                                            : 0x7C007C00u;
    return {inf, 0};
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ void widen(range<DTYPE> &r, const chunk<DTYPE> &c) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (DTYPE == FQ_F32) {
            const uint32_t m = c.words[i] & 0x7FFFFFFFu;
            r.least = min(r.least, m);
            r.greatest = max(r.greatest, m);
        } else {
            const uint32_t m = c.words[i] & 0x7FFF7FFFu;
            const bool bf16 = DTYPE == FQ_BF16;
            r.least = bf16 ? ptx_min_bf16x2(r.least, m) : ptx_min_f16x2(r.least, m);
            r.greatest = bf16 ? ptx_max_bf16x2(r.greatest, m) : ptx_max_f16x2(r.greatest, m);
        }
    }
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ range<DTYPE> range_of(const chunk<DTYPE> &c) {
    range<DTYPE> r = empty_range<DTYPE>();
    widen(r, c);
    return r;
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t least_bits(const range<DTYPE> &r) {
    return DTYPE == FQ_F32 ? r.least : min(r.least & 0xFFFFu, r.least >> 16);
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t greatest_bits(const range<DTYPE> &r) {
    return DTYPE == FQ_F32 ? r.greatest : max(r.greatest & 0xFFFFu, r.greatest >> 16);
}

// ---- Counting zeros, several at a time

// The greatest bit of each byte, or each half, whose other bits are not all zero.
static __device__ __forceinline__ uint32_t nonzero_bytes(uint32_t word) {
    return ((word & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) & 0x80808080u;
}

static __device__ __forceinline__ uint32_t nonzero_halves(uint32_t word) {
    return ((word & 0x7FFF7FFFu) + 0x7FFF7FFFu) & 0x80008000u;
}

// How many elements of a chunk, or codes of one, are ±0.
template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t count_zeros(const chunk<DTYPE> &c) {
    uint32_t n = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        n += DTYPE == FQ_F32 ? c.words[i] << 1 != 0 : __popc(nonzero_halves(c.words[i]));
    return tile<DTYPE>::CHUNK - n;
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t count_zeros(const chunk_codes<DTYPE> &c) {
    uint32_t nonzero = nonzero_bytes(c.words[0]);
    if constexpr (c.N_WORDS == 2)
        nonzero |= nonzero_bytes(c.words[1]) >> 1;
    return tile<DTYPE>::CHUNK - __popc(nonzero);
}

// ---- E4M3

#if __CUDA_ARCH__ >= 890
// The codes of four values, the first in the lowest byte.
static __device__ __forceinline__ uint32_t e4m3x4_of_f32(float a, float b, float c, float d) {
    return ptx_e4m3x2_of_f32(a, b) | ptx_e4m3x2_of_f32(c, d) << 16;
}
#else
// See "E4M3 without a branch" in docs/numerics.md.
static __device__ __forceinline__ uint32_t e4m3_of_f32(float value) {
    const float magnitude = fminf(fabsf(value), FQ_E4M3_MAX);
    const uint32_t exponent = max(__float_as_uint(magnitude) >> 23, FQ_F32_BIAS - 6u);
    const uint32_t unit = (exponent + 20) << 23;
    const uint32_t steps = __float_as_uint(__fadd_rn(magnitude, __uint_as_float(unit))) - unit;
    return ((__float_as_uint(value) >> 31) << 7) | (((exponent - (FQ_F32_BIAS - 6u)) << 3) + steps);
}

static __device__ __forceinline__ uint32_t e4m3x4_of_f32(float a, float b, float c, float d) {
    return e4m3_of_f32(a) | e4m3_of_f32(b) << 8 | e4m3_of_f32(c) << 16 | e4m3_of_f32(d) << 24;
}
#endif

// The value of byte k of a word of codes that are no NaN: exact. An E4M3's exponent and mantissa
// are an FP32's whose exponent is 120 too low, subnormals included.
static __device__ __forceinline__ float f32_of_e4m3(uint32_t codes, int k) {
    const uint32_t top = codes << (24 - 8 * k);
    const uint32_t bits = (top & 0x80000000u) | (top >> 4 & 0x07F00000u);
    return __fmul_rn(__uint_as_float(bits), 0x1p120f);
}

// The greatest bit of each byte that holds a NaN code.
static __device__ __forceinline__ uint32_t nan_codes(uint32_t codes) {
    return ((codes & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u;
}

#endif
