// Matrices of more than 2^32 elements, and of more than 2^16 blocks in a row and in a column: what
// a 32-bit index, or a grid of limited height, would get wrong.
//
// They are zero but for a few elements, so that no reference has to run over them. Through
// launch.h, on the first GPU; skipped where there is none, or not enough memory.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/launch.h"
#include "lib/fp8.h"
#include "tests/check.h"

#include <cuda_runtime_api.h>

#include <stdlib.h>

enum { SKIPPED = 77, BF16_ONE = 0x3F80, BF16_INF = 0x7F80, CODE_448 = 0x7E };

// A matrix on the GPU.
typedef struct matrix {
    uint64_t rows, cols, n, n_blocks;
    fq_block block;
    uint16_t *source; // [rows, cols], GPU memory, and so on
    uint8_t *codes;
    float *scales;
    void *counts; // of both kinds, 64 bytes
} matrix;

static bool works(cudaError_t code) {
    if (!CHECK(code == cudaSuccess))
        CHECK_NOTE("%s\n", cudaGetErrorString(code));
    return code == cudaSuccess;
}

static bool open_matrix(matrix *m) {
    m->n = m->rows * m->cols;
    m->n_blocks = fq_ceil_div(m->rows, m->block.rows) * fq_ceil_div(m->cols, m->block.cols);
    if (cudaMalloc((void **)&m->source, m->n * sizeof *m->source) != cudaSuccess ||
        cudaMalloc((void **)&m->codes, m->n) != cudaSuccess ||
        cudaMalloc((void **)&m->scales, m->n_blocks * sizeof *m->scales) != cudaSuccess ||
        cudaMalloc(&m->counts, 64) != cudaSuccess) {
        printf("skipped: no memory for %" PRIu64 " elements\n", m->n);
        exit(SKIPPED);
    }
    return works(cudaMemset(m->source, 0, m->n * sizeof *m->source)) &&
           works(cudaMemset(m->codes, 0x55, m->n)) &&
           works(cudaMemset(m->scales, 0x55, m->n_blocks * sizeof *m->scales));
}

static void close_matrix(matrix *m) {
    works(cudaFree(m->source));
    works(cudaFree(m->codes));
    works(cudaFree(m->scales));
    works(cudaFree(m->counts));
}

static void set(const matrix *m, uint64_t row, uint64_t col, uint16_t bits) {
    works(cudaMemcpy(&m->source[row * m->cols + col], &bits, sizeof bits, cudaMemcpyDefault));
}

static uint16_t get_source(const matrix *m, uint64_t row, uint64_t col) {
    uint16_t bits = 0;
    works(cudaMemcpy(&bits, &m->source[row * m->cols + col], sizeof bits, cudaMemcpyDefault));
    return bits;
}

static uint8_t get_code(const matrix *m, uint64_t row, uint64_t col) {
    uint8_t code = 0xAA;
    works(cudaMemcpy(&code, &m->codes[row * m->cols + col], sizeof code, cudaMemcpyDefault));
    return code;
}

static fq_cuda_quantize_counts quantize(const matrix *m) {
    const fq_quantize_job job = {.source = m->source,
                                 .source_dtype = FQ_BF16,
                                 .rows = m->rows,
                                 .cols = m->cols,
                                 .block = m->block,
                                 .codes = m->codes,
                                 .scales = m->scales};
    fq_cuda_quantize_counts counts;
    memset(&counts, 0xFF, sizeof counts);
    works(cudaMemset(m->counts, 0, sizeof counts));
    works((cudaError_t)fq_cuda_quantize(&job, m->counts, NULL));
    works(cudaMemcpy(&counts, m->counts, sizeof counts, cudaMemcpyDefault));
    return counts;
}

static void dequantize(const matrix *m) {
    const fq_dequantize_job job = {.codes = m->codes,
                                   .rows = m->rows,
                                   .cols = m->cols,
                                   .block = m->block,
                                   .scales = m->scales,
                                   .target_dtype = FQ_BF16,
                                   .target = m->source};
    works(cudaMemset(m->source, 0x55, m->n * sizeof *m->source));
    works((cudaError_t)fq_cuda_dequantize(&job, m->counts, NULL));
    works(cudaDeviceSynchronize());
}

// The last element and one in the middle are 1; then the last is Inf.
static void test_shape(uint64_t rows, uint64_t cols, fq_block block) {
    matrix m = {.rows = rows, .cols = cols, .block = block};
    if (!open_matrix(&m))
        return;
    const uint64_t r = rows / 2, c = cols / 2;
    set(&m, rows - 1, cols - 1, BF16_ONE);
    set(&m, r, c, BF16_ONE);
    fq_cuda_quantize_counts counts = quantize(&m);
    CHECK_U64(counts.nonfinite, 0);
    CHECK_U64(counts.zero_blocks, m.n_blocks - 2);
    CHECK_U64(get_code(&m, rows - 1, cols - 1), CODE_448);
    CHECK_U64(get_code(&m, r, c), CODE_448);
    CHECK_U64(get_code(&m, 0, 0), 0);
    CHECK_U64(get_code(&m, rows - 1, 0), 0);
    float scale = 0.0f;
    works(cudaMemcpy(&scale, &m.scales[m.n_blocks - 1], sizeof scale, cudaMemcpyDefault));
    CHECK(scale == 1.0f / FQ_E4M3_MAX);
    dequantize(&m);
    CHECK_U64(get_source(&m, rows - 1, cols - 1), BF16_ONE);
    CHECK_U64(get_source(&m, r, c), BF16_ONE);
    CHECK_U64(get_source(&m, rows - 1, 0), 0);
    set(&m, rows - 1, cols - 1, BF16_INF);
    counts = quantize(&m);
    CHECK_U64(counts.nonfinite, 1);
    CHECK_U64(~counts.first_nonfinite, m.n - 1);
    close_matrix(&m);
}

int main(void) {
    const fq_block weights = {128, 128}, activations = {1, 128}, other = {128, 120};
    const fq_backend *cuda = NULL;
    uint32_t n = 0;
    fq_error err = {0};
    if (fq_cuda_find(&cuda, &n, &err) != FQ_OK) {
        printf("skipped: %s\n", err.text);
        return SKIPPED;
    }
    test_shape(131081, 32776, weights); // 4,296,310,856 elements, ragged
    test_shape(131081, 32776, activations);
    test_shape(131081, 32771, other);
    test_shape(128 * 66000, 8, weights); // tiles upon each other
    test_shape(1, 128 * 66000, weights); // and side by side
    test_shape(32 * 66000, 16, activations);
    return check_result();
}
