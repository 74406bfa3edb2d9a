// Holds stored codes against their weights on the CPU: see lib/checker.h.
//
// Rows are encoded anew, and only codes that differ are looked at one by one: an equal code is
// within its bound. As when quantizing, all blocks side by side are done together.
#include "kernels/cpu/steps.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    // Of a group at most, so that its sums and a row of codes stay in the cache. A block that is
    // wider is a group, and looked at plainly.
    GROUP_COLS = 16384,
    GROUP_BLOCKS = 512,
};

// Blocks of a job side by side.
typedef struct group {
    const fq_compare_job *job;
    fq_cpu_float type;
    uint64_t row0, col0;
    size_t rows, cols;
    size_t n_blocks;
    const float *scales; // [n_blocks]
    uint32_t amax[GROUP_BLOCKS];
    fq_cpu_divisor by[GROUP_BLOCKS];
    fq_cpu_errors errors[GROUP_BLOCKS];
    uint8_t expected[GROUP_COLS]; // codes of a row
} group;

// First element of row r of the group.
static size_t row_start(const group *g, size_t r) { return (g->row0 + r) * g->job->cols + g->col0; }

static const void *source_at(const group *g, size_t i) {
    return (const char *)g->job->source + i * fq_cpu_float_size(g->type);
}

// Groups come from left to right, and rows from the first to the last only within one.
static void find(fq_finding *finding, uint64_t row, uint64_t col) {
    if (finding->n++ == 0 || row < finding->first.row ||
        (row == finding->first.row && col < finding->first.col))
        finding->first = (fq_place){row, col};
}

static bool is_zero_code(uint8_t code) { return (code & 0x7Fu) == 0; }

// What rounding explains of an error at that weight.
static float bound_of(float weight, float scale, float slack) {
    if (scale == 0.0f)
        return slack * weight;
    const uint32_t exponent = fq_bits_of_f32(weight / scale) & 0x7F800000u;
    const uint32_t least = fq_bits_of_f32(0x1p-6f), most = fq_bits_of_f32(0x1p8f);
    const float power = fq_f32_of_bits(exponent < least  ? least
                                       : exponent > most ? most
                                                         : exponent);
    return 0x1p-4f * power * scale + slack * weight;
}

static void check_error(const group *g, uint64_t row, uint64_t col, float weight, float scale,
                        uint8_t code) {
    const float product = fq_f32_of_e4m3(code) * scale;
    const float stored = isinf(product) ? copysignf(FLT_MAX, product) : product;
    const bool is_nan = (code & 0x7Fu) == FQ_E4M3_NAN_CODE;
    if (fabsf((is_nan ? 0.0f : stored) - weight) > bound_of(fabsf(weight), scale, g->job->slack))
        find(&g->job->counts->out_of_bound, row, col);
}

// Counts what there is to a code that is not the expected one. flushed_to_zero counts the expected
// code so far.
static void check_difference(const group *g, size_t r, size_t c, uint8_t expected) {
    fq_compare_counts *counts = g->job->counts;
    const size_t i = row_start(g, r) + c;
    const float weight = fq_cpu_load(g->type, g->job->source, i);
    const float scale = g->scales[c / g->job->block.cols];
    const uint8_t code = g->job->codes[i];
    const uint64_t row = g->row0 + r, col = g->col0 + c;
    find(&counts->codes_differ, row, col);
    if ((code & 0x7Fu) == FQ_E4M3_NAN_CODE)
        find(&counts->nan_codes, row, col);
    counts->flushed_to_zero += weight != 0.0f && is_zero_code(code);
    counts->flushed_to_zero -= weight != 0.0f && is_zero_code(expected);
    check_error(g, row, col, weight, scale, code);
}

static void check_row(const group *g, size_t r) {
    const uint8_t *codes = g->job->codes + row_start(g, r);
    if (memcmp(codes, g->expected, g->cols) == 0)
        return;
    for (size_t c = 0; c < g->cols; c++) {
        if (codes[c] != g->expected[c])
            check_difference(g, r, c, g->expected[c]);
    }
}

static void add_errors(group *g, const fq_cpu_variant *variant, size_t r) {
    const size_t first = row_start(g, r);
    const fq_cpu_compare row = {
        .codes = g->job->codes + first,
        .source = source_at(g, first),
        .cols = g->cols,
        .block_cols = g->job->block.cols,
        .scales = g->scales,
        .errors = g->errors,
    };
    variant->compare[g->type](&row);
}

static void compare_group(group *g, const fq_cpu_variant *variant) {
    fq_quantize_counts encoded = {0};
    for (size_t r = 0; r < g->rows; r++) {
        const void *source = source_at(g, row_start(g, r));
        const fq_cpu_encode row = {
            .source = source,
            .codes = g->expected,
            .cols = g->cols,
            .block_cols = g->job->block.cols,
            .by = g->by,
            .next = source,
        };
        variant->encode[g->type](&row, &encoded);
        check_row(g, r);
        add_errors(g, variant, r);
    }
    g->job->counts->flushed_to_zero += encoded.flushed_to_zero;
}

// One element of a group in which something is out of the ordinary.
static void check_element(group *g, size_t r, size_t c) {
    fq_compare_counts *counts = g->job->counts;
    const size_t i = row_start(g, r) + c, block = c / g->job->block.cols;
    const float weight = fq_cpu_load(g->type, g->job->source, i), scale = g->scales[block];
    const uint8_t code = g->job->codes[i];
    const uint64_t row = g->row0 + r, col = g->col0 + c;
    if (!isfinite(weight)) {
        find(&counts->nonfinite, row, col);
        return;
    }
    const uint32_t magnitude = fq_bits_of_f32(weight) & 0x7FFFFFFFu;
    g->amax[block] = magnitude > g->amax[block] ? magnitude : g->amax[block];
    if ((code & 0x7Fu) == FQ_E4M3_NAN_CODE)
        find(&counts->nan_codes, row, col);
    counts->flushed_to_zero += weight != 0.0f && is_zero_code(code);
    const bool saturates = fabsf(weight / scale) > FQ_E4M3_SATURATES;
    const bool differs = scale > 0.0f && code != fq_e4m3_of_f32_sat(weight / scale);
    counts->saturated += saturates;
    if (differs)
        find(&counts->codes_differ, row, col);
    if (differs || saturates)
        check_error(g, row, col, weight, scale, code);
}

// The specification: every element looked at, in any group. Leaves FP32 bits in amax.
static void compare_group_plainly(group *g) {
    memset(g->amax, 0, g->n_blocks * sizeof *g->amax);
    for (size_t r = 0; r < g->rows; r++) {
        for (size_t c = 0; c < g->cols; c++)
            check_element(g, r, c);
        add_errors(g, &fq_cpu_plain, r);
    }
}

static void find_amax(group *g, const fq_cpu_variant *variant) {
    memset(g->amax, 0, g->n_blocks * sizeof *g->amax);
    for (size_t r = 0; r < g->rows; r++)
        variant->amax[g->type](g->amax, source_at(g, row_start(g, r)), g->cols, g->job->block.cols);
    for (size_t j = 0; j < g->n_blocks; j++)
        g->amax[j] = fq_bits_of_f32(fq_cpu_value(g->type, g->amax[j]));
}

// Finds what each block is divided by. False if encoding its row would not give what is expected,
// or its values leave the range of FP32.
static bool find_divisors(group *g, const fq_cpu_steps *steps) {
    for (size_t j = 0; j < g->n_blocks; j++) {
        const float amax = fq_f32_of_bits(g->amax[j]), scale = g->scales[j];
        if (!isfinite(amax) || scale == 0.0f || amax / scale > FQ_E4M3_SATURATES ||
            isinf(scale * FQ_E4M3_MAX))
            return false;
        g->by[j] =
            (fq_cpu_divisor){scale, fq_cpu_steps_find(steps, g->job->source_dtype, amax, scale)};
    }
    return true;
}

static double add_lanes(double lanes[FQ_COMPARE_LANES]) {
    for (int n = FQ_COMPARE_LANES / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; i++)
            lanes[i] += lanes[i + n];
    }
    return lanes[0];
}

static void store_blocks(group *g, fq_block_errors *out) {
    for (size_t j = 0; j < g->n_blocks; j++) {
        out[j] = (fq_block_errors){
            .error2 = add_lanes(g->errors[j].error2),
            .weight2 = add_lanes(g->errors[j].weight2),
            .amax = fq_f32_of_bits(g->amax[j]),
            .max_abs = g->errors[j].max_abs,
        };
    }
}

// The group whose first block is [i, j] in the grid.
static void set_group(group *g, uint64_t i, uint64_t j) {
    const fq_compare_job *job = g->job;
    const uint64_t n_cols = fq_ceil_div(job->cols, job->block.cols);
    const uint64_t fitting = fq_cpu_least(GROUP_BLOCKS, GROUP_COLS / job->block.cols);
    const uint64_t most = fitting > 0 ? fitting : 1;
    g->row0 = i * job->block.rows;
    g->col0 = j * job->block.cols;
    g->rows = fq_cpu_least(job->block.rows, job->rows - g->row0);
    g->n_blocks = fq_cpu_least(most, n_cols - j);
    g->cols = j + g->n_blocks == n_cols ? job->cols - g->col0 : g->n_blocks * job->block.cols;
    g->scales = &job->scales[i * n_cols + j];
    memset(g->errors, 0, g->n_blocks * sizeof *g->errors);
}

void fq_cpu_compare_job(const fq_cpu_variant *variant, const fq_cpu_steps *steps,
                        const fq_compare_job *job) {
    assert(fq_dtype_is_source(job->source_dtype));
    assert(job->rows > 0 && job->cols > 0 && job->block.rows > 0 && job->block.cols > 0);
    *job->counts = (fq_compare_counts){0};
    group g; // large, and set group by group
    g.job = job;
    g.type = fq_cpu_float_of_dtype(job->source_dtype);
    const uint64_t n_rows = fq_ceil_div(job->rows, job->block.rows);
    const uint64_t n_cols = fq_ceil_div(job->cols, job->block.cols);
    for (uint64_t i = 0; i < n_rows; i++) {
        for (uint64_t j = 0; j < n_cols; j += g.n_blocks) {
            set_group(&g, i, j);
            find_amax(&g, variant);
            if (g.cols <= GROUP_COLS && find_divisors(&g, steps))
                compare_group(&g, variant);
            else
                compare_group_plainly(&g);
            store_blocks(&g, &job->blocks[i * n_cols + j]);
        }
    }
}
