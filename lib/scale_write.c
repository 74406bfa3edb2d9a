// Writes the scales of a window of blocks in their stored form: see scale.h.
#include "fp8.h"
#include "scale.h"

#include <assert.h>

typedef struct scale_writer {
    fq_sink *sink;
    fq_sink_file *file;
    uint64_t tensor_offset;
    const fq_scale_window *window;
    const float *grid;
    uint64_t grid_rows, grid_cols; // blocks of the window
    unsigned char *scratch;
    size_t scratch_nbytes;
} scale_writer;

static fq_status write_bytes(const scale_writer *w, uint64_t byte, const void *data,
                             uint64_t nbytes, fq_error *err) {
    const fq_sink_rows run = fq_sink_run(w->tensor_offset + byte, nbytes);
    return w->sink->write(w->file, &run, data, err);
}

static fq_status write_f32_run(const scale_writer *w, uint64_t element, const float *scales,
                               uint64_t n, fq_error *err) {
    return write_bytes(w, element * sizeof *scales, scales, n * sizeof *scales, err);
}

static fq_status write_e8m0_run(const scale_writer *w, uint64_t element, const float *scales,
                                uint64_t n, fq_error *err) {
    for (uint64_t done = 0; done < n;) {
        const uint64_t left = n - done;
        const size_t part = left < w->scratch_nbytes ? (size_t)left : w->scratch_nbytes;
        for (size_t i = 0; i < part; i++)
            w->scratch[i] = fq_e8m0_of_f32_up(scales[done + i]);
        const fq_status status = write_bytes(w, element + done, w->scratch, part, err);
        if (status)
            return status;
        done += part;
    }
    return FQ_OK;
}

typedef fq_status run_writer(const scale_writer *w, uint64_t element, const float *scales,
                             uint64_t n, fq_error *err);

// A grid, one element per block. A window as wide as the weight is one run of the tensor.
static fq_status write_grid(const scale_writer *w, run_writer *write_run, fq_error *err) {
    const fq_scale_window *window = w->window;
    const uint64_t stride = fq_ceil_div(window->weight_cols, window->block.cols);
    const uint64_t start =
        window->row0 / window->block.rows * stride + window->col0 / window->block.cols;
    if (w->grid_cols == stride)
        return write_run(w, start, w->grid, w->grid_rows * stride, err);
    for (uint64_t i = 0; i < w->grid_rows; i++) {
        const fq_status status =
            write_run(w, start + i * stride, w->grid + i * w->grid_cols, w->grid_cols, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

// The word of one row of weights: exponents of up to four blocks of columns, lowest byte first.
static uint32_t packed_word(const scale_writer *w, uint64_t grid_row, uint64_t first_col) {
    uint32_t word = 0;
    for (uint32_t byte = 0; byte < FQ_PACKED_EXPONENTS && first_col + byte < w->grid_cols; byte++) {
        const float scale = w->grid[grid_row * w->grid_cols + first_col + byte];
        word |= (uint32_t)fq_e8m0_of_f32_up(scale) << (8 * byte);
    }
    return word;
}

// One row of words of the tensor: the window's rows, and the padding behind the last row.
static fq_status write_packed_row(const scale_writer *w, uint64_t k, fq_error *err) {
    const fq_scale_window *window = w->window;
    const uint64_t stride = fq_packed_stride(window->weight_rows);
    const uint64_t packed_row = window->col0 / FQ_PACKED_COLS + k;
    const bool last = window->row0 + window->rows == window->weight_rows;
    const uint64_t end = last ? stride : window->row0 + window->rows;
    uint32_t *words = (uint32_t *)(void *)w->scratch;
    const size_t capacity = w->scratch_nbytes / sizeof *words;
    for (uint64_t row = window->row0; row < end;) {
        const uint64_t byte = (packed_row * stride + row) * sizeof *words;
        size_t n = 0;
        for (; n < capacity && row < end; n++, row++) {
            const uint64_t grid_row = (row - window->row0) / window->block.rows;
            words[n] =
                row < window->weight_rows ? packed_word(w, grid_row, k * FQ_PACKED_EXPONENTS) : 0;
        }
        const fq_status status = write_bytes(w, byte, words, n * sizeof *words, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

static fq_status write_packed(const scale_writer *w, fq_error *err) {
    assert(w->window->col0 % FQ_PACKED_COLS == 0);
    const uint64_t n_words = fq_ceil_div(w->window->cols, FQ_PACKED_COLS);
    for (uint64_t k = 0; k < n_words; k++) {
        const fq_status status = write_packed_row(w, k, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

fq_status fq_scale_write(fq_sink_file *file, fq_sink *sink, uint64_t tensor_offset,
                         fq_scale_format format, const fq_scale_window *window, const float *grid,
                         void *scratch, size_t scratch_nbytes, fq_error *err) {
    assert(window->block.rows == FQ_BLOCK_SIZE && window->block.cols == FQ_BLOCK_SIZE);
    assert(window->row0 % window->block.rows == 0 && window->col0 % window->block.cols == 0);
    assert(scratch_nbytes >= FQ_SCALE_MIN_SCRATCH);
    const scale_writer writer = {
        .sink = sink,
        .file = file,
        .tensor_offset = tensor_offset,
        .window = window,
        .grid = grid,
        .grid_rows = fq_ceil_div(window->rows, window->block.rows),
        .grid_cols = fq_ceil_div(window->cols, window->block.cols),
        .scratch = scratch,
        .scratch_nbytes = scratch_nbytes,
    };
    switch (format) {
    case FQ_SCALE_E8M0:
        return write_grid(&writer, write_e8m0_run, err);
    case FQ_SCALE_PACKED:
        return write_packed(&writer, err);
    default:
        return write_grid(&writer, write_f32_run, err);
    }
}
