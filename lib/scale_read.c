// Reads the scales of a window of blocks from whatever form they are stored in: see scale.h.
#include "fp8.h"
#include "scale.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct scale_reader {
    const fq_checkpoint *checkpoint;
    const fq_tensor *tensor;
    const fq_scale_window *window;
    uint64_t grid_cols; // blocks of the window
    unsigned char *scratch;
    size_t scratch_nbytes;
    fq_scale_flaws *flaws; // where they go; NULL: they fail
} scale_reader;

// Reads n elements of the scale tensor, from element `first`, into the scratch buffer.
static fq_status read_elements(const scale_reader *r, uint64_t first, size_t n, fq_error *err) {
    const fq_shard *shard = &r->checkpoint->shards[r->tensor->shard];
    const size_t size = fq_dtype_size(r->tensor->dtype);
    return shard->source->read(shard->source, shard->data_start + r->tensor->offset + first * size,
                               r->scratch, n * size, err);
}

static float decode(const scale_reader *r, size_t i) {
    uint16_t half;
    float single;
    switch (r->tensor->dtype) {
    case FQ_F32:
        memcpy(&single, r->scratch + 4 * i, 4);
        return single;
    case FQ_BF16:
        memcpy(&half, r->scratch + 2 * i, 2);
        return fq_f32_of_bf16(half);
    case FQ_F16:
        memcpy(&half, r->scratch + 2 * i, 2);
        return fq_f32_of_f16(half);
    default:
        return fq_f32_of_e8m0(r->scratch[i]); // F8_E8M0, or exponents in U8
    }
}

fq_status fq_scale_fail(const fq_checkpoint *checkpoint, const fq_tensor *tensor,
                        const fq_scale_window *window, uint64_t grid_index, const char *what,
                        fq_error *err) {
    const uint64_t grid_cols = fq_ceil_div(window->cols, window->block.cols);
    char expert[48] = "";
    if (tensor->rank == 3)
        snprintf(expert, sizeof expert, " of expert %" PRIu64, window->matrix);
    return fq_fail(err, FQ_BAD_INPUT,
                   "%s: %s: the scale of block [%" PRIu64 ", %" PRIu64
                   "]%s is %s; the checkpoint is damaged, get this file again",
                   fq_tensor_file(checkpoint, tensor), tensor->name,
                   window->row0 / window->block.rows + grid_index / grid_cols,
                   window->col0 / window->block.cols + grid_index % grid_cols, expert, what);
}

const char *fq_scale_flaw_text(fq_scale_flaw flaw) {
    switch (flaw) {
    case FQ_SCALE_NAN:
        return "NaN";
    case FQ_SCALE_INFINITE:
        return "infinite";
    case FQ_SCALE_NEGATIVE:
        return "negative";
    case FQ_SCALE_UNEVEN:
        return "not the same in all its packed words";
    case FQ_SCALE_PADDING:
        return "the last before packed bytes that are not 0";
    case FQ_SCALE_ZERO:
        return "zero, but the block is not";
    case FQ_SCALE_UNROUNDED:
        return "no power of two, but all are said to be";
    default:
        return "sound";
    }
}

static fq_scale_flaw flaw_of(float scale) {
    if (isnan(scale))
        return FQ_SCALE_NAN;
    if (isinf(scale))
        return FQ_SCALE_INFINITE;
    return signbit(scale) ? FQ_SCALE_NEGATIVE : FQ_SCALE_SOUND;
}

void fq_scale_flaws_add(fq_scale_flaws *flaws, fq_scale_flaw flaw, uint64_t row, uint64_t col) {
    if (flaws->n++ == 0 || row < flaws->row || (row == flaws->row && col < flaws->col)) {
        flaws->kind = flaw;
        flaws->row = row;
        flaws->col = col;
    }
}

// grid_index counts in the window's grid.
static void note_flaw(const scale_reader *r, fq_scale_flaw flaw, uint64_t grid_index) {
    fq_scale_flaws_add(r->flaws, flaw,
                       r->window->row0 / r->window->block.rows + grid_index / r->grid_cols,
                       r->window->col0 / r->window->block.cols + grid_index % r->grid_cols);
}

// Puts a scale into the grid.
static fq_status take_scale(const scale_reader *r, float *grid, uint64_t grid_index, float scale,
                            fq_error *err) {
    const fq_scale_flaw flaw = flaw_of(scale);
    grid[grid_index] = scale;
    if (flaw == FQ_SCALE_SOUND)
        return FQ_OK;
    if (!r->flaws)
        return fq_scale_fail(r->checkpoint, r->tensor, r->window, grid_index,
                             fq_scale_flaw_text(flaw), err);
    note_flaw(r, flaw, grid_index);
    grid[grid_index] = NAN;
    return FQ_OK;
}

static fq_status read_run(const scale_reader *r, float *grid, uint64_t grid_index, uint64_t first,
                          uint64_t n, fq_error *err) {
    const size_t capacity = r->scratch_nbytes / fq_dtype_size(r->tensor->dtype);
    for (uint64_t done = 0; done < n;) {
        const size_t part = n - done < capacity ? (size_t)(n - done) : capacity;
        fq_status status = read_elements(r, first + done, part, err);
        for (size_t i = 0; i < part && !status; i++)
            status = take_scale(r, grid, grid_index + done + i, decode(r, i), err);
        if (status)
            return status;
        done += part;
    }
    return FQ_OK;
}

static fq_status read_grid(const scale_reader *r, float *grid, fq_error *err) {
    const fq_scale_window *window = r->window;
    const uint64_t stride = fq_ceil_div(window->weight_cols, window->block.cols);
    const uint64_t grid_rows = fq_ceil_div(window->rows, window->block.rows);
    const uint64_t first_row =
        window->matrix * fq_ceil_div(window->weight_rows, window->block.rows) +
        window->row0 / window->block.rows;
    const uint64_t start = first_row * stride + window->col0 / window->block.cols;
    if (r->grid_cols == stride)
        return read_run(r, grid, 0, start, grid_rows * stride, err);
    for (uint64_t i = 0; i < grid_rows; i++) {
        const fq_status status =
            read_run(r, grid, i * r->grid_cols, start + i * stride, r->grid_cols, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

static fq_status fail_uneven(const scale_reader *r, uint64_t row, fq_error *err) {
    return fq_fail(err, FQ_BAD_INPUT,
                   "%s: %s: packed scales differ within a block, at row %" PRIu64
                   "; the tensor is damaged or laid out in another way",
                   fq_tensor_file(r->checkpoint, r->tensor), r->tensor->name,
                   r->window->row0 + row);
}

// Takes the exponents of one row of weights apart; rows of one block must agree.
static fq_status unpack_word(const scale_reader *r, float *grid, uint64_t row, uint64_t k,
                             uint32_t word, fq_error *err) {
    const uint64_t grid_row = row / FQ_BLOCK_SIZE;
    for (uint32_t byte = 0; byte < FQ_PACKED_EXPONENTS; byte++) {
        const uint64_t col = k * FQ_PACKED_EXPONENTS + byte;
        if (col >= r->grid_cols) {
            if (r->flaws && word >> (8 * byte))
                note_flaw(r, FQ_SCALE_PADDING, (grid_row + 1) * r->grid_cols - 1);
            break;
        }
        const uint64_t index = grid_row * r->grid_cols + col;
        const float scale = fq_f32_of_e8m0((uint8_t)(word >> (8 * byte)));
        if (row % FQ_BLOCK_SIZE == 0) {
            const fq_status status = take_scale(r, grid, index, scale, err);
            if (status)
                return status;
        } else if (grid[index] != scale && !isnan(grid[index])) { // NaN: has been found already
            if (!r->flaws)
                return fail_uneven(r, row, err);
            note_flaw(r, FQ_SCALE_UNEVEN, index);
            grid[index] = NAN;
        }
    }
    return FQ_OK;
}

static fq_status read_packed_row(const scale_reader *r, float *grid, uint64_t k, fq_error *err) {
    const fq_scale_window *window = r->window;
    const size_t capacity = r->scratch_nbytes / sizeof(uint32_t);
    const uint64_t first =
        (window->col0 / FQ_PACKED_COLS + k) * fq_packed_stride(window->weight_rows) + window->row0;
    for (uint64_t done = 0; done < window->rows;) {
        const uint64_t left = window->rows - done;
        const size_t part = left < capacity ? (size_t)left : capacity;
        fq_status status = read_elements(r, first + done, part, err);
        for (size_t i = 0; i < part && !status; i++) {
            uint32_t word;
            memcpy(&word, r->scratch + i * sizeof word, sizeof word);
            status = unpack_word(r, grid, done + i, k, word, err);
        }
        if (status)
            return status;
        done += part;
    }
    return FQ_OK;
}

static fq_status read_packed(const scale_reader *r, float *grid, fq_error *err) {
    assert(r->window->block.rows == FQ_BLOCK_SIZE && r->window->block.cols == FQ_BLOCK_SIZE);
    assert(r->window->col0 % FQ_PACKED_COLS == 0 && r->window->matrix == 0);
    const uint64_t n_words = fq_ceil_div(r->window->cols, FQ_PACKED_COLS);
    for (uint64_t k = 0; k < n_words; k++) {
        const fq_status status = read_packed_row(r, grid, k, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

// The words of rows behind the last one: all 0.
static fq_status examine_padding(const scale_reader *r, fq_error *err) {
    const fq_scale_window *window = r->window;
    const uint64_t n_words = fq_ceil_div(window->cols, FQ_PACKED_COLS);
    const uint64_t stride = fq_packed_stride(window->weight_rows);
    const bool is_last = window->row0 + window->rows == window->weight_rows;
    const uint64_t last_row = fq_ceil_div(window->rows, FQ_BLOCK_SIZE) - 1;
    const size_t n = (size_t)(stride - window->weight_rows); // 3 at most
    for (uint64_t k = 0; k < n_words && is_last && n > 0; k++) {
        const uint64_t first = (window->col0 / FQ_PACKED_COLS + k) * stride + window->weight_rows;
        const fq_status status = read_elements(r, first, n, err);
        if (status)
            return status;
        for (size_t i = 0; i < n * sizeof(uint32_t); i++) {
            if (r->scratch[i])
                note_flaw(r, FQ_SCALE_PADDING, last_row * r->grid_cols + k * FQ_PACKED_EXPONENTS);
        }
    }
    return FQ_OK;
}

static fq_status read_window(const scale_reader *r, float *grid, fq_scale_storage storage,
                             fq_error *err) {
    assert(r->window->row0 % r->window->block.rows == 0);
    assert(r->window->col0 % r->window->block.cols == 0);
    assert(r->scratch_nbytes >= FQ_SCALE_MIN_SCRATCH);
    return storage == FQ_STORED_PACKED ? read_packed(r, grid, err) : read_grid(r, grid, err);
}

static scale_reader make_reader(const fq_checkpoint *checkpoint, const fq_tensor *tensor,
                                const fq_scale_window *window, void *scratch,
                                size_t scratch_nbytes) {
    return (scale_reader){
        .checkpoint = checkpoint,
        .tensor = tensor,
        .window = window,
        .grid_cols = fq_ceil_div(window->cols, window->block.cols),
        .scratch = scratch,
        .scratch_nbytes = scratch_nbytes,
    };
}

fq_status fq_scale_read(float *grid, const fq_checkpoint *checkpoint, const fq_tensor *tensor,
                        fq_scale_storage storage, const fq_scale_window *window, void *scratch,
                        size_t scratch_nbytes, fq_error *err) {
    const scale_reader reader = make_reader(checkpoint, tensor, window, scratch, scratch_nbytes);
    return read_window(&reader, grid, storage, err);
}

fq_status fq_scale_examine(float *grid, fq_scale_flaws *flaws, const fq_checkpoint *checkpoint,
                           const fq_tensor *tensor, fq_scale_storage storage,
                           const fq_scale_window *window, void *scratch, size_t scratch_nbytes,
                           fq_error *err) {
    scale_reader reader = make_reader(checkpoint, tensor, window, scratch, scratch_nbytes);
    reader.flaws = flaws;
    *flaws = (fq_scale_flaws){0};
    fq_status status = read_window(&reader, grid, storage, err);
    if (!status && storage == FQ_STORED_PACKED)
        status = examine_padding(&reader, err);
    return status;
}
