// One band from source to sink: see lane.h.
#include "lane.h"

#include "band_read.h"
#include "fp8.h"
#include "turn.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The largest element of any step's source and target, for the buffers.
static void max_element_sizes(const fq_plan *plan, size_t *in, size_t *out) {
    *in = *out = 1;
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            if (step->action == FQ_COPY)
                continue;
            const size_t source = fq_dtype_size(step->source->dtype);
            const size_t target = fq_dtype_size(step->target->dtype);
            *in = source > *in ? source : *in;
            *out = target > *out ? target : *out;
        }
    }
}

// Bytes for the codes of bands that are larger than a lane's buffers; 0 if the plan has none.
static size_t turned_nbytes(const fq_plan *plan, size_t band_elements) {
    size_t most = 0;
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            const size_t nbytes = step->source_matrix.transposed
                                      ? fq_band_max_turned(band_elements, step->source->dtype)
                                      : 0;
            most = nbytes > most ? nbytes : most;
        }
    }
    return most;
}

fq_status fq_lane_open(fq_lane *out, const fq_plan *plan, const fq_run_options *options,
                       uint32_t index, fq_error *err) {
    *out = (fq_lane){.plan = plan, .options = options, .index = index};
    size_t in_size, out_size;
    max_element_sizes(plan, &in_size, &out_size);
    out->in_nbytes = options->band_elements * in_size;
    out->out_nbytes = options->band_elements * out_size;
    out->in = options->backend->host_alloc(options->device, out->in_nbytes);
    out->out = options->backend->host_alloc(options->device, out->out_nbytes);
    out->scales = malloc(fq_band_max_blocks(options->band_elements) * sizeof(float));
    const size_t n_turned = turned_nbytes(plan, options->band_elements);
    out->turned = n_turned > 0 ? malloc(n_turned) : NULL;
    const bool has_turned = out->turned || n_turned == 0;
    return out->in && out->out && out->scales && has_turned ? FQ_OK : fq_fail_memory(err);
}

void fq_lane_close(fq_lane *lane) {
    if (lane->options) {
        lane->options->backend->host_free(lane->options->device, lane->in, lane->in_nbytes);
        lane->options->backend->host_free(lane->options->device, lane->out, lane->out_nbytes);
    }
    free(lane->turned);
    free(lane->scales);
    memset(lane, 0, sizeof *lane);
}

// Reads a band, or a piece of it, to lane->in, as it is stored.
static fq_status fetch(fq_lane *lane, const fq_band *band, fq_error *err) {
    const fq_status status = fq_band_read_stored(lane->in, lane->plan->checkpoint, band, err);
    fq_progress *progress = lane->options->progress;
    if (!status && progress) {
        const uint64_t nbytes =
            band->step->action == FQ_COPY
                ? band->nbytes
                : band->rows * band->cols * fq_dtype_size(band->step->source->dtype);
        __atomic_fetch_add(&progress->bytes_read, nbytes, __ATOMIC_RELAXED);
    }
    return status;
}

// Writes the band's [rows, cols] elements to their place in the target.
static fq_status store(const fq_lane *lane, const void *elements, fq_sink *sink, fq_sink_file *file,
                       fq_error *err) {
    const fq_band *band = &lane->band;
    const fq_tensor *target = band->step->target;
    const uint64_t matrix_cols = band->step->source_matrix.cols;
    const size_t size = fq_dtype_size(target->dtype);
    const bool whole = band->cols == matrix_cols;
    const uint64_t first = band->step->target_element0 + band->row0 * matrix_cols + band->col0;
    const fq_sink_rows rows = {
        .offset = target->offset + first * size,
        .stride = matrix_cols * size,
        .n_rows = whole ? 1 : band->rows,
        .row_nbytes = (whole ? band->rows * band->cols : band->cols) * size,
    };
    return sink->write(file, &rows, elements, err);
}

static fq_status copy(fq_lane *lane, fq_sink *sink, fq_sink_file *file, fq_error *err) {
    const fq_band *band = &lane->band;
    if (!file || band->nbytes == 0)
        return FQ_OK;
    const fq_status status = fetch(lane, band, err);
    if (status)
        return status;
    const fq_sink_rows run = fq_sink_run(band->step->target->offset + band->byte0, band->nbytes);
    return sink->write(file, &run, lane->in, err);
}

static float element_at(const fq_lane *lane, uint64_t i) {
    uint16_t half;
    float single;
    switch (lane->band.step->source->dtype) {
    case FQ_BF16:
        memcpy(&half, lane->in + 2 * i, 2);
        return fq_f32_of_bf16(half);
    case FQ_F16:
        memcpy(&half, lane->in + 2 * i, 2);
        return fq_f32_of_f16(half);
    default:
        memcpy(&single, lane->in + 4 * i, 4);
        return single;
    }
}

// Adds what a piece met to the band's counts. The first piece with a non-finite element has the
// first of the band, in the order in which they are stored.
static void add_counts(fq_lane *lane, const fq_band *piece, const fq_quantize_counts *counts) {
    fq_quantize_counts *sum = &lane->counts.quantize;
    if (counts->nonfinite > 0 && sum->nonfinite == 0) {
        const bool is_turned = piece->step->source_matrix.transposed;
        const uint64_t row = counts->nonfinite_row, col = counts->nonfinite_col;
        lane->nonfinite = element_at(lane, row * (is_turned ? piece->rows : piece->cols) + col);
        sum->nonfinite_row = is_turned ? col : row;
        sum->nonfinite_col = piece->col0 - lane->band.col0 + (is_turned ? row : col);
    }
    fq_step_counts_add(&lane->counts, &(fq_step_counts){.quantize = *counts});
}

// Writes the piece's scales, which lie in lane->scales as the piece does.
static fq_status write_scales(const fq_lane *lane, const fq_band *piece, fq_sink *sink,
                              fq_sink_file *file, fq_error *err) {
    const fq_scale_window window = fq_band_window(piece);
    const float *grid = lane->scales;
    if (piece->step->source_matrix.transposed) {
        const uint64_t grid_rows = fq_ceil_div(piece->rows, window.block.rows);
        const uint64_t grid_cols = fq_ceil_div(piece->cols, window.block.cols);
        float *turned = lane->scales + grid_rows * grid_cols; // blocks of 128 × 128 leave the room
        for (uint64_t i = 0; i < grid_rows; i++) {
            for (uint64_t j = 0; j < grid_cols; j++)
                turned[i * grid_cols + j] = lane->scales[j * grid_rows + i];
        }
        grid = turned;
    }
    return fq_scale_write(file, sink, piece->step->target_scale->offset, lane->plan->scale_format,
                          &window, grid, lane->in, lane->in_nbytes, err);
}

// Quantizes a piece as it is stored: the blocks of a transposed matrix are those of the matrix,
// transposed. Its codes are then in lane->out, or at their place in lane->turned.
static fq_status quantize_piece(fq_lane *lane, const fq_band *piece, fq_sink *sink,
                                fq_sink_file *file, fq_error *err) {
    const fq_backend *backend = lane->options->backend;
    const bool is_turned = piece->step->source_matrix.transposed;
    fq_quantize_counts counts = {0};
    const fq_quantize_job job = {
        .source = lane->in,
        .source_dtype = piece->step->source->dtype,
        .rows = is_turned ? piece->cols : piece->rows,
        .cols = is_turned ? piece->rows : piece->cols,
        .block = piece->step->block,
        .pow2_scales = fq_scale_format_is_ue8m0(lane->plan->scale_format),
        .amax_floor = lane->plan->amax_floor,
        .codes = lane->out,
        .scales = lane->scales,
        .counts = &counts,
    };
    fq_status status = fetch(lane, piece, err);
    if (!status)
        status = backend->quantize(lane->options->device, lane->index, &job, err);
    if (!status)
        status = backend->wait(lane->options->device, lane->index, err);
    if (status)
        return status;
    add_counts(lane, piece, &counts);
    if (!file || lane->counts.quantize.nonfinite > 0)
        return FQ_OK;
    if (is_turned)
        fq_turn_bytes(lane->turned + (piece->col0 - lane->band.col0), lane->band.cols, lane->out,
                      job.rows, job.cols);
    return write_scales(lane, piece, sink, file, err);
}

static fq_status quantize(fq_lane *lane, fq_sink *sink, fq_sink_file *file, fq_error *err) {
    const fq_band *band = &lane->band;
    for (uint64_t col = 0; col < band->cols;) {
        const fq_band piece = fq_band_piece(band, col, lane->options->band_elements);
        const fq_status status = quantize_piece(lane, &piece, sink, file, err);
        if (status)
            return status;
        col += piece.cols;
    }
    if (!file || lane->counts.quantize.nonfinite > 0)
        return FQ_OK;
    return store(lane, band->step->source_matrix.transposed ? lane->turned : lane->out, sink, file,
                 err);
}

// A scale of zero is right over a block of zeros, and loses every other.
static fq_status check_zero_scales(const fq_lane *lane, const fq_scale_window *window,
                                   fq_error *err) {
    const uint64_t grid_rows = fq_ceil_div(window->rows, window->block.rows);
    const uint64_t grid_cols = fq_ceil_div(window->cols, window->block.cols);
    for (uint64_t k = 0; k < grid_rows * grid_cols; k++) {
        if (lane->scales[k] == 0.0f &&
            !fq_band_block_is_zero(&lane->band, lane->in, k / grid_cols, k % grid_cols))
            return fq_scale_fail(lane->plan->checkpoint, lane->band.step->source_scale, window, k,
                                 "zero, but the block is not", err);
    }
    return FQ_OK;
}

static fq_status dequantize(fq_lane *lane, fq_sink *sink, fq_sink_file *file, fq_error *err) {
    const fq_band *band = &lane->band;
    const fq_backend *backend = lane->options->backend;
    const fq_scale_window window = fq_band_window(band);
    const fq_dequantize_job job = {
        .codes = lane->in,
        .rows = band->rows,
        .cols = band->cols,
        .block = band->step->block,
        .scales = lane->scales,
        .target_dtype = band->step->target->dtype,
        .target = lane->out,
        .counts = &lane->counts.dequantize,
    };
    fq_status status =
        fq_scale_read(lane->scales, lane->plan->checkpoint, band->step->source_scale,
                      band->step->scale_storage, &window, lane->in, lane->in_nbytes, err);
    if (!status)
        status = fetch(lane, band, err);
    if (!status)
        status = check_zero_scales(lane, &window, err);
    if (!status)
        status = backend->dequantize(lane->options->device, lane->index, &job, err);
    if (!status)
        status = backend->wait(lane->options->device, lane->index, err);
    if (status || !file)
        return status;
    return store(lane, lane->out, sink, file, err);
}

static uint64_t target_nbytes(const fq_band *band) {
    if (band->step->action == FQ_COPY)
        return band->nbytes;
    return band->rows * band->cols * fq_dtype_size(band->step->target->dtype);
}

fq_status fq_lane_carry_out(fq_lane *lane, fq_sink *sink, fq_sink_file *file, fq_error *err) {
    const fq_band *band = &lane->band;
    lane->counts = (fq_step_counts){0};
    if (!band->step)
        return FQ_OK;
    fq_progress *progress = lane->options->progress;
    if (progress)
        __atomic_store_n(&progress->tensor, band->step->source->name, __ATOMIC_RELAXED);
    fq_status status = FQ_OK;
    if (band->step->action == FQ_COPY)
        status = copy(lane, sink, file, err);
    else if (band->rows > 0 && band->step->action == FQ_QUANTIZE)
        status = quantize(lane, sink, file, err);
    else if (band->rows > 0)
        status = dequantize(lane, sink, file, err);
    if (!status && progress)
        __atomic_fetch_add(&progress->bytes_written, target_nbytes(band), __ATOMIC_RELAXED);
    return status;
}

fq_status fq_lane_fail_nonfinite(const fq_lane *lane, fq_error *err) {
    const fq_band *band = &lane->band;
    const fq_tensor *source = band->step->source;
    const fq_matrix *matrix = &band->step->source_matrix;
    const uint64_t row = lane->counts.quantize.nonfinite_row;
    const uint64_t col = lane->counts.quantize.nonfinite_col;
    const float value = lane->nonfinite;
    // The place in the source tensor, which for an expert is not the place in its matrix.
    const uint64_t r = band->row0 + row, c = band->col0 + col;
    const uint64_t element =
        matrix->element0 + (matrix->transposed ? c * matrix->stride + r : r * matrix->cols + c);
    const uint64_t *shape = source->shape + source->rank - 2;
    char expert[48] = "";
    if (source->rank == 3)
        snprintf(expert, sizeof expert, "expert %" PRIu64 ", ", band->step->matrix);
    return fq_fail(err, FQ_BAD_INPUT,
                   "%s: %s: %srow %" PRIu64 ", column %" PRIu64
                   " is %s; get the file again, or keep such tensors unquantized with "
                   "--on-nonfinite keep",
                   fq_tensor_file(lane->plan->checkpoint, source), source->name, expert,
                   element / shape[1] % shape[0], element % shape[1],
                   isnan(value) ? "NaN"
                   : value > 0  ? "infinite"
                                : "minus infinity");
}
