// Cuts a plan into bands: see band.h.
#include "band.h"

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t fq_band_col_unit(fq_block block) {
    if (block.cols >= FQ_PACKED_COLS)
        return block.cols;
    return FQ_PACKED_COLS / block.cols * block.cols;
}

bool fq_band_holds(fq_block block) {
    return block.rows * fq_band_col_unit(block) <= FQ_MIN_BAND_ELEMENTS;
}

size_t fq_band_max_blocks(size_t max_elements) {
    // One per 32 elements is the finest scaling in use (1 × 32). Narrow matrices have more, and
    // get lower bands.
    return max_elements / 32;
}

fq_band_cursor fq_band_first(const fq_plan *plan, size_t shard, size_t max_elements) {
    return (fq_band_cursor){.plan = plan, .shard = shard, .max_elements = max_elements};
}

uint64_t fq_band_next_order(const fq_band_cursor *cursor) {
    // A band has at least a block of elements: no shard has 2^40 of them.
    return (uint64_t)cursor->shard << 40 | cursor->n_given;
}

size_t fq_band_max_turned(size_t max_elements, fq_dtype source) {
    return max_elements * (FQ_BAND_ELEMENT_NBYTES - 1 - fq_dtype_size(source));
}

// The most whole rows of a transposed matrix in a band, of which each piece has a unit of columns.
static uint64_t max_turned_rows(const fq_step *step, size_t max_elements) {
    const uint64_t cols = step->source_matrix.cols;
    const uint64_t by_codes = fq_band_max_turned(max_elements, step->source->dtype) / cols;
    return min_u64(by_codes, max_elements / min_u64(cols, fq_band_col_unit(step->block)));
}

fq_band fq_band_piece(const fq_band *band, uint64_t col, size_t max_elements) {
    const uint64_t unit = fq_band_col_unit(band->step->block);
    const uint64_t most = max_elements / band->rows;
    fq_band piece = *band;
    piece.col0 = band->col0 + col;
    piece.cols = band->cols - col;
    if (piece.cols > most)
        piece.cols = most / unit * unit;
    return piece;
}

// As many whole rows of blocks as fit, else one row of blocks in pieces.
void fq_band_size(uint64_t *rows, uint64_t *cols, const fq_step *step, size_t max_elements) {
    const fq_matrix *matrix = &step->source_matrix;
    const fq_block block = step->block;
    const uint64_t block_rows = min_u64(block.rows, matrix->rows);
    const uint64_t turned_rows = matrix->transposed ? max_turned_rows(step, max_elements) : 0;
    if (turned_rows >= block_rows) {
        *rows = turned_rows / block_rows * block_rows;
        *cols = matrix->cols;
        return;
    }
    const uint64_t max_blocks = fq_band_max_blocks(max_elements);
    const uint64_t fitting_cols =
        min_u64(max_elements / block_rows, max_blocks * min_u64(block.cols, max_elements));
    if (matrix->cols > fitting_cols) {
        *rows = block_rows;
        *cols = fitting_cols / fq_band_col_unit(block) * fq_band_col_unit(block);
        return;
    }
    const uint64_t by_elements = fitting_cols / matrix->cols;
    const uint64_t by_blocks = max_blocks / fq_ceil_div(matrix->cols, block.cols);
    *rows = min_u64(by_elements, by_blocks) * block_rows;
    *cols = matrix->cols;
}

static void next_matrix_band(fq_band_cursor *c, fq_band *out, bool *ends_step) {
    const fq_matrix *matrix = &out->step->source_matrix;
    uint64_t rows, cols;
    fq_band_size(&rows, &cols, out->step, c->max_elements);
    out->row0 = c->row;
    out->col0 = c->col;
    out->rows = min_u64(rows, matrix->rows - c->row);
    out->cols = min_u64(cols, matrix->cols - c->col);
    c->col += out->cols;
    if (c->col == matrix->cols) {
        c->col = 0;
        c->row += out->rows;
    }
    *ends_step = c->row == matrix->rows;
}

static void next_copy_band(fq_band_cursor *c, fq_band *out, bool *ends_step) {
    out->byte0 = c->byte;
    out->nbytes = min_u64(c->max_elements, out->step->source->nbytes - c->byte);
    c->byte += out->nbytes;
    *ends_step = c->byte == out->step->source->nbytes;
}

static bool is_empty(const fq_step *step) {
    return step->source_matrix.rows == 0 || step->source_matrix.cols == 0;
}

bool fq_band_next(fq_band_cursor *c, fq_band *out) {
    if (c->ended)
        return false;
    const fq_plan_shard *shard = &c->plan->shards[c->shard];
    *out = (fq_band){
        .order = fq_band_next_order(c), .shard = c->shard, .begins_shard = c->n_given == 0};
    c->n_given++;
    bool ends_step = true;
    if (shard->n_steps > 0) {
        out->step = &shard->steps[c->step];
        if (out->step->action == FQ_COPY)
            next_copy_band(c, out, &ends_step);
        else if (!is_empty(out->step))
            next_matrix_band(c, out, &ends_step);
    }
    if (ends_step) {
        c->row = c->col = c->byte = 0;
        c->step++;
    }
    c->ended = out->ends_shard = c->step >= shard->n_steps;
    return true;
}

fq_scale_window fq_band_window(const fq_band *band) {
    return (fq_scale_window){
        .matrix = band->step->matrix,
        .weight_rows = band->step->source_matrix.rows,
        .weight_cols = band->step->source_matrix.cols,
        .block = band->step->block,
        .row0 = band->row0,
        .rows = band->rows,
        .col0 = band->col0,
        .cols = band->cols,
    };
}

bool fq_band_block_is_zero(const fq_band *band, const uint8_t *codes, uint64_t i, uint64_t j) {
    const fq_block block = band->step->block;
    const uint64_t end_row = min_u64((i + 1) * block.rows, band->rows);
    const uint64_t end_col = min_u64((j + 1) * block.cols, band->cols);
    for (uint64_t r = i * block.rows; r < end_row; r++) {
        for (uint64_t c = j * block.cols; c < end_col; c++) {
            if (codes[r * band->cols + c] & 0x7F)
                return false;
        }
    }
    return true;
}
