// Products in FP64, one thread block for 64 tokens, 64 rows of weights and one block of columns.
//
// The sums of all blocks of columns go to memory and are added up by a second kernel, in order: so
// the work of a strip, which is few rows, fills a GPU, and has the bits of a plain loop.
#include "kernels/cuda/gemm/gemm_device.cuh"
#include "kernels/cuda/gemm/gemm_exact.h"
#include "kernels/cuda/start.cuh"

#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace {

using gemm::BLOCK;
using gemm::ceil_div;

constexpr uint32_t TILE = 64; // tokens, and rows
constexpr uint32_t SIDE = 8;  // of a thread's part of the tile, and of the threads
constexpr uint32_t THREADS = SIDE * SIDE;
constexpr uint32_t DEPTH = 32;         // columns in shared memory at a time: a warp's lanes
constexpr uint32_t WIDE_THREADS = 256; // of the kernels that take an element a thread

static_assert(SIDE * SIDE == TILE, "every thread has as many elements as threads have rows");

// Columns of 64 rows, transposed; one more: neighbours in a row lie in different banks.
struct tile {
    double columns[DEPTH][TILE + 1];
};

struct storage {
    tile x, w;
};

template <fq_dtype DTYPE> __device__ __forceinline__ double load(const void *matrix, uint64_t i) {
    if (DTYPE == FQ_F8_E4M3) {
        const uint8_t code = ((const uint8_t *)matrix)[i];
        return (double)__half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
    }
    if (DTYPE == FQ_BF16)
        return (double)__uint_as_float((uint32_t)((const uint16_t *)matrix)[i] << 16);
    return DTYPE == FQ_F16 ? (double)__half2float(((const __half *)matrix)[i])
                           : (double)((const float *)matrix)[i];
}

// Each warp takes every other row; beyond rows and end there are zeros.
template <fq_dtype DTYPE>
__device__ void load_tile(tile &to, const void *matrix, uint64_t stride, uint64_t row0,
                          uint64_t rows, uint64_t col0, uint64_t end) {
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t col = col0 + lane;
#pragma unroll 16
    for (uint32_t r = threadIdx.x / 32; r < TILE; r += THREADS / 32) {
        const bool inside = row0 + r < rows && col < end;
        to.columns[lane][r] = inside ? load<DTYPE>(matrix, (row0 + r) * stride + col) : 0.0;
    }
}

// A thread's elements are SIDE apart, so that neighbours read neighbours.
__device__ void multiply_tiles(double (&sums)[SIDE][SIDE], const storage &s) {
    const uint32_t token = threadIdx.x % SIDE, row = threadIdx.x / SIDE;
#pragma unroll 4
    for (uint32_t k = 0; k < DEPTH; k++) {
        double x[SIDE], w[SIDE];
#pragma unroll
        for (uint32_t i = 0; i < SIDE; i++) {
            x[i] = s.x.columns[k][token + i * SIDE];
            w[i] = s.w.columns[k][row + i * SIDE];
        }
#pragma unroll
        for (uint32_t t = 0; t < SIDE; t++)
#pragma unroll
            for (uint32_t r = 0; r < SIDE; r++)
                sums[t][r] = fma(x[t], w[r], sums[t][r]);
    }
}

// blocks[b] = the sums of block first_block + b, for b of the grid's second dimension.
template <fq_dtype X, fq_dtype W>
__global__ void __launch_bounds__(THREADS) multiply(const fq_cuda_exact job, uint64_t first_block) {
    __shared__ storage s;
    const uint64_t n_row_tiles = ceil_div(job.rows, TILE);
    const uint64_t row0 = blockIdx.x % n_row_tiles * TILE, token0 = blockIdx.x / n_row_tiles * TILE;
    const uint64_t col0 = (first_block + blockIdx.y) * BLOCK, end = min(col0 + BLOCK, job.cols);
    double sums[SIDE][SIDE] = {};
    for (uint64_t col = col0; col < end; col += DEPTH) {
        load_tile<X>(s.x, job.x, job.x_stride, token0, job.tokens, col, end);
        load_tile<W>(s.w, job.w, job.w_stride, row0, job.rows, col, end);
        __syncthreads();
        multiply_tiles(sums, s);
        __syncthreads();
    }
    double *out = job.blocks + blockIdx.y * job.tokens * job.rows;
#pragma unroll
    for (uint32_t t = 0; t < SIDE; t++)
#pragma unroll
        for (uint32_t r = 0; r < SIDE; r++) {
            const uint64_t token = token0 + threadIdx.x % SIDE + t * SIDE;
            const uint64_t row = row0 + threadIdx.x / SIDE + r * SIDE;
            if (token < job.tokens && row < job.rows)
                out[token * job.rows + row] = sums[t][r];
        }
}

// sums += the sums of n blocks, with their scales.
__global__ void __launch_bounds__(WIDE_THREADS)
    add_blocks(const fq_cuda_exact job, uint64_t first_block, uint64_t n) {
    const uint64_t i = blockIdx.x * (uint64_t)WIDE_THREADS + threadIdx.x;
    const uint64_t n_elements = job.tokens * job.rows, row = i % job.rows, token = i / job.rows;
    double *const sum = job.sums + token * job.sums_stride + row;
    if (i >= n_elements)
        return;
    double y = *sum;
    for (uint64_t b = 0; b < n; b++) {
        const uint64_t block = first_block + b;
        double scale = 1.0; // the product of two FP32 is exact in FP64
        if (job.x_scales)
            scale = (double)job.x_scales[block * job.x_scales_stride + token] *
                    (double)job.w_scales[row / BLOCK * job.w_scales_stride + block];
        y = __dadd_rn(y, __dmul_rn(job.blocks[b * n_elements + i], scale));
    }
    *sum = y;
}

__global__ void __launch_bounds__(WIDE_THREADS) add(float *sums, const float *product, uint64_t n) {
    const uint64_t i = blockIdx.x * (uint64_t)WIDE_THREADS + threadIdx.x;
    if (i < n)
        sums[i] += product[i];
}

// A thread block a row of B, a thread every WIDE_THREADS-th token.
__global__ void __launch_bounds__(WIDE_THREADS) mend(const fq_cuda_gemm g) {
    const gemm::b_scale_layout layout = gemm::b_scale_layout::of(g);
    const gemm::row_range tokens = gemm::rows_of_group(g, (uint32_t)(blockIdx.x / g.n));
    const uint64_t row = blockIdx.x % g.n, n_blocks = ceil_div(g.k, BLOCK);
    const uint64_t line = layout.line_words, a_row0 = gemm::a_row_of(g, tokens.group, tokens.begin);
    const uint32_t *words = layout.first + tokens.group * layout.group_words + row;
    const uint8_t *b = g.b + (tokens.group * g.n + row) * g.b_stride;
    bool differs = false;
    if (tokens.begin == tokens.end)
        return;
    for (uint64_t i = threadIdx.x; i < ceil_div(n_blocks, 4); i += WIDE_THREADS)
        differs |= words[i * line] != words[i * line - row % BLOCK];
    if (!__syncthreads_or(differs))
        return;
    for (uint64_t i = threadIdx.x; i < tokens.end - tokens.begin; i += WIDE_THREADS) {
        const uint8_t *a = g.a + (a_row0 + i) * g.a_stride;
        float y = 0.0f;
        for (uint64_t block = 0; block < n_blocks; block++) {
            const uint64_t end = min((block + 1) * BLOCK, g.k);
            const uint32_t exponent = words[block / 4 * line] >> block % 4 * 8 & 0xFF;
            float part = 0.0f;
            for (uint64_t k = block * BLOCK; k < end; k++)
                part = fmaf((float)load<FQ_F8_E4M3>(a, k), (float)load<FQ_F8_E4M3>(b, k), part);
            const float scale = __fmul_rn(g.a_scales[block * g.a_scales_stride + a_row0 + i],
                                          gemm::scale_of_exponent(exponent));
            y = __fadd_rn(y, __fmul_rn(part, scale));
        }
        ((float *)g.d)[(tokens.begin + i) * g.d_stride + row] = y;
    }
}

// What FP32 holds, also where sums pass through more than they come to. False for NaN.
__device__ bool is_in_range(const double *row, const fq_cuda_products &products) {
    double greatest = 0.0;
    bool is_small = true;
#pragma unroll 4
    for (uint64_t token = 0; token < products.tokens; token++) {
        const double magnitude = fabs(row[token * products.rows]);
        is_small &= magnitude <= 0x1p100;
        greatest = fmax(greatest, magnitude);
    }
    return is_small && (greatest == 0.0 || greatest >= 0x1p-100);
}

__device__ double add_square(double sum, double value) {
    return __dadd_rn(sum, __dmul_rn(value, value));
}

// One thread a row, its tokens in order.
__global__ void __launch_bounds__(WIDE_THREADS)
    sum_up(const fq_cuda_products products, fq_gemm_sums *out) {
    const uint64_t index = blockIdx.x * (uint64_t)WIDE_THREADS + threadIdx.x;
    const uint64_t strip = index / products.rows, row = index % products.rows;
    const uint64_t first = strip * products.tokens * products.rows + row;
    fq_gemm_sums sums = {};
    if (strip >= products.n_strips || (products.group_rows && products.group_rows[strip] == 0))
        return;
    if (is_in_range(products.exact + first, products) &&
        (!products.reference || is_in_range(products.reference + first, products)))
        sums.n = products.tokens;
#pragma unroll 4
    for (uint64_t token = 0; token < sums.n; token++) {
        const uint64_t i = first + token * products.rows;
        const double y = (double)products.product[i], exact = products.exact[i];
        sums.kernel_error2 = add_square(sums.kernel_error2, y - exact);
        sums.exact2 = add_square(sums.exact2, exact);
        if (!products.reference)
            continue;
        const double reference = products.reference[i];
        sums.error2 = add_square(sums.error2, y - reference);
        sums.reference2 = add_square(sums.reference2, reference);
    }
    out[index] = sums;
}

unsigned multiply_blocks(const fq_cuda_exact &job, uint64_t first_block, uint64_t n,
                         cudaStream_t stream) {
    const uint64_t n_tiles = ceil_div(job.rows, TILE) * ceil_div(job.tokens, TILE);
    const dim3 grid((uint32_t)n_tiles, (uint32_t)n);
    switch (job.w_dtype) {
    case FQ_F8_E4M3:
        return start(multiply<FQ_F8_E4M3, FQ_F8_E4M3>, grid, THREADS, stream, job, first_block);
    case FQ_BF16:
        return start(multiply<FQ_BF16, FQ_BF16>, grid, THREADS, stream, job, first_block);
    case FQ_F16:
        return start(multiply<FQ_BF16, FQ_F16>, grid, THREADS, stream, job, first_block);
    default:
        return start(multiply<FQ_BF16, FQ_F32>, grid, THREADS, stream, job, first_block);
    }
}

dim3 grid_of_elements(uint64_t n) { return dim3((uint32_t)ceil_div(n, WIDE_THREADS)); }

} // namespace

unsigned fq_cuda_exact_add(const fq_cuda_exact *job, cudaStream_t stream) {
    const uint64_t n_blocks = ceil_div(job->cols, BLOCK), max_grid = 65535;
    const uint64_t most = job->n_blocks < max_grid ? job->n_blocks : max_grid;
    const dim3 elements = grid_of_elements(job->tokens * job->rows);
    unsigned status = cudaSuccess;
    for (uint64_t first = 0, n = 0; first < n_blocks && status == cudaSuccess; first += n) {
        n = n_blocks - first < most ? n_blocks - first : most;
        status = multiply_blocks(*job, first, n, stream);
        if (status == cudaSuccess)
            status = start(add_blocks, elements, WIDE_THREADS, stream, *job, first, n);
    }
    return status;
}

unsigned fq_cuda_product_add(float *sums, const float *product, uint64_t n, cudaStream_t stream) {
    return start(add, grid_of_elements(n), WIDE_THREADS, stream, sums, product, n);
}

unsigned fq_cuda_product_mend(const fq_cuda_gemm *gemm, cudaStream_t stream) {
    return start(mend, dim3((uint32_t)(gemm->n * gemm->n_groups)), WIDE_THREADS, stream, *gemm);
}

unsigned fq_cuda_products_sum_up(const fq_cuda_products *products, fq_gemm_sums *sums,
                                 cudaStream_t stream) {
    const dim3 grid = grid_of_elements(products->n_strips * products->rows);
    return start(sum_up, grid, WIDE_THREADS, stream, *products, sums);
}
