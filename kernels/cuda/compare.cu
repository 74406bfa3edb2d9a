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

template <fq_dtype DTYPE>
static __device__ __forceinline__ uint32_t load_bits(const void *weights, uint64_t i) {
    if (DTYPE == FQ_F32)
        return __ldg(static_cast<const uint32_t *>(weights) + i);
    return __ldg(static_cast<const uint16_t *>(weights) + i);
}

// A thread's part of a row: every 16th element. Neighbours in a warp have neighbours in the row.
struct place {
    const char *weights;
    const uint8_t *codes;
    uint32_t n; // elements that lie inside of the block
};

// Their bits. What lies outside is 0, which changes nothing.
struct piece {
    uint32_t weights[PIECE], codes[PIECE];
};

template <fq_dtype DTYPE> static __device__ __forceinline__ piece load_piece(const place &at) {
    piece p = {};
    if (at.n == PIECE) {
#pragma unroll
        for (int k = 0; k < PIECE; k++) {
            p.weights[k] = load_bits<DTYPE>(at.weights, k * LANES);
            p.codes[k] = __ldg(at.codes + k * LANES);
        }
        return p;
    }
#pragma unroll
    for (int k = 0; k < PIECE; k++) {
        if (k < at.n) {
            p.weights[k] = load_bits<DTYPE>(at.weights, k * LANES);
            p.codes[k] = __ldg(at.codes + k * LANES);
        }
    }
    return p;
}

// Their values, and their codes in words, the first in the lowest byte.
struct elements {
    float weights[PIECE];
    uint32_t codes[PIECE / 4];
};

template <fq_dtype DTYPE> static __device__ __forceinline__ elements elements_of(const piece &p) {
    elements e;
#pragma unroll
    for (int k = 0; k < PIECE; k++)
        e.weights[k] = value_of_bits<DTYPE>(p.weights[k]);
#pragma unroll
    for (int k = 0; k < PIECE; k += 4)
        e.codes[k / 4] = __byte_perm(__byte_perm(p.codes[k], p.codes[k + 1], 0x0040),
                                     __byte_perm(p.codes[k + 2], p.codes[k + 3], 0x0040), 0x5410);
    return e;
}

// A thread's places in a block, from left to right and from row to row.
template <fq_dtype DTYPE> struct walk {
    place at;
    uint64_t n_rows;            // still to come, this one included
    uint32_t n_in_row, n_right; // places of a row; from here on
    uint32_t n_last;            // elements of a row's last place
    uint64_t to_next_row;       // elements from a row's last place to the first of the next

    __device__ __forceinline__ walk(const matrix &m, uint64_t b, uint32_t lane) {
        const uint64_t row = b / m.n_cols * m.block.rows, col = b % m.n_cols * m.block.cols;
        const uint64_t cols = min(m.block.cols, m.cols - col);
        n_rows = min(m.block.rows, m.rows - row);
        n_in_row = n_right = (uint32_t)((cols + PIECE_COLS - 1) / PIECE_COLS);
        const uint32_t last = (uint32_t)(cols - (uint64_t)(n_in_row - 1) * PIECE_COLS);
        n_last = (last + LANES - 1 - lane) / LANES;
        to_next_row = m.cols - (uint64_t)(n_in_row - 1) * PIECE_COLS;
        const uint64_t element = row * m.cols + col + lane;
        at.weights = static_cast<const char *>(m.source) + element * tile<DTYPE>::ELEMENT_NBYTES;
        at.codes = m.codes + element;
        at.n = n_in_row > 1 ? PIECE : n_last;
    }

    // False where there are no more.
    __device__ __forceinline__ bool next() {
        uint64_t step = PIECE_COLS;
        if (--n_right == 0) {
            step = to_next_row;
            n_right = n_in_row;
            n_rows--;
        }
        at.weights += step * tile<DTYPE>::ELEMENT_NBYTES;
        at.codes += step;
        at.n = n_right > 1 ? PIECE : n_last;
        return n_rows > 0;
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
    const uint32_t bits = load_bits<DTYPE>(m.source, element), code = __ldg(m.codes + element);
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
static __device__ __noinline__ sums compare_elements(sums s, tally &t, const matrix &m,
                                                     uint64_t element, uint32_t n, float scale) {
#pragma unroll 1
    for (uint32_t k = 0; k < n; k++)
        compare_element<DTYPE>(s, t, m, element + k * LANES, scale);
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

// Elements that are not zero, while their code is.
static __device__ __forceinline__ uint32_t count_flushed(const elements &e) {
    uint32_t n = 0;
#pragma unroll
    for (int k = 0; k < PIECE; k++)
        n += e.weights[k] != 0.0f && (e.codes[k / 4] >> (8 * (k % 4)) & 0x7Fu) == 0;
    return n;
}

template <fq_dtype DTYPE>
static __device__ __forceinline__ sums compare_piece(sums s, tally &t, const matrix &m,
                                                     const divisor &by, const elements &e,
                                                     const place &at) {
    float amax = 0.0f;
    uint32_t differences = 0, nonzero = ~0u;
#pragma unroll
    for (int k = 0; k < PIECE; k++)
        amax = ptx_max_nan_f32(amax, fabsf(e.weights[k]));
#pragma unroll
    for (int k = 0; k < PIECE; k += 4) {
        const float *w = e.weights + k;
        differences |= e.codes[k / 4] ^ e4m3x4_of_f32(by.quotient(w[0]), by.quotient(w[1]),
                                                      by.quotient(w[2]), by.quotient(w[3]));
        nonzero &= nonzero_bytes(e.codes[k / 4]);
    }
    if (!(amax <= by.limit) || differences != 0)
        return compare_elements<DTYPE>(s, t, m, (uint64_t)(at.codes - m.codes), at.n, by.scale);
    if (nonzero != 0x80808080u)
        t.flushed_to_zero += count_flushed(e);
    s.amax = fmaxf(s.amax, amax);
#pragma unroll
    for (int k = 0; k < PIECE; k++) {
        const float stored = __fmul_rn(f32_of_e4m3(e.codes[k / 4], k % 4), by.scale);
        s.add(e.weights[k], __fsub_rn(stored, e.weights[k]));
    }
    return s;
}

// The next piece is on its way while one is looked at.
template <fq_dtype DTYPE>
static __device__ __forceinline__ sums compare_block(tally &t, const matrix &m, uint64_t b,
                                                     uint32_t lane) {
    const divisor by(__ldg(m.scales + b));
    walk<DTYPE> w(m, b, lane);
    piece p = load_piece<DTYPE>(w.at);
    sums s = {};
    for (bool more = true; more;) {
        const elements e = elements_of<DTYPE>(p);
        const place at = w.at;
        more = w.next();
        if (more)
            p = load_piece<DTYPE>(w.at);
        s = compare_piece<DTYPE>(s, t, m, by, e, at);
    }
    return s;
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
