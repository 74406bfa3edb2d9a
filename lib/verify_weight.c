// Turns what bands showed into the figures of a weight: see verify_work.h.
#include "fp8.h"
#include "verify_work.h"

#include <math.h>
#include <string.h>

static bool comes_before(fq_place a, fq_place b) {
    return a.row < b.row || (a.row == b.row && a.col < b.col);
}

// Adds what a band found; its place counts from row0 and col0 of the tensor.
static bool merge(fq_finding *sum, const fq_finding *more, uint64_t row0, uint64_t col0) {
    const fq_place place = {row0 + more->first.row, col0 + more->first.col};
    const bool is_first = more->n > 0 && (sum->n == 0 || comes_before(place, sum->first));
    if (is_first)
        sum->first = place;
    sum->n += more->n;
    return is_first;
}

// The error of a block, or of a whole tensor, relative to what was to be stored.
static double relative(double error2, double weight2) {
    if (error2 == 0.0)
        return 0.0;
    return sqrt(error2 / weight2); // infinite where there is nothing but error
}

static void add_to_map(fq_verify_map *map, fq_place place, double error) {
    const uint64_t row = place.row * map->rows / map->grid_rows;
    const uint64_t col = place.col * map->cols / map->grid_cols;
    float *cell = &map->cells[row * map->cols + col];
    *cell = (float)error > *cell ? (float)error : *cell;
}

static void add_to_errors(fq_verify_summary *summary, double error) {
    const double bin = error * 2000.0;
    const bool is_last = !(bin < FQ_VERIFY_ERROR_BINS - 1);
    summary->block_errors[is_last ? FQ_VERIFY_ERROR_BINS - 1 : (size_t)bin]++;
}

// A block that has a reference.
static void add_errors(fq_verify *verify, fq_verify_tensor *tensor, fq_verify_open *open,
                       const fq_block_errors *block, float scale, fq_place place) {
    fq_verify_weight *weight = &tensor->weight;
    const double error = relative(block->error2, block->weight2);
    const float expected = fq_scale_of_amax(block->amax, tensor->amax_floor, tensor->pow2_scales);
    const fq_finding differs = {.n = scale != expected, .first = place};
    const bool is_floored = block->amax != 0.0f && block->amax < tensor->amax_floor;
    merge(&weight->scales_differ, &differs, 0, 0);
    weight->zero_blocks += block->amax == 0.0f;
    weight->floored_blocks += is_floored;
    fq_sum_add(&open->error2, block->error2);
    fq_sum_add(&open->weight2, block->weight2);
    if (!is_floored) {
        fq_sum_add(&open->judged_error2, block->error2);
        fq_sum_add(&open->judged_weight2, block->weight2);
    }
    if (error > weight->worst_block_rel_l2 || !weight->has_errors ||
        (error == weight->worst_block_rel_l2 && comes_before(place, weight->worst_block))) {
        weight->worst_block_rel_l2 = error;
        weight->worst_block = place;
    }
    weight->has_errors = true;
    weight->max_abs = fmaxf(weight->max_abs, block->max_abs);
    add_to_map(&open->map, place, error);
    add_to_errors(&verify->summary, error);
}

static void add_scale(fq_verify *verify, fq_verify_open *open, float scale) {
    const uint32_t bits = fq_bits_of_f32(scale);
    if (scale == 0.0f) // a block of zeros, or a flaw
        return;
    open->all_pow2 &= (bits & 0x7FFFFFu) == 0 || scale == 0x1p-127f; // that one is subnormal
    verify->summary.scales[bits >> 23]++;
}

void fq_verify_add_band(fq_verify *verify, fq_verify_tensor *tensor, fq_verify_open *open,
                        const fq_verify_band *found) {
    const fq_band *band = found->band;
    const fq_step *step = band->step;
    const fq_block block = step->block;
    const uint64_t row0 = step->matrix * step->source_matrix.rows + band->row0;
    const uint64_t matrix_grid_row =
        step->matrix * fq_ceil_div(step->source_matrix.rows, block.rows);
    const uint64_t grid_row0 = matrix_grid_row + band->row0 / block.rows;
    const uint64_t grid_col0 = band->col0 / block.cols;
    const uint64_t grid_rows = fq_ceil_div(band->rows, block.rows);
    const uint64_t grid_cols = fq_ceil_div(band->cols, block.cols);
    fq_verify_weight *weight = &tensor->weight;
    const fq_finding flaws = {.n = found->flaws.n, .first = {found->flaws.row, found->flaws.col}};
    if (merge(&weight->bad_scales, &flaws, matrix_grid_row, 0))
        weight->first_flaw = found->flaws.kind;
    merge(&weight->nan_codes, &found->nan_codes, row0, band->col0);
    weight->n_blocks += grid_rows * grid_cols;
    for (uint64_t i = 0; i < grid_rows * grid_cols; i++) {
        const fq_place place = {grid_row0 + i / grid_cols, grid_col0 + i % grid_cols};
        add_scale(verify, open, found->scales[i]);
        if (found->blocks)
            add_errors(verify, tensor, open, &found->blocks[i], found->scales[i], place);
    }
    if (!found->counts)
        return;
    weight->saturated += found->counts->saturated;
    weight->flushed_to_zero += found->counts->flushed_to_zero;
    merge(&weight->codes_differ, &found->counts->codes_differ, row0, band->col0);
    merge(&weight->out_of_bound, &found->counts->out_of_bound, row0, band->col0);
    merge(&weight->nonfinite, &found->counts->nonfinite, row0, band->col0);
}

void fq_verify_finish_tensor(fq_verify_tensor *tensor, const fq_verify_open *open) {
    fq_verify_weight *weight = &tensor->weight;
    weight->error2 = fq_sum_value(&open->error2);
    weight->weight2 = fq_sum_value(&open->weight2);
    weight->rel_l2 = relative(weight->error2, weight->weight2);
    weight->sqnr_db = -20.0 * log10(weight->rel_l2);
    weight->judged_rel_l2 =
        relative(fq_sum_value(&open->judged_error2), fq_sum_value(&open->judged_weight2));
    // Nobody said what the F32 scales are.
    if (strcmp(tensor->scale_format, "f32") == 0 && open->all_pow2 && !tensor->is_said_f32)
        tensor->scale_format = "pow2";
}
