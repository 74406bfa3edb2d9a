// Quantizes on the GPU: blocks of 128×128 and 1×128 in one pass over memory.
//
// The threads of a thread block hold a tile of the matrix in their registers: all of it is asked
// for at once, then amax, scales and codes are worked out without going back to memory. What is
// rare (NaN, scales that are divided by) is left to small loops that read once more: the path of
// all others has to be short, or the instructions take longer than the memory.
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/start.cuh"

// The rows of a tile, and the chunks that a thread has of it: one in every ROWS_AT_ONCE-th row.
static constexpr int TILE_ROWS = 128, STRIP = TILE_ROWS / ROWS_AT_ONCE;

template <fq_dtype DTYPE> struct strip {
    uint64_t row, first, step; // of the matrix: the first chunk's row and element, elements between
    int n;                     // chunks that lie inside of the matrix; the others are zeros
    chunk<DTYPE> chunks[STRIP];

    // In the tile [i, blockIdx.x].
    __device__ __forceinline__ void load(const matrix &m, uint64_t i) {
        const uint64_t tile_row = i * TILE_ROWS, tile_col = (uint64_t)blockIdx.x * TILE_COLS;
        const int rows = (int)min(m.rows - tile_row, (uint64_t)TILE_ROWS);
        const int r = threadIdx.x / tile<DTYPE>::ROW_THREADS;
        const int c = threadIdx.x % tile<DTYPE>::ROW_THREADS * tile<DTYPE>::CHUNK;
        row = tile_row + r;
        first = row * m.cols + tile_col + c;
        step = ROWS_AT_ONCE * m.cols;
        n = tile_col + c < m.cols ? (rows - r + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE : 0;
#pragma unroll
        for (int k = 0; k < STRIP; k++) {
            chunks[k] = {};
            if (k < n)
                chunks[k] = load_chunk<DTYPE>(m.source, first + k * step);
        }
    }
};

// DIVIDE: by IEEE's division; else by quotient().
template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ chunk_codes<DTYPE> encode(const chunk<DTYPE> &c, float scale,
                                                            float reciprocal) {
    float q[tile<DTYPE>::CHUNK];
#pragma unroll
    for (int k = 0; k < tile<DTYPE>::CHUNK; k++) {
        const float value = value_in_chunk(c, k);
        q[k] = DIVIDE ? __fdiv_rn(value, scale) : quotient(value, scale, reciprocal);
    }
    chunk_codes<DTYPE> out;
#pragma unroll
    for (int i = 0; i < out.N_WORDS; i++)
        out.words[i] = e4m3x4_of_f32(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]);
    return out;
}

// The codes of a chunk under a scale that nothing is saturated by. Returns how many elements were
// flushed to zero; they are only looked for if there may_be_zeros.
template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ uint32_t encode_chunk(uint8_t *out, const chunk<DTYPE> &c,
                                                        float scale, float reciprocal,
                                                        bool may_be_zeros) {
    const chunk_codes<DTYPE> codes = encode<DTYPE, DIVIDE>(c, scale, reciprocal);
    store_codes(out, codes);
    return may_be_zeros ? count_zeros(codes) - count_zeros(c) : 0;
}

// False if an element of that magnitude, or a greater one, is sure not to become zero: what does
// lies under 2^-10 scales, or a little more.
static __device__ __forceinline__ bool may_become_zero(float magnitude, float scale) {
    return magnitude <= __fmul_rn(scale, 0x1p-9f);
}

// True if the elements of a block may be encoded by the short path. Only a subnormal scale is so
// coarse that elements are over 464 of it.
template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ bool is_plain(float amax, float scale, const matrix &m) {
    return DIVIDE ? scale >= FLT_MIN : has_quotient<DTYPE>(amax, scale, m);
}

// ---- What is rare

// The codes of n chunks under any scale, and what is counted.
template <fq_dtype DTYPE>
static __device__ __noinline__ tally encode_and_count(const matrix &m, uint64_t first,
                                                      uint64_t step, int n, float scale) {
    tally sum = {};
#pragma unroll 1
    for (int k = 0; k < n; k++, first += step) {
        const chunk<DTYPE> c = load_chunk<DTYPE>(m.source, first);
        const chunk_codes<DTYPE> codes = encode<DTYPE, true>(c, scale, 0.0f);
        store_codes(m.codes + first, codes);
#pragma unroll
        for (int i = 0; i < tile<DTYPE>::CHUNK; i++) {
            const float value = value_in_chunk(c, i);
            sum.add(value, __fdiv_rn(value, scale), codes.at(i));
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
        for (int i = 0; i < tile<DTYPE>::CHUNK; i++) {
            if (is_nonfinite<DTYPE>(bits_in_chunk(c, i)))
                found.add(first + i);
        }
    }
    found.publish(m.counts);
}

// ---- 128×128

// The greatest of the values that all threads hold.
template <int THREADS> static __device__ __forceinline__ uint32_t max_of_threads(uint32_t value) {
    __shared__ uint32_t of_warp[THREADS / 32];
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREADS / 32; i++)
        value = max(value, of_warp[i]);
    return value;
}

// The codes of a strip by its block's scale.
template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ tally encode_strip(const matrix &m, const strip<DTYPE> &s,
                                                     float least, float amax, float scale) {
    if (!is_plain<DTYPE, DIVIDE>(amax, scale, m))
        return encode_and_count<DTYPE>(m, s.first, s.step, s.n, scale);
    const float reciprocal = DIVIDE ? 0.0f : __frcp_rn(scale);
    const bool may_be_zeros = may_become_zero(least, scale);
    uint32_t n_flushed = 0;
#pragma unroll
    for (int k = 0; k < STRIP; k++) {
        if (k < s.n)
            n_flushed += encode_chunk<DTYPE, DIVIDE>(m.codes + s.first + k * s.step, s.chunks[k],
                                                     scale, reciprocal, may_be_zeros);
    }
    return {0, n_flushed};
}

template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ void quantize_block(const matrix &m, uint64_t i) {
    strip<DTYPE> s;
    s.load(m, i);
    range<DTYPE> r = empty_range<DTYPE>();
#pragma unroll
    for (int k = 0; k < STRIP; k++)
        widen(r, s.chunks[k]);
    const uint32_t greatest = max_of_threads<tile<DTYPE>::THREADS>(greatest_bits(r));
    if (is_nonfinite<DTYPE>(greatest)) {
        count_nonfinite<DTYPE>(m, s.first, s.step, s.n);
        return;
    }
    const float amax = value_of_bits<DTYPE>(greatest);
    const float scale = scale_of_amax(amax, m);
    const float least = value_of_bits<DTYPE>(least_bits(r));
    const tally sum = encode_strip<DTYPE, DIVIDE>(m, s, least, amax, scale);
    if (threadIdx.x == 0) {
        m.scales[i * m.n_cols + blockIdx.x] = scale;
        count_block(m, amax);
    }
    sum.publish(m.counts);
}

template <fq_dtype DTYPE, bool DIVIDE>
static __global__ void __launch_bounds__(tile<DTYPE>::THREADS)
    quantize_blocks(const __grid_constant__ matrix m) {
    for (uint64_t i = blockIdx.y; i * TILE_ROWS < m.rows; i += gridDim.y) {
        quantize_block<DTYPE, DIVIDE>(m, i);
        __syncthreads(); // before max_of_threads writes again
    }
}

// ---- 1×128

// A tile as above, but that each row of it has a scale of its own. The threads that share rows, a
// group of 16 or 32, share the work on their scales as well: each has the scale of one row.
template <fq_dtype DTYPE> struct group {
    static constexpr int SIZE = tile<DTYPE>::ROW_THREADS;
    static constexpr int OWNERS = SIZE / STRIP; // threads that have the same row

    // The strip's row that this thread has.
    static __device__ __forceinline__ int row() { return threadIdx.x % SIZE / OWNERS; }

    // What the thread that has row k holds.
    static __device__ __forceinline__ float from_row(float value, int k) {
        return __shfl_sync(~0u, value, k * OWNERS, SIZE);
    }
};

// values: of a thread, one for each row. Returns the greatest that the group holds of this thread's
// row. At each step, threads in pairs share out the rows that both still have.
template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t max_of_row(uint32_t values[STRIP]) {
    int step = group<DTYPE>::SIZE / 2;
#pragma unroll
    for (int n = STRIP / 2; n > 0; n /= 2, step /= 2) {
        const bool upper = threadIdx.x & step;
#pragma unroll
        for (int k = 0; k < n; k++) {
            const uint32_t kept = upper ? values[k + n] : values[k];
            const uint32_t given = upper ? values[k] : values[k + n];
            values[k] = max(kept, __shfl_xor_sync(~0u, given, step));
        }
    }
#pragma unroll
    for (; step > 0; step /= 2)
        values[0] = max(values[0], __shfl_xor_sync(~0u, values[0], step));
    return values[0];
}

// The scale of this thread's row, which the first of its owners writes down: NaN for a row with an
// element that is not finite. *reciprocal: 0 where the row is none for the short path.
template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ float scale_of_row(float *reciprocal, const matrix &m,
                                                     uint64_t first_row, uint32_t greatest) {
    const uint64_t row = first_row + group<DTYPE>::row() * ROWS_AT_ONCE;
    const bool finite = !is_nonfinite<DTYPE>(greatest);
    const float amax = value_of_bits<DTYPE>(greatest);
    const float scale = finite ? scale_of_amax(amax, m) : __uint_as_float(0x7FC00000u);
    const bool plain = finite && is_plain<DTYPE, DIVIDE>(amax, scale, m);
    *reciprocal = !plain ? 0.0f : DIVIDE ? 1.0f : __frcp_rn(scale);
    if (threadIdx.x % group<DTYPE>::OWNERS == 0 && row < m.rows) {
        m.scales[row * m.n_cols + blockIdx.x] = scale;
        if (finite)
            count_block(m, amax);
    }
    return scale;
}

// The chunks of rows that are not for the short path, bit k of which for chunk k.
template <fq_dtype DTYPE>
static __device__ __noinline__ tally quantize_rare_rows(const matrix &m, uint64_t row,
                                                        uint64_t first, uint64_t step,
                                                        uint32_t which) {
    tally sum = {};
#pragma unroll 1
    for (; which != 0; which &= which - 1) {
        const uint32_t k = __ffs(which) - 1;
        const float scale = m.scales[(row + k * ROWS_AT_ONCE) * m.n_cols + blockIdx.x];
        if (isnan(scale)) {
            count_nonfinite<DTYPE>(m, first + k * step, 0, 1);
            continue;
        }
        const tally more = encode_and_count<DTYPE>(m, first + k * step, 0, 1, scale);
        sum.saturated += more.saturated;
        sum.flushed_to_zero += more.flushed_to_zero;
    }
    return sum;
}

template <fq_dtype DTYPE, bool DIVIDE>
static __device__ __forceinline__ tally quantize_row_tile(const matrix &m, uint64_t i) {
    strip<DTYPE> s;
    uint32_t greatest[STRIP];
    s.load(m, i);
#pragma unroll
    for (int k = 0; k < STRIP; k++)
        greatest[k] = greatest_bits(range_of(s.chunks[k]));
    float own_reciprocal;
    const float own_scale =
        scale_of_row<DTYPE, DIVIDE>(&own_reciprocal, m, s.row, max_of_row<DTYPE>(greatest));
    uint32_t n_flushed = 0, rare = 0;
#pragma unroll
    for (int k = 0; k < STRIP; k++) {
        const float scale = group<DTYPE>::from_row(own_scale, k);
        const float reciprocal = group<DTYPE>::from_row(own_reciprocal, k);
        if (k >= s.n)
            continue;
        if (reciprocal == 0.0f)
            rare |= 1u << k;
        else
            n_flushed += encode_chunk<DTYPE, DIVIDE>(
                m.codes + s.first + k * s.step, s.chunks[k], scale, reciprocal,
                may_become_zero(value_of_bits<DTYPE>(least_bits(range_of(s.chunks[k]))), scale));
    }
    __syncwarp(); // the scales are written
    tally sum = {};
    if (rare != 0)
        sum = quantize_rare_rows<DTYPE>(m, s.row, s.first, s.step, rare);
    sum.flushed_to_zero += n_flushed;
    return sum;
}

template <fq_dtype DTYPE, bool DIVIDE>
static __global__ void __launch_bounds__(tile<DTYPE>::THREADS, 1024 / tile<DTYPE>::THREADS)
    quantize_rows(const __grid_constant__ matrix m) {
    for (uint64_t i = blockIdx.y; i * TILE_ROWS < m.rows; i += gridDim.y) {
        const tally sum = quantize_row_tile<DTYPE, DIVIDE>(m, i);
        __syncwarp();
        sum.publish(m.counts);
    }
}

// ---- Launching

static bool fits_tiles(const fq_quantize_job *job) {
    const uint64_t chunk = job->source_dtype == FQ_F32 ? tile<FQ_F32>::CHUNK : tile<FQ_BF16>::CHUNK;
    return (job->block.rows == 128 || job->block.rows == 1) && job->block.cols == TILE_COLS &&
           job->cols % chunk == 0 && is_aligned(job->source, 16) && is_aligned(job->codes, chunk);
}

template <fq_dtype DTYPE, bool DIVIDE>
static unsigned launch(const matrix &m, cudaStream_t stream) {
    const dim3 grid = grid_of_tiles(m.n_cols, fq_ceil_div(m.rows, TILE_ROWS));
    return start(m.block.rows == 1 ? quantize_rows<DTYPE, DIVIDE> : quantize_blocks<DTYPE, DIVIDE>,
                 grid, tile<DTYPE>::THREADS, stream, m);
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
