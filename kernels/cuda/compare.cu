// Holds stored codes against their weights on the GPU: see lib/checker.h.
//
// Half a warp has a block, and each of its threads one of the 16 sums, which are added to in an
// order that is prescribed: so a thread has every 16th column, through all rows. Whatever the block
// and the alignment, each element is read once. What is out of the ordinary in a thread's piece of
// a row is looked at once more, element by element.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/start.cuh"

static constexpr int LANES = FQ_COMPARE_LANES;
static constexpr int PIECE = 8; // elements of a row that a thread takes at once
static constexpr int PIECE_COLS = PIECE * LANES;
static constexpr uint32_t THREADS = 64;    // few, so that few blocks still reach all of the GPU
static constexpr uint32_t MAX_GRID = 4096; // more than a GPU has room for at a time

// What a kernel is told.
struct matrix {
    const void *source;
    const uint8_t *codes;
    const float *scales;
    fq_block_errors *errors;
    fq_cuda_compare_counts *counts;
    uint64_t rows, cols;
    fq_block block;
    uint64_t n_blocks, n_cols; // all of them; side by side
    float slack;
};

// ---- Counting

static __device__ __forceinline__ unsigned long long *as_counter(uint64_t *count) {
    return reinterpret_cast<unsigned long long *>(count);
}

// What a thread has found of a kind.
struct finding {
    uint64_t n, first; // as in fq_cuda_finding

    __device__ __forceinline__ void add(uint64_t element) {
        n++;
        first = max(first, ~element);
    }

    __device__ __forceinline__ void publish(fq_cuda_finding *out) const {
        if (n == 0)
            return;
        atomicAdd(as_counter(&out->n), n);
        atomicMax(as_counter(&out->first), first);
    }
};

// What a thread has counted. It is seldom needed, and so lies in local memory.
struct tally {
    uint64_t saturated, flushed_to_zero;
    finding nan_codes, codes_differ, out_of_bound, nonfinite;

    __device__ void publish(fq_cuda_compare_counts *counts) const {
        if (saturated > 0)
            atomicAdd(as_counter(&counts->saturated), saturated);
        if (flushed_to_zero > 0)
            atomicAdd(as_counter(&counts->flushed_to_zero), flushed_to_zero);
        nan_codes.publish(&counts->nan_codes);
        codes_differ.publish(&counts->codes_differ);
        out_of_bound.publish(&counts->out_of_bound);
        nonfinite.publish(&counts->nonfinite);
    }
};

// ---- Errors

// A thread's share of a block's errors.
struct sums {
    double error2, weight2;
    float amax, max_abs;

    // The squares are exact: each sum is rounded once.
    __device__ __forceinline__ void add(float weight, float error) {
        const double w = (double)weight, e = (double)error;
        weight2 = __fma_rn(w, w, weight2);
        error2 = __fma_rn(e, e, error2);
        max_abs = fmaxf(max_abs, fabsf(error));
    }
};

// By the 16 threads of a block together, in the order of checker.h; the first of them has the
// result.
static __device__ __forceinline__ sums sum_of_threads(sums s) {
#pragma unroll
    for (int n = LANES / 2; n > 0; n /= 2) {
        s.error2 = __dadd_rn(s.error2, __shfl_down_sync(~0u, s.error2, n, LANES));
        s.weight2 = __dadd_rn(s.weight2, __shfl_down_sync(~0u, s.weight2, n, LANES));
        s.amax = fmaxf(s.amax, __shfl_down_sync(~0u, s.amax, n, LANES));
        s.max_abs = fmaxf(s.max_abs, __shfl_down_sync(~0u, s.max_abs, n, LANES));
    }
    return s;
}

// ---- Pieces of rows

// Where a thread's piece is in the matrix: element, element + 16, and so on.
struct place {
    uint64_t element;
    int n; // elements that lie inside of the block
};

template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t load_bits(const matrix &m, uint64_t element) {
    if (DTYPE == FQ_F32)
        return __ldg(static_cast<const uint32_t *>(m.source) + element);
    return __ldg(static_cast<const uint16_t *>(m.source) + element);
}

// The bits of a piece. What lies outside of the block is 0, which changes nothing.
struct piece {
    uint32_t weights[PIECE];
    uint32_t codes[PIECE];

    // Codes k to k + 3, the first in the lowest byte.
    __device__ __forceinline__ uint32_t word(int k) const {
        return codes[k] | codes[k + 1] << 8 | codes[k + 2] << 16 | codes[k + 3] << 24;
    }
};

template <fq_dtype DTYPE>
static __device__ __forceinline__ piece load_piece(const matrix &m, const place &at) {
    piece p;
#pragma unroll
    for (int k = 0; k < PIECE; k++) {
        const uint64_t element = at.element + k * LANES;
        p.weights[k] = k < at.n ? load_bits<DTYPE>(m, element) : 0;
        p.codes[k] = k < at.n ? __ldg(m.codes + element) : 0;
    }
    return p;
}

// The pieces of a thread in its block, from left to right, then from row to row.
struct walk {
    uint64_t n_left;               // pieces, the one at hand included
    uint64_t element, n_in_row, i; // the first element in the row; pieces of a row; the one at hand
    int64_t cols;                  // from the thread's first on

    __device__ __forceinline__ walk(const matrix &m, uint64_t b, uint32_t lane) {
        const uint64_t row = b / m.n_cols * m.block.rows, col = b % m.n_cols * m.block.cols;
        const uint64_t block_cols = min(m.block.cols, m.cols - col);
        n_in_row = (block_cols + PIECE_COLS - 1) / PIECE_COLS;
        n_left = min(m.block.rows, m.rows - row) * n_in_row;
        element = row * m.cols + col + lane;
        i = 0;
        cols = (int64_t)block_cols - lane;
    }

    __device__ __forceinline__ place at() const {
        const int64_t left = cols - (int64_t)(i * PIECE_COLS);
        const int64_t n = left <= 0 ? 0 : (left + LANES - 1) / LANES;
        return {element + i * PIECE_COLS, (int)min(n, (int64_t)PIECE)};
    }

    __device__ __forceinline__ void next(const matrix &m) {
        n_left--;
        if (++i == n_in_row) {
            i = 0;
            element += m.cols;
        }
    }
};

// ---- What is out of the ordinary

// What rounding explains of an error at that magnitude.
static __device__ float bound_of(float magnitude, float scale, float slack) {
    const float share = __fmul_rn(slack, magnitude);
    if (scale == 0.0f)
        return share;
    const uint32_t exponent = __float_as_uint(__fdiv_rn(magnitude, scale)) & 0x7F800000u;
    const uint32_t least = (FQ_F32_BIAS - 6u) << 23, most = (FQ_F32_BIAS + 8u) << 23;
    const float power = __uint_as_float(min(max(exponent, least), most));
    return __fadd_rn(__fmul_rn(__fmul_rn(0x1p-4f, power), scale), share);
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ void compare_element(sums &s, tally &t, const matrix &m,
                                                       uint64_t element, float scale) {
    const uint32_t bits = load_bits<DTYPE>(m, element), code = __ldg(m.codes + element);
    if (is_nonfinite<DTYPE>(bits)) {
        t.nonfinite.add(element);
        return;
    }
    const float weight = value_of_bits<DTYPE>(bits), quotient = __fdiv_rn(weight, scale);
    const bool is_nan = (code & 0x7Fu) == FQ_E4M3_NAN_CODE;
    const float product = is_nan ? 0.0f : __fmul_rn(f32_of_e4m3(code, 0), scale);
    const float error = __fsub_rn(fminf(fmaxf(product, -FLT_MAX), FLT_MAX), weight);
    const uint32_t expected = e4m3x4_of_f32(quotient, 0.0f, 0.0f, 0.0f) & 0xFFu;
    const bool saturates = fabsf(quotient) > FQ_E4M3_SATURATES;
    const bool differs = scale > 0.0f && code != expected;
    t.saturated += saturates;
    t.flushed_to_zero += weight != 0.0f && (code & 0x7Fu) == 0;
    if (is_nan)
        t.nan_codes.add(element);
    if (differs)
        t.codes_differ.add(element);
    if ((differs || saturates) && fabsf(error) > bound_of(fabsf(weight), scale, m.slack))
        t.out_of_bound.add(element);
    s.amax = fmaxf(s.amax, fabsf(weight));
    s.add(weight, error);
}

template <fq_dtype DTYPE>
static __device__ __noinline__ sums compare_elements(sums s, tally &t, const matrix &m, place at,
                                                     float scale) {
#pragma unroll 1
    for (int k = 0; k < at.n; k++)
        compare_element<DTYPE>(s, t, m, at.element + k * LANES, scale);
    return s;
}

// ---- What is in order

// The scale of a block, and up to which magnitude its elements have a quotient() that is safely
// under 464; negative where none have.
struct divisor {
    float scale, reciprocal, limit;

    // The bounds of scale are those of quotient(), see "Quotients under any scale" in
    // docs/numerics.md. They also keep all products finite.
    __device__ __forceinline__ explicit divisor(float s) {
        scale = s;
        reciprocal = __frcp_rn(s);
        limit = s >= 0x1p-90f && s <= 0x1p90f ? __fmul_rn(s, 463.0f) : -1.0f;
    }

    // value / scale, rounded as by IEEE's division wherever its E4M3 code is not ±0.
    __device__ __forceinline__ float quotient(float value) const {
        const float q = __fmul_rn(value, reciprocal);
        const float better = __fmaf_rn(-reciprocal, __fmaf_rn(q, scale, -value), q);
        return __fmaf_rn(-reciprocal, __fmaf_rn(better, scale, -value), better);
    }
};

template <fq_dtype DTYPE>
static __device__ __forceinline__ sums compare_piece(sums s, tally &t, const matrix &m,
                                                     const divisor &by, const piece &p,
                                                     const place &at) {
    float weights[PIECE], amax = 0.0f;
    uint32_t words[PIECE / 4], differences = 0, nonzero = ~0u;
#pragma unroll
    for (int k = 0; k < PIECE; k++) {
        weights[k] = value_of_bits<DTYPE>(p.weights[k]);
        amax = ptx_max_nan_f32(amax, fabsf(weights[k]));
    }
#pragma unroll
    for (int i = 0; i < PIECE / 4; i++) {
        const float *w = weights + 4 * i;
        words[i] = p.word(4 * i);
        differences |= words[i] ^ e4m3x4_of_f32(by.quotient(w[0]), by.quotient(w[1]),
                                                by.quotient(w[2]), by.quotient(w[3]));
        nonzero &= nonzero_bytes(words[i]);
    }
    if (!(amax <= by.limit) || differences != 0)
        return compare_elements<DTYPE>(s, t, m, at, by.scale);
    if (nonzero != 0x80808080u) {
        uint32_t n = 0;
#pragma unroll
        for (int k = 0; k < PIECE; k++)
            n += weights[k] != 0.0f && (p.codes[k] & 0x7Fu) == 0;
        t.flushed_to_zero += n;
    }
    s.amax = fmaxf(s.amax, amax);
#pragma unroll
    for (int k = 0; k < PIECE; k++)
        s.add(weights[k],
              __fsub_rn(__fmul_rn(f32_of_e4m3(words[k / 4], k % 4), by.scale), weights[k]));
    return s;
}

// The next piece is under way while one is looked at.
template <fq_dtype DTYPE>
static __device__ __forceinline__ sums compare_block(tally &t, const matrix &m, uint64_t b,
                                                     uint32_t lane) {
    const divisor by(__ldg(m.scales + b));
    sums s = {};
    walk w(m, b, lane);
    piece p = load_piece<DTYPE>(m, w.at());
    while (w.n_left > 1) {
        const place at = w.at();
        w.next(m);
        const piece ahead = load_piece<DTYPE>(m, w.at());
        s = compare_piece<DTYPE>(s, t, m, by, p, at);
        p = ahead;
    }
    return compare_piece<DTYPE>(s, t, m, by, p, w.at());
}

template <fq_dtype DTYPE>
static __global__ void __launch_bounds__(THREADS) compare(const __grid_constant__ matrix m) {
    const uint32_t lane = threadIdx.x % LANES, n_at_once = THREADS / LANES;
    tally t = {};
    for (uint64_t first = (uint64_t)blockIdx.x * n_at_once; first < m.n_blocks;
         first += (uint64_t)gridDim.x * n_at_once) {
        const uint64_t b = first + threadIdx.x / LANES;
        sums s = {};
        if (b < m.n_blocks)
            s = compare_block<DTYPE>(t, m, b, lane);
        __syncwarp();
        s = sum_of_threads(s);
        if (lane == 0 && b < m.n_blocks)
            m.errors[b] = {s.error2, s.weight2, s.amax, s.max_abs};
    }
    t.publish(m.counts);
}

// ---- Launching

unsigned fq_cuda_compare(const fq_compare_job *job, fq_cuda_compare_counts *counts,
                         cudaStream_t stream) {
    matrix m;
    m.source = job->source;
    m.codes = job->codes;
    m.scales = job->scales;
    m.errors = job->blocks;
    m.counts = counts;
    m.rows = job->rows;
    m.cols = job->cols;
    m.block = job->block;
    m.n_cols = fq_ceil_div(job->cols, job->block.cols);
    m.n_blocks = fq_ceil_div(job->rows, job->block.rows) * m.n_cols;
    m.slack = job->slack;
    const uint64_t n = fq_ceil_div(m.n_blocks, THREADS / LANES);
    const uint32_t grid = n < MAX_GRID ? (uint32_t)n : MAX_GRID;
    return start(job->source_dtype == FQ_F32   ? compare<FQ_F32>
                 : job->source_dtype == FQ_F16 ? compare<FQ_F16>
                                               : compare<FQ_BF16>,
                 grid, THREADS, stream, m);
}
