// Brings a band's source elements into one contiguous buffer: see band_read.h.
#include "band_read.h"

#include <string.h>

typedef struct band_reader {
    fq_source *source;
    uint64_t start; // of the tensor in the source
    size_t size;    // of an element
    const fq_band *band;
    unsigned char *out;
    unsigned char *staging;
    size_t staging_nbytes;
} band_reader;

static fq_status read_elements(const band_reader *r, uint64_t element, uint64_t n, void *out,
                               fq_error *err) {
    return r->source->read(r->source, r->start + element * r->size, out, n * r->size, err);
}

static fq_status read_straight(const band_reader *r, fq_error *err) {
    const fq_band *band = r->band;
    const fq_matrix *matrix = &band->step->source_matrix;
    const uint64_t first = matrix->element0 + band->row0 * matrix->cols + band->col0;
    if (band->cols == matrix->cols)
        return read_elements(r, first, band->rows * band->cols, r->out, err);
    for (uint64_t i = 0; i < band->rows; i++) {
        const fq_status status = read_elements(r, first + i * matrix->cols, band->cols,
                                               r->out + i * band->cols * r->size, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

// Puts stored rows [n_stored, n_rows] from staging into columns col.. and rows row.. of the band.
static void turn(const band_reader *r, uint64_t row, uint64_t n_rows, uint64_t col,
                 uint64_t n_stored) {
    for (uint64_t i = 0; i < n_rows; i++) {
        unsigned char *to = r->out + ((row + i) * r->band->cols + col) * r->size;
        const unsigned char *from = r->staging + i * r->size;
        for (uint64_t k = 0; k < n_stored; k++)
            memcpy(to + k * r->size, from + k * n_rows * r->size, r->size);
    }
}

static fq_status read_turned(const band_reader *r, fq_error *err) {
    enum { TILE = 64 }; // stored rows turned at once: a cache line and more of each output row
    const fq_band *band = r->band;
    const fq_matrix *matrix = &band->step->source_matrix;
    const uint64_t capacity = r->staging_nbytes / r->size / TILE; // of one stored row
    for (uint64_t row = 0; row < band->rows; row += capacity) {
        const uint64_t n_rows = band->rows - row < capacity ? band->rows - row : capacity;
        for (uint64_t col = 0; col < band->cols; col += TILE) {
            const uint64_t n_stored = band->cols - col < TILE ? band->cols - col : TILE;
            for (uint64_t k = 0; k < n_stored; k++) {
                const uint64_t element =
                    matrix->element0 + (band->col0 + col + k) * matrix->stride + band->row0 + row;
                const fq_status status =
                    read_elements(r, element, n_rows, r->staging + k * n_rows * r->size, err);
                if (status)
                    return status;
            }
            turn(r, row, n_rows, col, n_stored);
        }
    }
    return FQ_OK;
}

fq_status fq_band_read(void *out, const fq_checkpoint *checkpoint, const fq_band *band,
                       void *staging, size_t staging_nbytes, fq_error *err) {
    const fq_tensor *tensor = band->step->source;
    const fq_shard *shard = &checkpoint->shards[tensor->shard];
    const uint64_t start = shard->data_start + tensor->offset;
    if (band->step->action == FQ_COPY)
        return shard->source->read(shard->source, start + band->byte0, out, band->nbytes, err);
    const band_reader reader = {
        .source = shard->source,
        .start = start,
        .size = fq_dtype_size(tensor->dtype),
        .band = band,
        .out = out,
        .staging = staging,
        .staging_nbytes = staging_nbytes,
    };
    return band->step->source_matrix.transposed ? read_turned(&reader, err)
                                                : read_straight(&reader, err);
}
