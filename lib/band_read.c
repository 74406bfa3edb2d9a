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

// A band's place in its tensor: stored rows of n elements, stride apart.
typedef struct stored_rows {
    uint64_t first, stride, n_rows, n;
} stored_rows;

static stored_rows rows_of(const fq_band *band) {
    const fq_matrix *matrix = &band->step->source_matrix;
    stored_rows rows = {.n_rows = band->rows, .n = band->cols, .stride = matrix->cols};
    rows.first = matrix->element0 + band->row0 * matrix->cols + band->col0;
    if (matrix->transposed) {
        rows = (stored_rows){.n_rows = band->cols, .n = band->rows, .stride = matrix->stride};
        rows.first = matrix->element0 + band->col0 * matrix->stride + band->row0;
    }
    return rows;
}

// Reads them to out, where they are pitch elements apart.
static fq_status read_rows(const band_reader *r, const stored_rows *rows, void *out, uint64_t pitch,
                           fq_error *err) {
    if (rows->n == rows->stride && rows->n == pitch)
        return read_elements(r, rows->first, rows->n_rows * rows->n, out, err);
    for (uint64_t i = 0; i < rows->n_rows; i++) {
        const fq_status status = read_elements(r, rows->first + i * rows->stride, rows->n,
                                               (char *)out + i * pitch * r->size, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

enum {
    TILE = 64,            // stored rows turned at once: a cache line and more of each output row
    TILE_PAD_NBYTES = 64, // between them: rows that lie a power of two apart share few cache lines
};

// A tile: stored rows [n_stored, n_rows], pitch elements apart, that become rows row.. and columns
// col.. of the band.
typedef struct tile {
    uint64_t row, n_rows, col, n_stored;
    uint64_t pitch;
} tile;

// Turns 4 × 4 elements of 16 bits in registers: eight moves in place of thirty-two.
static void turn_quad(unsigned char *to, size_t to_nbytes, const unsigned char *from,
                      size_t from_nbytes) {
    const uint64_t even = UINT64_C(0x0000FFFF0000FFFF), low = UINT64_C(0x00000000FFFFFFFF);
    uint64_t a, b, c, d;
    memcpy(&a, from, 8);
    memcpy(&b, from + from_nbytes, 8);
    memcpy(&c, from + 2 * from_nbytes, 8);
    memcpy(&d, from + 3 * from_nbytes, 8);
    const uint64_t ab_even = (a & even) | (b & even) << 16, ab_odd = (a >> 16 & even) | (b & ~even);
    const uint64_t cd_even = (c & even) | (d & even) << 16, cd_odd = (c >> 16 & even) | (d & ~even);
    const uint64_t rows[4] = {(ab_even & low) | cd_even << 32, (ab_odd & low) | cd_odd << 32,
                              ab_even >> 32 | (cd_even & ~low), ab_odd >> 32 | (cd_odd & ~low)};
    for (size_t i = 0; i < 4; i++)
        memcpy(to + i * to_nbytes, &rows[i], 8);
}

static void turn_quads(const band_reader *r, const tile *t) {
    const size_t to_nbytes = r->band->cols * 2, from_nbytes = t->pitch * 2;
    for (uint64_t i = 0; i < t->n_rows; i += 4) {
        unsigned char *to = r->out + (t->row + i) * to_nbytes + t->col * 2;
        for (uint64_t k = 0; k < t->n_stored; k += 4)
            turn_quad(to + k * 2, to_nbytes, r->staging + k * from_nbytes + i * 2, from_nbytes);
    }
}

static void turn(const band_reader *r, const tile *t) {
    if (r->size == 2 && t->n_rows % 4 == 0 && t->n_stored % 4 == 0) {
        turn_quads(r, t);
        return;
    }
    for (uint64_t i = 0; i < t->n_rows; i++) {
        unsigned char *to = r->out + ((t->row + i) * r->band->cols + t->col) * r->size;
        for (uint64_t k = 0; k < t->n_stored; k++)
            memcpy(to + k * r->size, r->staging + (k * t->pitch + i) * r->size, r->size);
    }
}

static fq_status read_turned(const band_reader *r, fq_error *err) {
    const fq_band *band = r->band;
    const stored_rows all = rows_of(band);
    const uint64_t pad = TILE_PAD_NBYTES / r->size;
    const uint64_t capacity = r->staging_nbytes / r->size / TILE - pad; // of one stored row
    for (uint64_t row = 0; row < band->rows; row += capacity) {
        for (uint64_t col = 0; col < band->cols; col += TILE) {
            tile t = {.row = row, .col = col};
            t.n_rows = band->rows - row < capacity ? band->rows - row : capacity;
            t.n_stored = band->cols - col < TILE ? band->cols - col : TILE;
            t.pitch = t.n_rows + pad;
            const stored_rows part = {.first = all.first + col * all.stride + row,
                                      .stride = all.stride,
                                      .n_rows = t.n_stored,
                                      .n = t.n_rows};
            const fq_status status = read_rows(r, &part, r->staging, t.pitch, err);
            if (status)
                return status;
            turn(r, &t);
        }
    }
    return FQ_OK;
}

static band_reader reader_of(void *out, const fq_checkpoint *checkpoint, const fq_band *band) {
    const fq_tensor *tensor = band->step->source;
    const fq_shard *shard = &checkpoint->shards[tensor->shard];
    return (band_reader){
        .source = shard->source,
        .start = shard->data_start + tensor->offset,
        .size = fq_dtype_size(tensor->dtype),
        .band = band,
        .out = out,
    };
}

fq_status fq_band_read_stored(void *out, const fq_checkpoint *checkpoint, const fq_band *band,
                              fq_error *err) {
    const band_reader reader = reader_of(out, checkpoint, band);
    if (band->step->action == FQ_COPY)
        return reader.source->read(reader.source, reader.start + band->byte0, out, band->nbytes,
                                   err);
    const stored_rows rows = rows_of(band);
    return read_rows(&reader, &rows, out, rows.n, err);
}

fq_status fq_band_read(void *out, const fq_checkpoint *checkpoint, const fq_band *band,
                       void *staging, size_t staging_nbytes, fq_error *err) {
    if (band->step->action == FQ_COPY || !band->step->source_matrix.transposed)
        return fq_band_read_stored(out, checkpoint, band, err);
    band_reader reader = reader_of(out, checkpoint, band);
    reader.staging = staging;
    reader.staging_nbytes = staging_nbytes;
    return read_turned(&reader, err);
}
