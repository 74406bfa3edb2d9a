// Statistics of values: one pass over the stored elements.
#include "stats.h"

#include "fp8.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

bool fq_stats_covers(fq_dtype dtype) {
    switch (dtype) {
    case FQ_F64:
    case FQ_F32:
    case FQ_BF16:
    case FQ_F16:
    case FQ_F8_E5M2:
    case FQ_F8_E4M3:
    case FQ_F8_E8M0:
        return true;
    default:
        return false;
    }
}

// Element i of memory; exact.
static double wide_element(const void *memory, size_t i, fq_dtype dtype) {
    switch (dtype) {
    case FQ_F64:
        return ((const double *)memory)[i];
    case FQ_F32:
        return (double)((const float *)memory)[i];
    case FQ_BF16:
        return (double)fq_f32_of_bf16(((const uint16_t *)memory)[i]);
    default:
        return (double)fq_f32_of_f16(((const uint16_t *)memory)[i]);
    }
}

static double value_of_code(uint8_t code, fq_dtype dtype) {
    switch (dtype) {
    case FQ_F8_E5M2: // the upper half of an FP16
        return (double)fq_f32_of_f16((uint16_t)(code << 8));
    case FQ_F8_E4M3:
        return (double)fq_f32_of_e4m3(code);
    default:
        return code == FQ_E8M0_NAN ? (double)NAN : (double)fq_f32_of_e8m0(code);
    }
}

// Counts n elements of one value.
static void add(fq_stats *stats, double value, uint64_t n) {
    if (isnan(value)) {
        stats->n_nans += n;
    } else if (isinf(value)) {
        stats->n_infs += n;
    } else {
        stats->n_zeros += value == 0 ? n : 0;
        if (stats->n_finite == 0 || value < stats->min)
            stats->min = value;
        if (stats->n_finite == 0 || value > stats->max)
            stats->max = value;
        stats->n_finite += n;
    }
}

static void add_codes(fq_stats *stats, const uint64_t counts[256], fq_dtype dtype) {
    for (unsigned code = 0; code < 256; code++) {
        if (counts[code] == 0)
            continue;
        add(stats, value_of_code((uint8_t)code, dtype), counts[code]);
        stats->n_codes++;
    }
}

fq_status fq_stats_read(fq_stats *out, const fq_checkpoint *checkpoint, const fq_tensor *tensor,
                        void *buffer, size_t nbytes, uint64_t *bytes_read, const int *cancelled,
                        fq_error *err) {
    assert(fq_stats_covers(tensor->dtype) && nbytes % sizeof(double) == 0 && nbytes > 0);
    const fq_shard *shard = &checkpoint->shards[tensor->shard];
    const size_t size = fq_dtype_size(tensor->dtype);
    uint64_t counts[256] = {0}; // of codes, for dtypes of one byte
    *out = (fq_stats){.n_elements = tensor->nbytes / size};
    for (uint64_t done = 0; done < tensor->nbytes;) {
        if (cancelled && __atomic_load_n(cancelled, __ATOMIC_RELAXED))
            return fq_fail(err, FQ_CANCELLED, "stopped");
        const uint64_t left = tensor->nbytes - done;
        const size_t n = left < nbytes ? (size_t)left : nbytes;
        const fq_status status = shard->source->read(
            shard->source, shard->data_start + tensor->offset + done, buffer, n, err);
        if (status)
            return status;
        if (size == 1)
            for (size_t i = 0; i < n; i++)
                counts[((const uint8_t *)buffer)[i]]++;
        else
            for (size_t i = 0; i < n / size; i++)
                add(out, wide_element(buffer, i, tensor->dtype), 1);
        done += n;
        if (bytes_read)
            __atomic_fetch_add(bytes_read, n, __ATOMIC_RELAXED);
    }
    add_codes(out, counts, tensor->dtype);
    return FQ_OK;
}

// ---- Scales

static void add_scales(fq_scale_stats *stats, const float *grid, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        stats->min = grid[i] < stats->min ? grid[i] : stats->min;
        stats->max = grid[i] > stats->max ? grid[i] : stats->max;
        int exponent;
        stats->all_pow2 = stats->all_pow2 && (grid[i] == 0 || frexpf(grid[i], &exponent) == 0.5f);
    }
}

// Reads the scales of one matrix of a weight, by its number in a stack, in windows of at most
// max_blocks, a multiple of 4.
static fq_status read_matrix(fq_scale_stats *stats, const fq_checkpoint *checkpoint,
                             const fq_pair *pair, uint64_t matrix, float *grid, size_t max_blocks,
                             fq_error *err) {
    enum { SCRATCH_NBYTES = 16 * 1024 };
    _Alignas(16) unsigned char scratch[SCRATCH_NBYTES];
    const fq_tensor *weight = pair->weight;
    const uint64_t rows = weight->shape[weight->rank - 2], cols = weight->shape[weight->rank - 1];
    const uint64_t grid_cols = fq_ceil_div(cols, pair->block.cols);
    const uint64_t cols_step = (grid_cols < max_blocks ? grid_cols : max_blocks) * pair->block.cols;
    const uint64_t rows_step =
        (grid_cols < max_blocks ? max_blocks / grid_cols : 1) * pair->block.rows;
    for (uint64_t row = 0; row < rows; row += rows_step) {
        for (uint64_t col = 0; col < cols; col += cols_step) {
            const fq_scale_window window = {
                .matrix = matrix,
                .weight_rows = rows,
                .weight_cols = cols,
                .block = pair->block,
                .row0 = row,
                .rows = rows - row < rows_step ? rows - row : rows_step,
                .col0 = col,
                .cols = cols - col < cols_step ? cols - col : cols_step,
            };
            const fq_status status = fq_scale_read(grid, checkpoint, pair->scale, pair->storage,
                                                   &window, scratch, sizeof scratch, err);
            if (status)
                return status;
            add_scales(stats, grid,
                       fq_ceil_div(window.rows, pair->block.rows) *
                           fq_ceil_div(window.cols, pair->block.cols));
        }
    }
    return FQ_OK;
}

fq_status fq_stats_read_scales(fq_scale_stats *out, const fq_checkpoint *checkpoint,
                               const fq_pair *pair, fq_error *err) {
    enum { MAX_BLOCKS = 16 * 1024 };
    const fq_tensor *weight = pair->weight;
    const uint64_t n_matrices = weight->rank == 3 ? weight->shape[0] : 1;
    float *grid = malloc(MAX_BLOCKS * sizeof *grid);
    if (!grid)
        return fq_fail_memory(err);
    *out = (fq_scale_stats){.min = INFINITY, .all_pow2 = true};
    fq_status status = FQ_OK;
    for (uint64_t i = 0; i < n_matrices && !status; i++)
        status = read_matrix(out, checkpoint, pair, i, grid, MAX_BLOCKS, err);
    free(grid);
    return status;
}
