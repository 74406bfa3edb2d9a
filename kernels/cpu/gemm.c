// The block-scaled FP8 GEMM on the CPU, and the two products that it is held against: see
// lib/gemm.h.
//
// One block of 128 columns after the other: its tokens are brought into FP64, then a few rows of
// weights at a time are decoded and multiplied, so that they stay in the nearest cache.
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/device.h"
#include "lib/scale.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static_assert((int)FQ_CPU_DEPTH == (int)FQ_BLOCK_SIZE, "products are summed by blocks");
static_assert(FQ_CPU_PANEL_F32 % FQ_CPU_PANEL_F64 == 0, "padding fits both kinds of panels");

enum { CACHE_LINE = 64 };

// By blocks of columns, each as fq_cpu_product wants its tokens. Token number tokens and those
// after it are padding: zeros.
struct fq_gemm_operand {
    size_t tokens, padded_tokens;
    uint64_t cols;
    float *codes;     // [blocks][panels][depth][FQ_CPU_PANEL_F32]
    uint16_t *values; // likewise, BF16
    float *scales;    // [blocks][padded_tokens]
};

// Copies the columns of one block into panels.
static void load_block(fq_gemm_operand *out, const fq_gemm_activations *from, uint64_t block) {
    const uint64_t col0 = block * FQ_CPU_DEPTH;
    const size_t depth = fq_cpu_least(FQ_CPU_DEPTH, from->cols - col0);
    const uint64_t n_blocks = fq_ceil_div(from->cols, FQ_CPU_DEPTH);
    for (size_t t = 0; t < out->tokens; t++) {
        const size_t panel = t / FQ_CPU_PANEL_F32;
        size_t to = col0 * out->padded_tokens + panel * depth * FQ_CPU_PANEL_F32;
        to += t % FQ_CPU_PANEL_F32;
        for (size_t k = 0; k < depth; k++, to += FQ_CPU_PANEL_F32) {
            const size_t i = t * from->cols + col0 + k;
            out->codes[to] = fq_f32_of_e4m3(from->codes[i]);
            out->values[to] = from->values[i];
        }
        out->scales[block * out->padded_tokens + t] = from->scales[t * n_blocks + block];
    }
}

static void unload(fq_device *device, fq_gemm_operand *activations) {
    (void)device;
    if (!activations)
        return;
    free(activations->codes);
    free(activations->values);
    free(activations->scales);
    free(activations);
}

static fq_status load(fq_gemm_operand **out, fq_device *device,
                      const fq_gemm_activations *activations, fq_error *err) {
    const uint64_t n_blocks = fq_ceil_div(activations->cols, FQ_CPU_DEPTH);
    const size_t padded =
        fq_ceil_div(activations->tokens, FQ_CPU_PANEL_F32) * (size_t)FQ_CPU_PANEL_F32;
    fq_gemm_operand *loaded = calloc(1, sizeof *loaded);
    // Padding rounds up 1 to 32 at most.
    if (!loaded || activations->cols > SIZE_MAX / sizeof(float) / padded)
        goto no_memory;
    loaded->tokens = activations->tokens;
    loaded->padded_tokens = padded;
    loaded->cols = activations->cols;
    loaded->codes = calloc(activations->cols * padded, sizeof *loaded->codes);
    loaded->values = calloc(activations->cols * padded, sizeof *loaded->values);
    loaded->scales = calloc(n_blocks * padded, sizeof *loaded->scales);
    if (!loaded->codes || !loaded->values || !loaded->scales)
        goto no_memory;
    for (uint64_t block = 0; block < n_blocks; block++)
        load_block(loaded, activations, block);
    *out = loaded;
    return FQ_OK;
no_memory:
    unload(device, loaded);
    return fq_fail_memory(err);
}

// Cuts n elements of that size off the front of *memory; what is cut off stays aligned.
static void *take(char **memory, size_t n, size_t size) {
    void *taken = *memory;
    *memory += fq_ceil_div(n * size, CACHE_LINE) * CACHE_LINE;
    return taken;
}

// Makes room for a strip. False if there is none.
static bool reserve(fq_cpu_gemm_lane *lane, size_t tokens, uint64_t rows) {
    const size_t of_row = 2 * sizeof(double) + sizeof(float);
    const size_t of_block = (2 * FQ_CPU_DEPTH + 2) * sizeof(double) + 7 * CACHE_LINE;
    if (rows > (SIZE_MAX / tokens - of_block) / of_row)
        return false;
    const size_t nbytes = tokens * (rows * of_row + of_block);
    if (nbytes > lane->nbytes) {
        fq_cpu_gemm_lane_close(lane);
        if (posix_memalign(&lane->memory, CACHE_LINE, nbytes) != 0)
            return false;
        lane->nbytes = nbytes;
    }
    char *rest = lane->memory;
    lane->exact = take(&rest, tokens * rows, sizeof(double));
    lane->reference = take(&rest, tokens * rows, sizeof(double));
    lane->product = take(&rest, tokens * rows, sizeof(float));
    lane->codes = take(&rest, tokens * FQ_CPU_DEPTH, sizeof(double));
    lane->values = take(&rest, tokens * FQ_CPU_DEPTH, sizeof(double));
    lane->token_scales = take(&rest, tokens, sizeof(double));
    lane->ones = take(&rest, tokens, sizeof(double));
    return true;
}

void fq_cpu_gemm_lane_close(fq_cpu_gemm_lane *lane) {
    free(lane->memory);
    *lane = (fq_cpu_gemm_lane){.memory = NULL};
}

static fq_status begin(fq_device *device, uint32_t lane_index, const fq_gemm_strip *strip,
                       fq_error *err) {
    assert(lane_index < device->n_lanes && strip->rows > 0 && !strip->group);
    fq_cpu_gemm_lane *lane = &device->gemm_lanes[lane_index];
    const fq_gemm_operand *activations = strip->activations;
    const size_t tokens = activations->padded_tokens;
    const uint64_t rows = strip->rows;
    if (!reserve(lane, tokens, rows))
        return fq_fail_memory(err);
    lane->activations = activations;
    lane->rows = rows;
    lane->next_col = 0;
    memset(lane->exact, 0, tokens * rows * sizeof *lane->exact);
    memset(lane->reference, 0, tokens * rows * sizeof *lane->reference);
    memset(lane->product, 0, tokens * rows * sizeof *lane->product);
    for (size_t t = 0; t < tokens; t++)
        lane->ones[t] = 1.0;
    return FQ_OK;
}

// Brings a block of columns of all tokens into FP64.
static void widen_tokens(fq_cpu_gemm_lane *lane, uint64_t col0, size_t depth) {
    const fq_gemm_operand *from = lane->activations;
    const size_t tokens = from->padded_tokens;
    const float *codes = from->codes + col0 * tokens;
    const uint16_t *values = from->values + col0 * tokens;
    const float *scales = from->scales + col0 / FQ_CPU_DEPTH * tokens;
    for (size_t t0 = 0, to = 0; t0 < tokens; t0 += FQ_CPU_PANEL_F64) {
        size_t i = t0 / FQ_CPU_PANEL_F32 * depth * FQ_CPU_PANEL_F32 + t0 % FQ_CPU_PANEL_F32;
        for (size_t k = 0; k < depth; k++, i += FQ_CPU_PANEL_F32, to += FQ_CPU_PANEL_F64) {
            for (size_t t = 0; t < FQ_CPU_PANEL_F64; t++) {
                lane->codes[to + t] = (double)codes[i + t];
                lane->values[to + t] = (double)fq_f32_of_bf16(values[i + t]);
            }
        }
    }
    for (size_t t = 0; t < tokens; t++)
        lane->token_scales[t] = (double)scales[t];
}

enum { GROUP_ROWS = 16 }; // 16 KiB of weights in FP64

// Some rows of weights, in one block of columns.
typedef struct group {
    fq_cpu_gemm_lane *lane;
    const fq_gemm_piece *piece;
    size_t row0, rows; // of the piece
    uint64_t col0;     // of the piece
    size_t depth;
    float scales[GROUP_ROWS];        // that Y is multiplied with
    double exact_scales[GROUP_ROWS]; // that the codes have
    float codes[GROUP_ROWS][FQ_CPU_DEPTH];
    double wide[GROUP_ROWS][FQ_CPU_DEPTH]; // codes, later the reference
} group;

static void find_scales(group *g) {
    const fq_gemm_piece *piece = g->piece;
    const uint64_t block = g->col0 / FQ_BLOCK_SIZE;
    const uint64_t n_blocks = fq_ceil_div(piece->cols, FQ_BLOCK_SIZE);
    for (size_t r = 0; r < g->rows; r++) {
        const float scale = piece->scales[(g->row0 + r) / FQ_BLOCK_SIZE * n_blocks + block];
        g->exact_scales[r] = (double)scale;
        g->scales[r] = scale;
        if (!piece->packed)
            continue;
        const uint64_t word = block / FQ_PACKED_EXPONENTS * piece->packed_stride + g->row0 + r;
        const uint64_t shift = 8 * (block % FQ_PACKED_EXPONENTS);
        g->scales[r] = fq_f32_of_e8m0((uint8_t)(piece->packed[word] >> shift));
    }
}

static void decode(group *g, const fq_cpu_variant *variant) {
    const float one = 1.0f;
    fq_dequantize_counts ignored = {0};
    for (size_t r = 0; r < g->rows; r++) {
        const fq_cpu_decode row = {
            .codes = g->piece->codes + (g->row0 + r) * g->piece->cols + g->col0,
            .target = g->codes[r],
            .cols = g->depth,
            .block_cols = g->depth,
            .scales = &one,
        };
        variant->decode[FQ_CPU_F32](&row, &ignored);
        for (size_t k = 0; k < g->depth; k++)
            g->wide[r][k] = (double)g->codes[r][k];
    }
}

FQ_CPU_INLINE void widen_source(fq_cpu_float type, group *g) {
    for (size_t r = 0; r < g->rows; r++) {
        const size_t first = (g->row0 + r) * g->piece->cols + g->col0;
        for (size_t k = 0; k < g->depth; k++)
            g->wide[r][k] = (double)fq_cpu_load(type, g->piece->source, first + k);
    }
}

static void load_reference(group *g) {
    switch (fq_cpu_float_of_dtype(g->piece->source_dtype)) {
    case FQ_CPU_BF16:
        widen_source(FQ_CPU_BF16, g);
        break;
    case FQ_CPU_F16:
        widen_source(FQ_CPU_F16, g);
        break;
    default:
        widen_source(FQ_CPU_F32, g);
    }
}

static void multiply_codes(group *g, const fq_cpu_variant *variant) {
    const fq_cpu_gemm_lane *lane = g->lane;
    const fq_gemm_operand *from = lane->activations;
    const size_t tokens = from->padded_tokens;
    const uint64_t col0 = g->piece->col0 + g->col0;
    const fq_cpu_product product = {
        .tokens = from->codes + col0 * tokens,
        .weights = g->codes,
        .token_scales = from->scales + col0 / FQ_CPU_DEPTH * tokens,
        .row_scales = g->scales,
        .sums = lane->product + g->row0 * tokens,
        .depth = g->depth,
        .n_panels = tokens / FQ_CPU_PANEL_F32,
        .n_rows = g->rows,
    };
    variant->multiply_f32(&product);
}

static void multiply_wide(group *g, const fq_cpu_variant *variant, bool is_reference) {
    static const double ones[GROUP_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const fq_cpu_gemm_lane *lane = g->lane;
    const size_t tokens = lane->activations->padded_tokens;
    const fq_cpu_product product = {
        .tokens = is_reference ? lane->values : lane->codes,
        .weights = g->wide,
        .token_scales = is_reference ? lane->ones : lane->token_scales,
        .row_scales = is_reference ? ones : g->exact_scales,
        .sums = (is_reference ? lane->reference : lane->exact) + g->row0 * tokens,
        .depth = g->depth,
        .n_panels = tokens / FQ_CPU_PANEL_F64,
        .n_rows = g->rows,
    };
    variant->multiply_f64(&product);
}

static fq_status add(fq_device *device, uint32_t lane_index, const fq_gemm_piece *piece,
                     fq_error *err) {
    (void)err;
    assert(lane_index < device->n_lanes);
    fq_cpu_gemm_lane *lane = &device->gemm_lanes[lane_index];
    assert(piece->rows == lane->rows && piece->col0 == lane->next_col);
    assert(piece->col0 % (piece->packed ? FQ_PACKED_COLS : FQ_BLOCK_SIZE) == 0);
    lane->has_reference = piece->source != NULL;
    group g = {.lane = lane, .piece = piece};
    for (g.col0 = 0; g.col0 < piece->cols; g.col0 += g.depth) {
        g.depth = fq_cpu_least(FQ_CPU_DEPTH, piece->cols - g.col0);
        widen_tokens(lane, piece->col0 + g.col0, g.depth);
        for (g.row0 = 0; g.row0 < piece->rows; g.row0 += g.rows) {
            g.rows = fq_cpu_least(GROUP_ROWS, piece->rows - g.row0);
            find_scales(&g);
            decode(&g, device->variant);
            multiply_codes(&g, device->variant);
            multiply_wide(&g, device->variant, false);
            if (!piece->source)
                continue;
            load_reference(&g);
            multiply_wide(&g, device->variant, true);
        }
    }
    lane->next_col += piece->cols;
    return FQ_OK;
}

// What FP32 holds, also where sums pass through more than they come to. False for NaN.
static bool is_in_range(const double *y, size_t n) {
    double greatest = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(y[i]) <= 0x1p100))
            return false;
        greatest = fmax(greatest, fabs(y[i]));
    }
    return greatest == 0.0 || greatest >= 0x1p-100;
}

static fq_gemm_sums sum_row(const fq_cpu_gemm_lane *lane, size_t row) {
    const size_t first = row * lane->activations->padded_tokens;
    const size_t tokens = lane->activations->tokens;
    fq_gemm_sums sums = {0};
    if (!is_in_range(lane->exact + first, tokens) || !is_in_range(lane->reference + first, tokens))
        return sums;
    sums.n = tokens;
    for (size_t i = first; i < first + tokens; i++) {
        const double exact = lane->exact[i], reference = lane->reference[i];
        const double kernel_error = (double)lane->product[i] - exact;
        sums.kernel_error2 += kernel_error * kernel_error;
        sums.exact2 += exact * exact;
        if (!lane->has_reference)
            continue;
        const double error = (double)lane->product[i] - reference;
        sums.error2 += error * error;
        sums.reference2 += reference * reference;
    }
    return sums;
}

static fq_status end(fq_device *device, uint32_t lane_index, const fq_gemm_result *result,
                     fq_error *err) {
    (void)err;
    assert(lane_index < device->n_lanes);
    const fq_cpu_gemm_lane *lane = &device->gemm_lanes[lane_index];
    const fq_gemm_operand *activations = lane->activations;
    assert(lane->next_col == activations->cols);
    for (size_t row = 0; row < lane->rows; row++) {
        result->sums[row] = sum_row(lane, row);
        const float *product = lane->product + row * activations->padded_tokens;
        for (size_t t = 0; result->product && t < activations->tokens; t++)
            result->product[t * lane->rows + row] = product[t];
    }
    return FQ_OK;
}

// ---- Groups: the CPU gains nothing by waiting for other strips

static fq_status open_group(fq_gemm_group **out, fq_device *device,
                            const fq_gemm_group_options *options, fq_error *err) {
    (void)device, (void)options, (void)err;
    *out = NULL;
    return FQ_OK;
}

static fq_status launch(fq_device *device, fq_gemm_group *none, fq_error *err) {
    (void)device, (void)none, (void)err;
    return FQ_OK;
}

static void close_group(fq_device *device, fq_gemm_group *none) { (void)device, (void)none; }

const fq_gemm fq_cpu_gemm = {
    .max_error = 2e-4,
    .load = load,
    .unload = unload,
    .begin = begin,
    .add = add,
    .end = end,
    .open_group = open_group,
    .launch = launch,
    .close_group = close_group,
};
