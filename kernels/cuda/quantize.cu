// Quantizes on the GPU: blocks of 128×128 and 1×128 in one pass over memory.
//
// The threads of a thread block hold a tile of the matrix in their registers: all of it is asked
// for at once, then amax, scales and codes are worked out without going back to memory. What is
// rare (NaN, scales that are divided by) is left to small loops that read once more: the path of
// all others has to be short, or the instructions take longer than the memory.
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/start.cuh"

// A thread's chunks of a tile, the same number of elements apart.
template <fq_dtype DTYPE, int N> struct strip {
    uint64_t first, step; // elements of the matrix
    int n;                // chunks that lie inside of it; the others are zeros
    chunk<DTYPE> chunks[N];

    __device__ __forceinline__ void load(const matrix &m) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            chunks[k] = {};
            if (k < n)
                chunks[k] = load_chunk<DTYPE>(m.source, first + k * step);
        }
    }
};

// DIVIDE: by IEEE's division; else by quotient().
template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ uint2 encode(const chunk<DTYPE> &c, float scale,
                                               float reciprocal) {
    float q[CHUNK];
#pragma unroll
    for (int k = 0; k < CHUNK; k++) {
        const float value = value_in_chunk(c, k);
        q[k] = DIVIDE ? __fdiv_rn(value, scale) : quotient(value, scale, reciprocal);
    }
    return make_uint2(e4m3x4_of_f32(q[0], q[1], q[2], q[3]), e4m3x4_of_f32(q[4], q[5], q[6], q[7]));
}

// The codes of a strip under a scale that nothing is saturated by. Returns how many elements were
// flushed to zero; they are only looked for if there may_be_zeros.
template <fq_dtype DTYPE, int N, bool DIVIDE>
static __device__ __forceinline__ uint32_t encode_strip(const matrix &m, const strip<DTYPE, N> &s,
                                                        float scale, bool may_be_zeros) {
    const float reciprocal = DIVIDE ? 0.0f : __frcp_rn(scale);
    uint32_t n_flushed = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (k >= s.n)
            continue;
        const uint2 codes = encode<DTYPE, DIVIDE>(s.chunks[k], scale, reciprocal);
        __stcs(reinterpret_cast<uint2 *>(m.codes + s.first + k * s.step), codes);
        if (may_be_zeros)
            n_flushed += count_zeros(codes) - count_zeros(s.chunks[k]);
    }
    return n_flushed;
}

// The codes of n chunks under any scale, and what is counted.
template <fq_dtype DTYPE>
static __device__ __noinline__ tally encode_and_count(const matrix &m, uint64_t first,
                                                      uint64_t step, int n, float scale) {
    tally sum = {};
#pragma unroll 1
    for (int k = 0; k < n; k++, first += step) {
        const chunk<DTYPE> c = load_chunk<DTYPE>(m.source, first);
        const uint2 codes = encode<DTYPE, true>(c, scale, 0.0f);
        *reinterpret_cast<uint2 *>(m.codes + first) = codes;
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            const float value = value_in_chunk(c, i);
            sum.add(value, __fdiv_rn(value, scale), (i < 4 ? codes.x : codes.y) >> (8 * (i % 4)));
        }
    }
    return sum;
}

template <fq_dtype DTYPE>
static __device__ __noinline__ void count_nonfinite(const matrix &m, uint64_t first, uint64_t step,
                                                    int n) {
    nonfinite_tally found = {};
#pragma unroll 1
    for (int k = 0; k < n; k++, first += step) {
        const chunk<DTYPE> c = load_chunk<DTYPE>(m.source, first);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            if (is_nonfinite<DTYPE>(bits_in_chunk(c, i)))
                found.add(first + i);
        }
    }
    found.publish(m.counts);
}

// Quantizes the strip by its block's scale; r is the strip's own range.
template <fq_dtype DTYPE, int N, bool DIVIDE>
static __device__ __forceinline__ tally quantize_strip(const matrix &m, const strip<DTYPE, N> &s,
                                                       const range<DTYPE> &r, float amax,
                                                       float scale) {
    // Only a subnormal scale is so coarse that elements are over 464 of it.
    if (DIVIDE ? scale < FLT_MIN : !has_quotient<DTYPE>(amax, scale, m))
        return encode_and_count<DTYPE>(m, s.first, s.step, s.n, scale);
    // What becomes zero lies under 2^-10 scales, or a little more.
    const float least = value_of_bits<DTYPE>(least_bits(r));
    const bool may_be_zeros = least <= __fmul_rn(scale, 0x1p-9f);
    return {0, encode_strip<DTYPE, N, DIVIDE>(m, s, scale, may_be_zeros)};
}

// ---- 128×128

static constexpr int BLOCK_CHUNKS = 128 / ROWS_AT_ONCE;

// The greatest of the values that all threads hold.
static __device__ __forceinline__ uint32_t max_of_threads(uint32_t value) {
    __shared__ uint32_t of_warp[TILE_THREADS / 32];
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE_THREADS / 32; i++)
        value = max(value, of_warp[i]);
    return value;
}

// The strip of a thread in block [i, blockIdx.x]: a chunk in every ROWS_AT_ONCE-th row.
template <fq_dtype DTYPE>
static __device__ __forceinline__ void place_in_block(strip<DTYPE, BLOCK_CHUNKS> &s,
                                                      const matrix &m, uint64_t i) {
    const uint64_t row = i * 128, col = (uint64_t)blockIdx.x * TILE_COLS;
    const int rows = (int)min(m.rows - row, (uint64_t)128);
    const int r = threadIdx.x / CHUNKS_IN_ROW, c = threadIdx.x % CHUNKS_IN_ROW * CHUNK;
    s.first = (row + r) * m.cols + col + c;
    s.step = ROWS_AT_ONCE * m.cols;
    s.n = col + c < m.cols ? (rows - r + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE : 0;
}

template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ void quantize_block(const matrix &m, uint64_t i) {
    strip<DTYPE, BLOCK_CHUNKS> s;
    place_in_block(s, m, i);
    s.load(m);
    range<DTYPE> r = empty_range<DTYPE>();
#pragma unroll
    for (int k = 0; k < BLOCK_CHUNKS; k++)
        widen(r, s.chunks[k]);
    const uint32_t greatest = max_of_threads(greatest_bits(r));
    if (is_nonfinite<DTYPE>(greatest)) {
        count_nonfinite<DTYPE>(m, s.first, s.step, s.n);
        return;
    }
    const float amax = value_of_bits<DTYPE>(greatest);
    const float scale = scale_of_amax(amax, m);
    const tally sum = quantize_strip<DTYPE, BLOCK_CHUNKS, DIVIDE>(m, s, r, amax, scale);
    if (threadIdx.x == 0) {
        m.scales[i * m.n_cols + blockIdx.x] = scale;
        count_block(m, amax);
    }
    sum.publish(m.counts);
}

template <fq_dtype DTYPE, bool DIVIDE>
static __global__ void __launch_bounds__(TILE_THREADS)
    quantize_blocks(const __grid_constant__ matrix m) {
    for (uint64_t i = blockIdx.y; i < m.n_rows; i += gridDim.y) {
        quantize_block<DTYPE, DIVIDE>(m, i);
        __syncthreads(); // before max_of_threads writes again
    }
}

// ---- 1×128

// Four threads take a row of a tile, four chunks each: enough elements for what is worked out once
// for each thread, and still whole sectors in every access of a row.
static constexpr int ROW_THREADS = 4, ROW_CHUNKS = CHUNKS_IN_ROW / ROW_THREADS;
static constexpr int TILE_ROWS = TILE_THREADS / ROW_THREADS;

// The greatest of the values that the threads of a row hold.
static __device__ __forceinline__ uint32_t max_of_row(uint32_t value) {
#pragma unroll
    for (int step = ROW_THREADS / 2; step > 0; step /= 2)
        value = max(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

// The strip of a thread in row `row` and the tiles' column blockIdx.x; empty beyond the last row.
template <fq_dtype DTYPE>
static __device__ __forceinline__ void place_in_row(strip<DTYPE, ROW_CHUNKS> &s, const matrix &m,
                                                    uint64_t row) {
    const uint64_t col = (uint64_t)blockIdx.x * TILE_COLS;
    const int chunks = (int)min((m.cols - col) / CHUNK, (uint64_t)CHUNKS_IN_ROW);
    const int c = threadIdx.x % ROW_THREADS;
    s.first = row * m.cols + col + c * CHUNK;
    s.step = ROW_THREADS * CHUNK;
    s.n = row < m.rows ? (chunks - c + ROW_THREADS - 1) / ROW_THREADS : 0;
}

template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ tally quantize_row(const matrix &m, uint64_t row) {
    strip<DTYPE, ROW_CHUNKS> s;
    place_in_row(s, m, row);
    s.load(m);
    range<DTYPE> r = empty_range<DTYPE>();
#pragma unroll
    for (int k = 0; k < ROW_CHUNKS; k++)
        widen(r, s.chunks[k]);
    const uint32_t greatest = max_of_row(greatest_bits(r));
    if (is_nonfinite<DTYPE>(greatest)) {
        count_nonfinite<DTYPE>(m, s.first, s.step, s.n);
        return {0, 0};
    }
    const float amax = value_of_bits<DTYPE>(greatest);
    const float scale = scale_of_amax(amax, m);
    if (threadIdx.x % ROW_THREADS == 0 && row < m.rows) {
        m.scales[row * m.n_cols + blockIdx.x] = scale;
        count_block(m, amax);
    }
    return quantize_strip<DTYPE, ROW_CHUNKS, DIVIDE>(m, s, r, amax, scale);
}

template <fq_dtype DTYPE, bool DIVIDE>
static __global__ void __launch_bounds__(TILE_THREADS)
    quantize_rows(const __grid_constant__ matrix m) {
    for (uint64_t i = blockIdx.y; i * TILE_ROWS < m.rows; i += gridDim.y) {
        const tally sum = quantize_row<DTYPE, DIVIDE>(m, i * TILE_ROWS + threadIdx.x / ROW_THREADS);
        __syncwarp();
        sum.publish(m.counts);
    }
}

// ---- Launching

static bool fits_tiles(const fq_quantize_job *job) {
    return (job->block.rows == 128 || job->block.rows == 1) && job->block.cols == TILE_COLS &&
           job->cols % CHUNK == 0 && is_aligned(job->source, sizeof(uint4)) &&
           is_aligned(job->codes, sizeof(uint2));
}

template <fq_dtype DTYPE, bool DIVIDE>
static unsigned launch(const matrix &m, cudaStream_t stream) {
    const bool rows = m.block.rows == 1;
    const dim3 grid = grid_of_tiles(m.n_cols, fq_ceil_div(m.rows, rows ? TILE_ROWS : 128));
    return start(rows ? quantize_rows<DTYPE, DIVIDE> : quantize_blocks<DTYPE, DIVIDE>, grid,
                 TILE_THREADS, stream, m);
}

unsigned fq_cuda_load(void) {
    cudaFuncAttributes ignored;
    return cudaFuncGetAttributes(&ignored,
                                 reinterpret_cast<const void *>(quantize_blocks<FQ_BF16, false>));
}

unsigned fq_cuda_quantize(const fq_quantize_job *job, fq_cuda_quantize_counts *counts,
                          cudaStream_t stream) {
    matrix m;
    m.source = job->source;
    m.codes = job->codes;
    m.scales = job->scales;
    m.counts = counts;
    m.rows = job->rows;
    m.cols = job->cols;
    m.block = job->block;
    m.n_rows = fq_ceil_div(job->rows, job->block.rows);
    m.n_cols = fq_ceil_div(job->cols, job->block.cols);
    m.amax_floor = job->amax_floor;
    m.pow2 = job->pow2_scales;
    if (!fits_tiles(job))
        return quantize_any(job->source_dtype, m, stream);
    if (job->source_dtype == FQ_BF16)
        return launch<FQ_BF16, false>(m, stream);
    if (job->source_dtype == FQ_F16)
        return launch<FQ_F16, false>(m, stream);
    return m.pow2 ? launch<FQ_F32, false>(m, stream) : launch<FQ_F32, true>(m, stream);
}
