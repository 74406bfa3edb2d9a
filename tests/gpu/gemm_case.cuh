// A GEMM to test: operands in guarded device memory, random contents, and the result in FP64.
#ifndef FQ_TESTS_GEMM_CASE_CUH
#define FQ_TESTS_GEMM_CASE_CUH

#include "kernels/cuda/gemm/gemm_device.cuh"

#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA_CHECK(call)                                                                           \
    do {                                                                                           \
        const cudaError_t cuda_status = (call);                                                    \
        if (cuda_status != cudaSuccess) {                                                          \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(cuda_status));                                              \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

// Mixes the bits of x: the same number everywhere, on the host too.
static __host__ __device__ inline uint64_t hash64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

// Device memory with a pattern before and behind, which no kernel may touch.
struct guarded {
    enum : size_t { GUARD = 4096, PATTERN = 0xA5 };
    uint8_t *memory = nullptr;
    size_t capacity = 0, nbytes = 0, shift = 0;

    // The first of n bytes, `shift_` bytes off the alignment of the allocation (under 256).
    void *take(size_t n, size_t shift_ = 0) {
        if (n + 2 * GUARD + 256 > capacity) {
            CUDA_CHECK(cudaFree(memory));
            capacity = (n + 2 * GUARD + 256) * 3 / 2;
            CUDA_CHECK(cudaMalloc(&memory, capacity));
        }
        nbytes = n, shift = shift_;
        CUDA_CHECK(cudaMemset(memory, PATTERN, nbytes + shift + 2 * GUARD));
        return memory + GUARD + shift;
    }

    void release() {
        CUDA_CHECK(cudaFree(memory));
        *this = {};
    }

    bool intact() const {
        static uint8_t host[2 * GUARD + 256];
        const size_t n_before = GUARD + shift;
        CUDA_CHECK(cudaMemcpy(host, memory, n_before, cudaMemcpyDeviceToHost));
        CUDA_CHECK(
            cudaMemcpy(host + n_before, memory + n_before + nbytes, GUARD, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < n_before + GUARD; i++)
            if (host[i] != PATTERN)
                return false;
        return true;
    }
};

// Codes: of normally distributed values that fill E4M3's range as a block's do, or any code.
static __global__ void fill_codes(uint8_t *codes, uint64_t n, uint64_t seed, bool any_code) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t random = hash64(seed ^ i * 0xD1342543DE82EF95u);
        uint8_t code = random & 0xFF;
        if (any_code) {
            code = (code & 0x7F) == 0x7F ? code & 0xFE : code;
        } else {
            const float u = ((uint32_t)(random >> 8 & 0xFFFFFF) + 1) * 0x1p-24f;
            const float v = (uint32_t)(random >> 32) * 0x1p-32f;
            const float normal = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
            code = __nv_cvt_float_to_fp8(normal * 140.0f, __NV_SATFINITE, __NV_E4M3);
        }
        codes[i] = code;
    }
}

// Scales of some binades around 2^-7; or, as words, four exponents each.
static __global__ void fill_scales(uint32_t *scales, uint64_t n, uint64_t seed, bool packed) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint32_t random = (uint32_t)hash64(seed ^ i * 0xD1342543DE82EF95u);
        const uint32_t exponents = (random & 0x03030303) + 0x77777777;
        scales[i] = packed ? exponents : (0x3B800000 + (random & 0x01FFFFFF));
    }
}

// As the packed layout wants it: all rows of a 128 of N have the same word.
static __global__ void repeat_words(uint32_t *words, uint64_t n_rows, uint64_t row_words,
                                    uint64_t n_lines) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n_lines * row_words;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t line = i / row_words, row = i % row_words;
        if (row >= n_rows)
            words[i] = 0;
        else if (row % 128 != 0)
            words[i] = words[line * row_words + row / 128 * 128];
    }
}

// Makes equal rows: of codes, and in the scales of each 128 of K.
static __global__ void repeat_row(uint8_t *codes, uint64_t n, uint64_t stride) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        if (i >= stride)
            codes[i] = codes[i % stride];
}

static __global__ void repeat_scale(uint32_t *scales, uint64_t n, uint64_t stride) {
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        if (i % stride != 0)
            scales[i] = scales[i / stride * stride];
}

// Bytes of D that are not those of its first row.
static __global__ void count_unlike(const uint8_t *d, uint64_t m, uint64_t row_nbytes,
                                    uint64_t stride_nbytes, unsigned long long *n_unlike) {
    unsigned long long n = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < m * row_nbytes;
         i += (uint64_t)gridDim.x * blockDim.x)
        n += d[i / row_nbytes * stride_nbytes + i % row_nbytes] != d[i % row_nbytes];
    if (n > 0)
        atomicAdd(n_unlike, n);
}

static __global__ void count_different(const uint8_t *a, const uint8_t *b, uint64_t nbytes,
                                       unsigned long long *n_different) {
    unsigned long long n = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < nbytes;
         i += (uint64_t)gridDim.x * blockDim.x)
        n += a[i] != b[i];
    if (n > 0)
        atomicAdd(n_different, n);
}

static __device__ inline double value_of(uint8_t code) {
    return (double)__half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

// y[m, n] = the product in FP64, and magnitude[m, n] = Σ |â · ŵ|. One block an element of D: plain.
static __global__ void multiply_fp64(const fq_cuda_gemm g, double *y, double *magnitude) {
    const uint64_t n_elements = g.m * g.n;
    for (uint64_t i = blockIdx.x * (uint64_t)(blockDim.x / 32) + threadIdx.x / 32; i < n_elements;
         i += (uint64_t)gridDim.x * (blockDim.x / 32)) {
        const uint64_t m = i / g.n, n = i % g.n;
        double sum = NAN, sum_of_magnitudes = 0; // NaN: the row belongs to no group
        for (uint32_t group = 0; group < g.n_groups; group++) {
            const gemm::row_range rows = gemm::rows_of_group(g, group);
            if (m < rows.begin || m >= rows.end)
                continue;
            const gemm::b_scale_layout layout = gemm::b_scale_layout::of(g);
            const gemm::b_scale_row b_scales =
                gemm::b_scale_row::of(layout, group, (uint32_t)(n / 128));
            const uint64_t a_row = gemm::a_row_of(g, group, m);
            sum = 0;
            for (uint64_t k = threadIdx.x % 32; k < g.k; k += 32) {
                const double scale = (double)g.a_scales[k / 128 * g.a_scales_stride + a_row] *
                                     (double)b_scales.at(layout, (uint32_t)(k / 128));
                const double term = scale * value_of(g.a[a_row * g.a_stride + k]) *
                                    value_of(g.b[(group * g.n + n) * g.b_stride + k]);
                sum += term, sum_of_magnitudes += fabs(term);
            }
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFF, sum, distance);
            sum_of_magnitudes += __shfl_xor_sync(0xFFFFFFFF, sum_of_magnitudes, distance);
        }
        if (threadIdx.x % 32 == 0)
            y[i] = sum, magnitude[i] = sum_of_magnitudes;
    }
}

// What a comparison with FP64 found.
struct verdict {
    unsigned long long n_bad; // elements outside the bound, or written where they must not be
    unsigned long long first; // the least index of one
    double worst;             // greatest (|d - y| - u·|y|) / Σ |â · ŵ|
    double error, norm;       // Σ (d - y)², Σ y²
    double norm_d;            // Σ d²
    double rounding;          // Σ (y rounded to D's dtype − y)²
    unsigned long long n;     // elements that were compared
};

static __device__ inline void atomic_max(double *to, double value) {
    unsigned long long old = *(unsigned long long *)to;
    while (value > __longlong_as_double((long long)old)) {
        const unsigned long long seen = atomicCAS((unsigned long long *)to, old,
                                                  (unsigned long long)__double_as_longlong(value));
        if (seen == old)
            break;
        old = seen;
    }
}

// Every element, and every byte between rows: there, and where no group is, the poison must remain.
static __global__ void compare(const fq_cuda_gemm g, const double *y, const double *magnitude,
                               double c, verdict *v) {
    const double u = g.d_is_f32 ? 0x1p-24 : 0x1p-8;
    double error = 0, norm = 0, norm_d = 0, rounding = 0, worst = 0;
    unsigned long long n_compared = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < g.m * g.d_stride;
         i += (uint64_t)gridDim.x * blockDim.x) {
        const uint64_t m = i / g.d_stride, n = i % g.d_stride;
        const uint32_t bits = g.d_is_f32 ? ((const uint32_t *)g.d)[i] : ((const uint16_t *)g.d)[i];
        const bool poisoned = bits == (g.d_is_f32 ? 0xFFFFFFFFu : 0xFFFFu);
        const bool inside = n < g.n && !isnan(y[m * g.n + n]);
        bool good = poisoned != inside;
        if (good && inside) {
            const double d = (double)__uint_as_float(g.d_is_f32 ? bits : bits << 16);
            const double exact = y[m * g.n + n], distance = fabs(d - exact);
            const double rest = distance - u * fabs(exact);
            const float rounded =
                g.d_is_f32 ? (float)exact : __bfloat162float(__float2bfloat16_rn((float)exact));
            rounding += ((double)rounded - exact) * ((double)rounded - exact);
            good = rest <= c * magnitude[m * g.n + n];
            error += distance * distance, norm += exact * exact, norm_d += d * d, n_compared++;
            if (rest > 0)
                worst = fmax(worst, rest / magnitude[m * g.n + n]);
        }
        if (!good) {
            atomicAdd(&v->n_bad, 1);
            atomicMin(&v->first, i);
        }
    }
    atomicAdd(&v->error, error);
    atomicAdd(&v->norm, norm);
    atomicAdd(&v->norm_d, norm_d);
    atomicAdd(&v->rounding, rounding);
    atomicAdd(&v->n, n_compared);
    atomic_max(&v->worst, worst);
}

#endif
