// Cuts a plan into bands: pieces of work of bounded size, in the order that reads the input from
// front to back. Blocks are independent, so any cut gives the same bytes.
#ifndef FQ_BAND_H
#define FQ_BAND_H

#include "plan.h"

enum {
    // The least band: 512 columns (see fq_band_col_unit) of blocks of up to 512 rows.
    FQ_MIN_BAND_ELEMENTS = 512 * 512,
    // What a lane's buffers take for each element of the largest band: up to 4 as it is read, 4 as
    // it is written.
    FQ_BAND_ELEMENT_NBYTES = 8,
};

// A rectangle of whole blocks of a step's matrix, or a run of bytes of a copy.
typedef struct fq_band {
    uint64_t order; // smaller for what comes earlier in the plan: by shard, then by place in it
    size_t shard;
    const fq_step *step; // NULL: the only band of a shard without steps
    uint64_t row0, rows; // matrix steps
    uint64_t col0, cols;
    uint64_t byte0, nbytes;        // copies
    bool begins_shard, ends_shard; // the first and the last band of their shard
} fq_band;

// A place among the bands of one shard.
typedef struct fq_band_cursor {
    const fq_plan *plan;
    size_t shard;
    size_t max_elements; // at least FQ_MIN_BAND_ELEMENTS; of bytes for copies; see fq_band_piece
    size_t step;         // of the next band
    uint64_t row, col, byte;
    uint64_t n_given;
    bool ended;
} fq_band_cursor;

// A cursor at the first band of a shard.
fq_band_cursor fq_band_first(const fq_plan *plan, size_t shard, size_t max_elements);

// Rows and columns of the bands that the step's matrix is cut into, those at its ends aside. They
// may be more than it has.
void fq_band_size(uint64_t *rows, uint64_t *cols, const fq_step *step, size_t max_elements);

// The order of the next band, where there is one.
uint64_t fq_band_next_order(const fq_band_cursor *cursor);

// The next band; false when there is none. Every shard has at least one band, and so has every
// step. Bands of empty tensors have no rows, columns or bytes.
bool fq_band_next(fq_band_cursor *cursor, fq_band *out);

// Bands of a transposed matrix may have more than max_elements, up to this: their rows are what is
// stored in one run, and short runs take long to read. A lane has only their codes as a whole, in
// what its other buffers leave; all else is done piece by piece.
size_t fq_band_max_turned(size_t max_elements, fq_dtype source);

// The piece of the band that begins at col, counted from the band's first: all of its rows, and as
// many columns as max_elements allow. Of most bands it is the whole.
fq_band fq_band_piece(const fq_band *band, uint64_t col, size_t max_elements);

// The band's window on the scales of its matrix.
fq_scale_window fq_band_window(const fq_band *band);

// True if the codes of block (i, j) of the band are all ±0. codes: E4M3 [band->rows, band->cols].
bool fq_band_block_is_zero(const fq_band *band, const uint8_t *codes, uint64_t i, uint64_t j);

// Columns that bands are cut at: whole blocks, and whole words of packed scales.
uint64_t fq_band_col_unit(fq_block block);

// True if a band of any size holds such a block whole. Larger ones than 512 x 512 may not.
bool fq_band_holds(fq_block block);

// The most blocks that a band of so many elements holds.
size_t fq_band_max_blocks(size_t max_elements);

#endif
