// Multiplies on every subject, whole or cut into strips and pieces.
#ifndef FQ_TESTS_KERNELS_GEMM_TRIAL_H
#define FQ_TESTS_KERNELS_GEMM_TRIAL_H

#include "reference_gemm.h"
#include "trial.h"

// How a weight is cut. 0: not at all.
typedef struct gemm_cut {
    uint64_t rows, cols;
} gemm_cut;

// A result, whole. Zeroed, then made by gemm_run.
typedef struct gemm_outcome {
    fq_gemm_sums *sums; // [rows]
    float *product;     // [tokens, rows]
} gemm_outcome;

static inline void gemm_outcome_free(gemm_outcome *outcome) {
    free(outcome->sums);
    free(outcome->product);
    *outcome = (gemm_outcome){.sums = NULL};
}

// Some columns of some rows, copied so that they are contiguous and exactly as large as they are.
typedef struct gemm_copy {
    fq_gemm_piece piece;
    void *memory[4];
} gemm_copy;

static inline void *gemm_copy_matrix(const void *from, size_t rows, size_t cols, size_t stride,
                                     size_t size) {
    uint8_t *to = trial_alloc(rows * cols * size);
    for (size_t r = 0; from && r < rows; r++)
        memcpy(to + r * cols * size, (const uint8_t *)from + r * stride * size, cols * size);
    return to;
}

static inline void gemm_copy_piece(gemm_copy *out, const fq_gemm_piece *w, uint64_t row0,
                                   uint64_t rows, uint64_t col0, uint64_t cols) {
    const size_t size = w->source ? fq_dtype_size(w->source_dtype) : 1;
    const uint64_t n_blocks = fq_ceil_div(w->cols, 128);
    const uint64_t first = row0 * w->cols + col0;
    const void *source = w->source ? (const uint8_t *)w->source + first * size : NULL;
    const uint64_t n_words = fq_ceil_div(cols, 512);
    out->memory[0] = gemm_copy_matrix(w->codes + first, rows, cols, w->cols, 1);
    out->memory[1] = gemm_copy_matrix(w->scales + row0 / 128 * n_blocks + col0 / 128,
                                      fq_ceil_div(rows, 128), fq_ceil_div(cols, 128), n_blocks, 4);
    out->memory[2] = gemm_copy_matrix(source, rows, cols, w->cols, size);
    const void *packed = w->packed ? w->packed + col0 / 512 * w->packed_stride + row0 : NULL;
    out->memory[3] = gemm_copy_matrix(packed, n_words, rows, w->packed_stride, 4);
    out->piece = (fq_gemm_piece){
        .rows = rows,
        .cols = cols,
        .col0 = col0,
        .codes = out->memory[0],
        .scales = out->memory[1],
        .packed = packed ? out->memory[3] : NULL,
        .packed_stride = rows,
        .source = source ? out->memory[2] : NULL,
        .source_dtype = w->source_dtype,
    };
}

// One strip.
static inline void gemm_run_strip(const subject *s, const fq_gemm *gemm, uint32_t lane,
                                  const fq_gemm_operand *x, const gemm_case *c, uint64_t row0,
                                  uint64_t rows, uint64_t cut_cols, gemm_outcome *out) {
    fq_error err = {0};
    const uint64_t tokens = c->x.tokens;
    float *product = trial_alloc(tokens * rows * sizeof *product);
    const fq_gemm_strip strip = {.activations = x, .rows = rows};
    CHECK(gemm->begin(s->device, lane, &strip, &err) == FQ_OK);
    for (uint64_t col0 = 0, cols = 0; col0 < c->x.cols; col0 += cols) {
        const uint64_t left = c->x.cols - col0;
        cols = cut_cols > 0 && cut_cols < left ? cut_cols : left;
        gemm_copy copy;
        gemm_copy_piece(&copy, &c->w, row0, rows, col0, cols);
        CHECK(gemm->add(s->device, lane, &copy.piece, &err) == FQ_OK);
        CHECK(s->backend->wait(s->device, lane, &err) == FQ_OK);
        for (size_t i = 0; i < 4; i++)
            free(copy.memory[i]);
    }
    const fq_gemm_result result = {.sums = out->sums + row0, .product = product};
    CHECK(gemm->end(s->device, lane, &result, &err) == FQ_OK);
    CHECK(s->backend->wait(s->device, lane, &err) == FQ_OK);
    for (uint64_t t = 0; t < tokens; t++)
        memcpy(out->product + t * c->w.rows + row0, product + t * rows, rows * sizeof *product);
    free(product);
}

static inline void gemm_run(const subject *s, const gemm_case *c, gemm_cut cut, gemm_outcome *out) {
    const fq_gemm *gemm = fq_gemm_find(s->backend);
    fq_gemm_operand *x = NULL;
    fq_error err = {0};
    out->sums = trial_alloc(c->w.rows * sizeof *out->sums);
    out->product = trial_alloc(c->x.tokens * c->w.rows * sizeof *out->product);
    memset(out->sums, 0xFF, c->w.rows * sizeof *out->sums); // overwritten, not added to
    CHECK(gemm->load(&x, s->device, &c->x, &err) == FQ_OK);
    for (uint64_t row0 = 0, rows = 0; row0 < c->w.rows; row0 += rows) {
        const uint64_t left = c->w.rows - row0;
        rows = cut.rows > 0 && cut.rows < left ? cut.rows : left;
        gemm_run_strip(s, gemm, 0, x, c, row0, rows, cut.cols, out);
    }
    gemm->unload(s->device, x);
}

#endif
