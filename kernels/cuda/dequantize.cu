// Casts back on the GPU: fl32(code × scale), rounded to the target's dtype, saturating.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/start.cuh"

static constexpr int TILE_ROWS = 64, STRIP = TILE_ROWS / ROWS_AT_ONCE;

// What a kernel is told.
struct matrix {
    const uint8_t *codes;
    const float *scales;
    void *target;
    fq_dequantize_counts *counts;
    uint64_t rows, cols;
    fq_block block;
    uint64_t n_cols; // blocks side by side
};

// What a thread has counted of its elements.
struct tally {
    uint32_t saturated, nan_codes;

    // By all threads of a warp together.
    __device__ __forceinline__ void publish(fq_dequantize_counts *counts) const {
        if (!__any_sync(~0u, saturated | nan_codes))
            return;
        const uint32_t s = __reduce_add_sync(~0u, saturated);
        const uint32_t n = __reduce_add_sync(~0u, nan_codes);
        if (threadIdx.x % 32 == 0) {
            atomicAdd(reinterpret_cast<unsigned long long *>(&counts->saturated), s);
            atomicAdd(reinterpret_cast<unsigned long long *>(&counts->nan_codes), n);
        }
    }
};

template <fq_dtype DTYPE>
constexpr float greatest_value = DTYPE == FQ_F32    ? FLT_MAX
                                 : DTYPE == FQ_BF16 ? 0x1.FEp127f
                                                    : 65504.0f;

// The bits of an element, whatever its code and scale, and what is counted of it.
template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t decode_any(tally &sum, uint32_t code, float scale) {
    const uint32_t sign = code >> 7 & 1u;
    if ((code & 0x7Fu) == FQ_E4M3_NAN_CODE) {
        sum.nan_codes++;
        if (DTYPE == FQ_F32)
            return sign << 31 | 0x7FC00000u;
        return sign << 15 | (DTYPE == FQ_BF16 ? 0x7FC0u : 0x7E00u);
    }
    const float value = __fmul_rn(f32_of_e4m3(code, 0), scale);
    const uint32_t bits = DTYPE == FQ_F32    ? __float_as_uint(value)
                          : DTYPE == FQ_BF16 ? ptx_bf16x2_of_f32(value, 0.0f)
                                             : ptx_f16x2_of_f32(value, 0.0f);
    if (!is_nonfinite<DTYPE>(bits))
        return bits;
    sum.saturated++;
    return bits - 1; // from Inf to the greatest finite value
}

// The elements of a chunk of which none is NaN and none becomes more than the greatest value.
template <fq_dtype DTYPE>
static __device__ __forceinline__ chunk<DTYPE> decode(const chunk_codes<DTYPE> &codes,
                                                      float scale) {
    float v[tile<DTYPE>::CHUNK];
#pragma unroll
    for (int k = 0; k < tile<DTYPE>::CHUNK; k++)
        v[k] = __fmul_rn(f32_of_e4m3(codes.words[k / 4], k % 4), scale);
    chunk<DTYPE> out;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (DTYPE == FQ_F32)
            out.words[i] = __float_as_uint(v[i]);
        else
            out.words[i] = DTYPE == FQ_BF16 ? ptx_bf16x2_of_f32(v[2 * i], v[2 * i + 1])
                                            : ptx_f16x2_of_f32(v[2 * i], v[2 * i + 1]);
    }
    return out;
}

template <fq_dtype DTYPE>
static __device__ chunk<DTYPE> decode_any_chunk(tally &sum, const chunk_codes<DTYPE> &codes,
                                                float scale) {
    chunk<DTYPE> out = {};
#pragma unroll
    for (int k = 0; k < tile<DTYPE>::CHUNK; k++) {
        const uint32_t bits = decode_any<DTYPE>(sum, codes.at(k) & 0xFFu, scale);
        if constexpr (DTYPE == FQ_F32)
            out.words[k] = bits;
        else
            out.words[k / 2] |= bits << (k % 2 * 16);
    }
    return out;
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ bool has_nan(const chunk_codes<DTYPE> &codes) {
    uint32_t found = nan_codes(codes.words[0]);
    if constexpr (codes.N_WORDS == 2)
        found |= nan_codes(codes.words[1]);
    return found != 0;
}

// The scale of the element at [row, col].
static __device__ __forceinline__ float scale_at(const matrix &m, uint64_t row, uint64_t col) {
    return __ldg(&m.scales[row / m.block.rows * m.n_cols + col / m.block.cols]);
}

// The codes and scales of a thread's chunks of a tile: one in every ROWS_AT_ONCE-th row.
template <fq_dtype DTYPE> struct strip {
    uint64_t first, step; // elements: the first chunk's, and from one to the next
    int n;                // chunks that lie inside of the matrix
    chunk_codes<DTYPE> codes[STRIP];
    float scales[STRIP];
};

// A chunk never holds elements of two blocks. ONE_SCALE: nor does a tile.
template <fq_dtype DTYPE, bool ONE_SCALE>
static __device__ __forceinline__ void load_strip(strip<DTYPE> &s, const matrix &m,
                                                  uint64_t tile_row) {
    const uint64_t tile_col = (uint64_t)blockIdx.x * TILE_COLS;
    const int rows = (int)min(m.rows - tile_row, (uint64_t)TILE_ROWS);
    const int r = threadIdx.x / tile<DTYPE>::ROW_THREADS;
    const int c = threadIdx.x % tile<DTYPE>::ROW_THREADS * tile<DTYPE>::CHUNK;
    s.first = (tile_row + r) * m.cols + tile_col + c;
    s.step = ROWS_AT_ONCE * m.cols;
    s.n = tile_col + c < m.cols ? (rows - r + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE : 0;
    const float scale = ONE_SCALE ? scale_at(m, tile_row, tile_col) : 0.0f;
#pragma unroll
    for (int k = 0; k < STRIP; k++) {
        s.scales[k] = scale;
        if (k >= s.n)
            continue;
        s.codes[k] = load_codes<DTYPE>(m.codes + s.first + k * s.step);
        if (!ONE_SCALE)
            s.scales[k] = scale_at(m, tile_row + r + k * ROWS_AT_ONCE, tile_col + c);
    }
}

template <fq_dtype DTYPE, bool ONE_SCALE>
static __global__ void __launch_bounds__(tile<DTYPE>::THREADS)
    dequantize_tiles(const __grid_constant__ matrix m) {
    for (uint64_t row = (uint64_t)blockIdx.y * TILE_ROWS; row < m.rows;
         row += (uint64_t)gridDim.y * TILE_ROWS) {
        strip<DTYPE> s;
        tally sum = {};
        load_strip<DTYPE, ONE_SCALE>(s, m, row);
#pragma unroll
        for (int k = 0; k < STRIP; k++) {
            if (k >= s.n)
                continue;
            const bool plain = !has_nan(s.codes[k]) &&
                               __fmul_rn(s.scales[k], FQ_E4M3_MAX) <= greatest_value<DTYPE>;
            store_chunk<DTYPE>(m.target, s.first + k * s.step,
                               plain ? decode<DTYPE>(s.codes[k], s.scales[k])
                                     : decode_any_chunk<DTYPE>(sum, s.codes[k], s.scales[k]));
        }
        __syncwarp();
        sum.publish(m.counts);
    }
}

// Element by element, for rows that are not aligned, and blocks that cut chunks.
static constexpr uint32_t ANY_COLS = 2048, ANY_THREADS = 256, MAX_GRID = 1 << 20;

template <fq_dtype DTYPE>
static __global__ void __launch_bounds__(ANY_THREADS)
    dequantize_any(const matrix m, uint64_t n_stretches, uint64_t n_in_row) {
    tally sum = {};
    for (uint64_t s = blockIdx.x; s < n_stretches; s += gridDim.x) {
        const uint64_t row = s / n_in_row, begin = s % n_in_row * ANY_COLS;
        const uint64_t end = min(begin + ANY_COLS, m.cols);
        for (uint64_t col = begin + threadIdx.x; col < end; col += blockDim.x) {
            const uint64_t at = row * m.cols + col;
            const uint32_t bits = decode_any<DTYPE>(sum, m.codes[at], scale_at(m, row, col));
            if (DTYPE == FQ_F32)
                static_cast<uint32_t *>(m.target)[at] = bits;
            else
                static_cast<uint16_t *>(m.target)[at] = (uint16_t)bits;
        }
    }
    __syncwarp();
    sum.publish(m.counts);
}

template <fq_dtype DTYPE> static unsigned launch_any(const matrix &m, cudaStream_t stream) {
    const uint64_t n_in_row = fq_ceil_div(m.cols, ANY_COLS), n = m.rows * n_in_row;
    const uint32_t grid = n < MAX_GRID ? (uint32_t)n : MAX_GRID;
    return start(dequantize_any<DTYPE>, grid, ANY_THREADS, stream, m, n, n_in_row);
}

template <fq_dtype DTYPE> static unsigned launch(const matrix &m, cudaStream_t stream) {
    const uint64_t chunk = tile<DTYPE>::CHUNK;
    if (m.cols % chunk != 0 || (m.block.cols % chunk != 0 && m.n_cols > 1) ||
        !is_aligned(m.codes, chunk) || !is_aligned(m.target, 16))
        return launch_any<DTYPE>(m, stream);
    const bool one_scale = (m.block.rows % TILE_ROWS == 0 || m.block.rows >= m.rows) &&
                           (m.block.cols % TILE_COLS == 0 || m.block.cols >= m.cols);
    const dim3 grid = grid_of_tiles(fq_ceil_div(m.cols, TILE_COLS), fq_ceil_div(m.rows, TILE_ROWS));
    return start(one_scale ? dequantize_tiles<DTYPE, true> : dequantize_tiles<DTYPE, false>, grid,
                 tile<DTYPE>::THREADS, stream, m);
}

unsigned fq_cuda_dequantize(const fq_dequantize_job *job, fq_dequantize_counts *counts,
                            cudaStream_t stream) {
    const matrix m = {
        job->codes, job->scales, job->target, counts,
        job->rows,  job->cols,   job->block,  fq_ceil_div(job->cols, job->block.cols),
    };
    if (job->target_dtype == FQ_F32)
        return launch<FQ_F32>(m, stream);
    return job->target_dtype == FQ_F16 ? launch<FQ_F16>(m, stream) : launch<FQ_BF16>(m, stream);
}
