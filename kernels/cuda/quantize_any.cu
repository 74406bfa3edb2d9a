// Quantizes on the GPU in blocks of any shape, and rows of any alignment: element by element, twice
// over memory.
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/start.cuh"

static constexpr uint32_t SMALL_BLOCK = 2048; // elements, for which a warp is enough
static constexpr uint32_t SMALL_THREADS = 32, LARGE_THREADS = 256;
static constexpr uint32_t MAX_GRID = 1 << 20;

// One block of the matrix.
struct window {
    uint64_t row, col;
    uint64_t cols, n; // columns, elements
};

static __device__ window window_of(const matrix &m, uint64_t b) {
    window w;
    w.row = b / m.n_cols * m.block.rows;
    w.col = b % m.n_cols * m.block.cols;
    w.cols = min(m.block.cols, m.cols - w.col);
    w.n = w.cols * min(m.block.rows, m.rows - w.row);
    return w;
}

// The number in the matrix of element i of a block.
static __device__ __forceinline__ uint64_t place(const matrix &m, const window &w, uint64_t i) {
    return (w.row + i / w.cols) * m.cols + w.col + i % w.cols;
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t bits_at(const matrix &m, uint64_t i) {
    if (DTYPE == FQ_F32)
        return static_cast<const uint32_t *>(m.source)[i];
    return static_cast<const uint16_t *>(m.source)[i];
}

// The greatest of the values that all threads hold.
static __device__ uint32_t max_of_threads(uint32_t value) {
    __shared__ uint32_t of_warp[LARGE_THREADS / 32];
    value = __reduce_max_sync(~0u, value);
    __syncthreads(); // of_warp may still be read from the last time
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        value = max(value, of_warp[i]);
    return value;
}

template <fq_dtype DTYPE> static __device__ void count_nonfinite(const matrix &m, const window &w) {
    nonfinite_tally found = {};
    for (uint64_t i = threadIdx.x; i < w.n; i += blockDim.x) {
        const uint64_t at = place(m, w, i);
        if (is_nonfinite<DTYPE>(bits_at<DTYPE>(m, at)))
            found.add(at);
    }
    found.publish(m.counts);
}

template <fq_dtype DTYPE>
static __device__ void encode(const matrix &m, const window &w, float scale) {
    tally sum = {};
    for (uint64_t i = threadIdx.x; i < w.n; i += blockDim.x) {
        const uint64_t at = place(m, w, i);
        const float value = value_of_bits<DTYPE>(bits_at<DTYPE>(m, at));
        const float q = __fdiv_rn(value, scale);
        const uint32_t code = e4m3x4_of_f32(q, 0.0f, 0.0f, 0.0f) & 0xFFu;
        m.codes[at] = (uint8_t)code;
        sum.add(value, q, code);
    }
    __syncwarp();
    sum.publish(m.counts);
}

template <fq_dtype DTYPE> static __device__ void quantize_block(const matrix &m, uint64_t b) {
    const window w = window_of(m, b);
    uint32_t greatest = 0;
    for (uint64_t i = threadIdx.x; i < w.n; i += blockDim.x)
        greatest = max(greatest, magnitude<DTYPE>(bits_at<DTYPE>(m, place(m, w, i))));
    greatest = max_of_threads(greatest);
    if (is_nonfinite<DTYPE>(greatest)) {
        count_nonfinite<DTYPE>(m, w);
        return;
    }
    const float amax = value_of_bits<DTYPE>(greatest);
    const float scale = scale_of_amax(amax, m);
    if (threadIdx.x == 0) {
        m.scales[b] = scale;
        count_block(m, amax);
    }
    encode<DTYPE>(m, w, scale);
}

template <fq_dtype DTYPE>
static __global__ void __launch_bounds__(LARGE_THREADS)
    quantize_matrix(const __grid_constant__ matrix m) {
    for (uint64_t b = blockIdx.x; b < m.n_rows * m.n_cols; b += gridDim.x)
        quantize_block<DTYPE>(m, b);
}

unsigned quantize_any(fq_dtype dtype, const matrix &m, cudaStream_t stream) {
    const uint64_t rows = m.block.rows < m.rows ? m.block.rows : m.rows;
    const uint64_t cols = m.block.cols < m.cols ? m.block.cols : m.cols;
    const uint64_t n_blocks = m.n_rows * m.n_cols;
    const uint32_t n_threads = rows * cols <= SMALL_BLOCK ? SMALL_THREADS : LARGE_THREADS;
    const uint32_t grid = n_blocks < MAX_GRID ? (uint32_t)n_blocks : MAX_GRID;
    return start(dtype == FQ_F32   ? quantize_matrix<FQ_F32>
                 : dtype == FQ_F16 ? quantize_matrix<FQ_F16>
                                   : quantize_matrix<FQ_BF16>,
                 grid, n_threads, stream, m);
}
