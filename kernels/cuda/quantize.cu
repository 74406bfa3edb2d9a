// Quantizes on the GPU: blocks of 128×128 and 1×128 in one pass over memory.
//
// A thread block holds a tile of the matrix in its registers: all of it is asked for at once, then
// amax, scales and codes are worked out without going back to memory.
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/start.cuh"

// What a kernel is told. cols is a multiple of CHUNK.
struct tiles {
    const void *source;
    uint8_t *codes;
    float *scales;
    fq_cuda_quantize_counts *counts;
    uint64_t rows, cols;
    uint32_t n_cols; // tiles side by side
    scaling how;
};

// A thread's chunks of a tile: one in every ROWS_AT_ONCE-th row.
template <fq_dtype DTYPE, int N> struct part {
    uint64_t row, col; // of the first chunk
    int n;             // chunks that lie inside of the matrix; the others are zeros
    chunk<DTYPE> chunks[N];

    // The number in the matrix of the first element of chunk k.
    __device__ __forceinline__ uint64_t first(const tiles &t, int k) const {
        return (row + k * ROWS_AT_ONCE) * t.cols + col;
    }
};

template <fq_dtype DTYPE, int N>
static __device__ __forceinline__ void load_part(part<DTYPE, N> &out, const tiles &t) {
    const uint32_t i = blockIdx.x / t.n_cols, j = blockIdx.x % t.n_cols;
    out.row = (uint64_t)i * (N * ROWS_AT_ONCE) + threadIdx.x / CHUNKS_IN_ROW;
    out.col = (uint64_t)j * TILE_COLS + threadIdx.x % CHUNKS_IN_ROW * CHUNK;
    const uint64_t rows = out.row < t.rows && out.col < t.cols ? t.rows - out.row : 0;
    out.n = (int)min((rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, (uint64_t)N);
#pragma unroll
    for (int k = 0; k < N; k++) {
        out.chunks[k] = {};
        if (k < out.n)
            out.chunks[k] = load_chunk<DTYPE>(t.source, out.first(t, k));
    }
}

// The codes of a chunk.
template <fq_dtype DTYPE, bool SHORT_CUT>
static __device__ __forceinline__ uint2 encode(const chunk<DTYPE> &c, const divisor &by) {
    float q[CHUNK];
#pragma unroll
    for (int k = 0; k < CHUNK; k++)
        q[k] = quotient<SHORT_CUT>(value_in_chunk(c, k), by);
    return make_uint2(e4m3x4_of_f32(q[0], q[1], q[2], q[3]), e4m3x4_of_f32(q[4], q[5], q[6], q[7]));
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ void count_chunk(tally &sum, const chunk<DTYPE> &c, uint2 codes,
                                                   const divisor &by) {
#pragma unroll
    for (int k = 0; k < CHUNK; k++)
        count_element(sum, value_in_chunk(c, k), (k < 4 ? codes.x : codes.y) >> (8 * (k % 4)), by);
}

// Writes the codes of a chunk. counts: they may be of those that are counted.
template <fq_dtype DTYPE>
static __device__ __forceinline__ void
encode_chunk(tally &sum, uint8_t *codes, const chunk<DTYPE> &c, const divisor &by, bool counts) {
    const uint2 packed = by.short_cut ? encode<DTYPE, true>(c, by) : encode<DTYPE, false>(c, by);
    __stcs(reinterpret_cast<uint2 *>(codes), packed);
    if (counts)
        count_chunk(sum, c, packed, by);
}

template <fq_dtype DTYPE, int N>
static __device__ void count_nonfinite(const tiles &t, const part<DTYPE, N> &p) {
    nonfinite_tally found = {};
#pragma unroll
    for (int k = 0; k < N; k++) {
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            if (is_nonfinite<DTYPE>(bits_in_chunk(p.chunks[k], i)))
                found.add(p.first(t, k) + i);
        }
    }
    found.publish(t.counts);
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

template <fq_dtype DTYPE>
static __global__ void __launch_bounds__(TILE_THREADS) quantize_blocks(const tiles t) {
    part<DTYPE, BLOCK_CHUNKS> p;
    load_part(p, t);
    range<DTYPE> r = empty_range<DTYPE>();
#pragma unroll
    for (int k = 0; k < BLOCK_CHUNKS; k++)
        widen(r, p.chunks[k]);
    const uint32_t greatest = max_of_threads(greatest_bits(r));
    if (is_nonfinite<DTYPE>(greatest)) {
        count_nonfinite(t, p);
        return;
    }
    const float amax = value_of_bits<DTYPE>(greatest);
    const divisor by = divisor_of<DTYPE>(amax, t.how);
    if (threadIdx.x == 0) {
        t.scales[blockIdx.x] = by.scale;
        count_block(t.counts, amax, t.how);
    }
    const bool counts = may_count(value_of_bits<DTYPE>(least_bits(r)), amax, by);
    tally sum = {};
#pragma unroll
    for (int k = 0; k < BLOCK_CHUNKS; k++) {
        if (k < p.n)
            encode_chunk(sum, t.codes + p.first(t, k), p.chunks[k], by, counts);
    }
    sum.publish(t.counts);
}

// ---- 1×128

// Lower tiles, so that a matrix of few rows, as activations are, is spread over many of them.
static constexpr int ROW_CHUNKS = 2;

// The greatest of the values that the threads of a row hold.
static __device__ __forceinline__ uint32_t max_of_row(uint32_t value) {
#pragma unroll
    for (int step = CHUNKS_IN_ROW / 2; step > 0; step /= 2)
        value = max(value, __shfl_xor_sync(~0u, value, step));
    return value;
}

// Chunk k, with those of the threads beside it, which are the block. False if that is not finite.
template <fq_dtype DTYPE>
static __device__ __forceinline__ bool quantize_row(tally &sum, const tiles &t,
                                                    const part<DTYPE, ROW_CHUNKS> &p, int k) {
    range<DTYPE> r = empty_range<DTYPE>();
    widen(r, p.chunks[k]);
    const uint32_t greatest = max_of_row(greatest_bits(r));
    if (is_nonfinite<DTYPE>(greatest))
        return false;
    if (k >= p.n)
        return true;
    const float amax = value_of_bits<DTYPE>(greatest);
    const divisor by = divisor_of<DTYPE>(amax, t.how);
    if (threadIdx.x % CHUNKS_IN_ROW == 0) {
        t.scales[(p.row + k * ROWS_AT_ONCE) * t.n_cols + p.col / TILE_COLS] = by.scale;
        count_block(t.counts, amax, t.how);
    }
    const bool counts = may_count(value_of_bits<DTYPE>(least_bits(r)), amax, by);
    encode_chunk(sum, t.codes + p.first(t, k), p.chunks[k], by, counts);
    return true;
}

template <fq_dtype DTYPE>
static __global__ void __launch_bounds__(TILE_THREADS) quantize_rows(const tiles t) {
    part<DTYPE, ROW_CHUNKS> p;
    load_part(p, t);
    tally sum = {};
    bool finite = true;
#pragma unroll
    for (int k = 0; k < ROW_CHUNKS; k++)
        finite &= quantize_row(sum, t, p, k);
    if (!finite)
        count_nonfinite(t, p);
    __syncwarp();
    sum.publish(t.counts);
}

// ---- Launching

static bool fits_tiles(const fq_quantize_job *job) {
    return (job->block.rows == 128 || job->block.rows == 1) && job->block.cols == TILE_COLS &&
           job->cols % CHUNK == 0 && is_aligned(job->source, sizeof(uint4)) &&
           is_aligned(job->codes, sizeof(uint2));
}

template <fq_dtype DTYPE>
static int launch(const tiles &t, bool rows, uint64_t n_tiles, cudaStream_t stream) {
    return start(rows ? quantize_rows<DTYPE> : quantize_blocks<DTYPE>, (uint32_t)n_tiles,
                 TILE_THREADS, stream, t);
}

int fq_cuda_load(void) {
    cudaFuncAttributes ignored;
    return cudaFuncGetAttributes(&ignored,
                                 reinterpret_cast<const void *>(quantize_blocks<FQ_BF16>));
}

int fq_cuda_quantize(const fq_quantize_job *job, fq_cuda_quantize_counts *counts,
                     cudaStream_t stream) {
    if (!fits_tiles(job))
        return quantize_any(job, counts, stream);
    const bool rows = job->block.rows == 1;
    const uint64_t tile_rows = (rows ? ROW_CHUNKS : BLOCK_CHUNKS) * ROWS_AT_ONCE;
    const uint64_t n_cols = fq_ceil_div(job->cols, TILE_COLS);
    const uint64_t n_tiles = fq_ceil_div(job->rows, tile_rows) * n_cols;
    if (n_tiles > INT32_MAX) // more than any GPU's memory holds
        return cudaErrorInvalidValue;
    const tiles t = {
        job->source, job->codes, job->scales,      counts,
        job->rows,   job->cols,  (uint32_t)n_cols, {job->amax_floor, job->pow2_scales},
    };
    if (job->source_dtype == FQ_F32)
        return launch<FQ_F32>(t, rows, n_tiles, stream);
    return job->source_dtype == FQ_F16 ? launch<FQ_F16>(t, rows, n_tiles, stream)
                                       : launch<FQ_BF16>(t, rows, n_tiles, stream);
}
