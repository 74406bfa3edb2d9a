// Quantizes a matrix on the CPU: amax and scale of every block, then codes, and what was met.
//
// All blocks side by side are done together, so that memory is read row by row: first for amax,
// then once more, mostly out of the cache, for the codes. Block by block would be simpler, but rows
// of a matrix that is a power of two wide crowd into a few places of the cache.
#include "kernels/cpu/steps.h"

#include <assert.h>

enum { GROUP_BLOCKS = 1024 }; // 131072 columns in 128×128 blocks: beyond that, several groups

// Blocks of a job side by side.
typedef struct group {
    const fq_quantize_job *job;
    fq_cpu_float type;
    uint64_t row0, col0;
    size_t rows, cols;
    size_t n_blocks;
    size_t to_next; // elements from here to the same place in the group that comes next, or 0
    float *scales;  // [n_blocks]
    uint32_t amax[GROUP_BLOCKS];
    fq_cpu_divisor by[GROUP_BLOCKS];
} group;

// First element of row r of the group.
static size_t row_start(const group *g, size_t r) { return (g->row0 + r) * g->job->cols + g->col0; }

static const void *source_at(const group *g, size_t i) {
    return (const char *)g->job->source + i * fq_cpu_float_size(g->type);
}

static bool is_finite(float value) { return (fq_bits_of_f32(value) & 0x7F800000u) != 0x7F800000u; }

static void count_nonfinite(const group *g) {
    fq_quantize_counts *counts = g->job->counts;
    for (size_t r = 0; r < g->rows; r++) {
        for (size_t c = 0; c < g->cols; c++) {
            if (is_finite(fq_cpu_load(g->type, g->job->source, row_start(g, r) + c)))
                continue;
            const uint64_t row = g->row0 + r, col = g->col0 + c;
            // Groups come from left to right: of one row, the first that was met stays.
            const bool first = counts->nonfinite == 0 || row < counts->nonfinite_row;
            counts->nonfinite++;
            if (first) {
                counts->nonfinite_row = row;
                counts->nonfinite_col = col;
            }
        }
    }
}

static void find_amax(group *g, const fq_cpu_variant *variant) {
    for (size_t j = 0; j < g->n_blocks; j++)
        g->amax[j] = 0;
    for (size_t r = 0; r < g->rows; r++)
        variant->amax[g->type](g->amax, source_at(g, row_start(g, r)), g->cols, g->job->block.cols);
}

// What a group's blocks call for.
typedef enum verdict { ALL_FINITE, SOME_SATURATE, SOME_NONFINITE } verdict;

static verdict find_scales(group *g, const fq_cpu_steps *steps) {
    const fq_quantize_job *job = g->job;
    verdict found = ALL_FINITE;
    for (size_t j = 0; j < g->n_blocks; j++) {
        const float amax = fq_cpu_value(g->type, g->amax[j]);
        if (!is_finite(amax))
            return SOME_NONFINITE;
        const float scale = fq_scale_of_amax(amax, job->amax_floor, job->pow2_scales);
        g->scales[j] = scale;
        g->by[j] =
            (fq_cpu_divisor){scale, fq_cpu_steps_find(steps, job->source_dtype, amax, scale)};
        job->counts->zero_blocks += amax == 0.0f;
        job->counts->floored_blocks += amax != 0.0f && amax < job->amax_floor;
        // Only a scale that is subnormal, and so rounded coarsely, can be too small for its block.
        if (amax / scale > FQ_E4M3_SATURATES)
            found = SOME_SATURATE;
    }
    return found;
}

static void encode_group(const group *g, const fq_cpu_variant *variant) {
    for (size_t r = 0; r < g->rows; r++) {
        const size_t first = row_start(g, r);
        const fq_cpu_encode row = {
            .source = source_at(g, first),
            .codes = g->job->codes + first,
            .cols = g->cols,
            .block_cols = g->job->block.cols,
            .by = g->by,
            .next = source_at(g, first + g->to_next),
        };
        variant->encode[g->type](&row, g->job->counts);
    }
}

static void quantize_group(group *g, const fq_cpu_variant *variant, const fq_cpu_steps *steps) {
    find_amax(g, variant);
    switch (find_scales(g, steps)) {
    case SOME_NONFINITE:
        count_nonfinite(g);
        break;
    case SOME_SATURATE:
        encode_group(g, &fq_cpu_plain);
        break;
    case ALL_FINITE:
        encode_group(g, variant);
    }
}

// The group of up to GROUP_BLOCKS blocks whose first is [i, j] in the grid.
static void set_group(group *g, uint64_t i, uint64_t j) {
    const fq_quantize_job *job = g->job;
    const uint64_t n_cols = fq_ceil_div(job->cols, job->block.cols);
    g->row0 = i * job->block.rows;
    g->col0 = j * job->block.cols;
    g->rows = fq_cpu_least(job->block.rows, job->rows - g->row0);
    g->n_blocks = fq_cpu_least(GROUP_BLOCKS, n_cols - j);
    g->cols = j + g->n_blocks == n_cols ? job->cols - g->col0 : g->n_blocks * job->block.cols;
    g->scales = &job->scales[i * n_cols + j];
    // A group that spans the matrix is followed by one like it below, but for the last rows.
    const bool spans = g->cols == job->cols;
    g->to_next = spans && job->rows - g->row0 >= 2 * g->rows ? g->rows * g->cols : 0;
}

void fq_cpu_quantize(const fq_cpu_variant *variant, const fq_cpu_steps *steps,
                     const fq_quantize_job *job) {
    assert(fq_dtype_is_source(job->source_dtype));
    assert(job->rows > 0 && job->cols > 0 && job->block.rows > 0 && job->block.cols > 0);
    *job->counts = (fq_quantize_counts){0};
    group g = {.job = job, .type = fq_cpu_float_of_dtype(job->source_dtype)};
    const uint64_t n_rows = fq_ceil_div(job->rows, job->block.rows);
    const uint64_t n_cols = fq_ceil_div(job->cols, job->block.cols);
    for (uint64_t i = 0; i < n_rows; i++) {
        for (uint64_t j = 0; j < n_cols; j += GROUP_BLOCKS) {
            set_group(&g, i, j);
            quantize_group(&g, variant, steps);
        }
    }
}
