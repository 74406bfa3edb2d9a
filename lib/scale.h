// The layouts of scale tensors: one float per block in memory, and the forms it is stored in.
#ifndef FQ_SCALE_H
#define FQ_SCALE_H

#include "block.h"
#include "sink.h"
#include "tensor.h"

enum {
    FQ_BLOCK_SIZE = 128,     // rows and columns of the blocks that fp8q writes
    FQ_PACKED_EXPONENTS = 4, // in one word of the packed layout
    FQ_PACKED_COLS = FQ_PACKED_EXPONENTS * FQ_BLOCK_SIZE, // columns of weights behind one word
    FQ_SCALE_MIN_SCRATCH = 4096,
};

// Words from one row of the packed layout to the next: rows of weights rounded up to 16 bytes.
static inline uint64_t fq_packed_stride(uint64_t rows) { return (rows + 3) / 4 * 4; }

// --scale-format (docs/formats.md).
typedef enum fq_scale_format {
    FQ_SCALE_F32,    // F32 grid
    FQ_SCALE_POW2,   // F32 grid, powers of two
    FQ_SCALE_E8M0,   // F8_E8M0 grid
    FQ_SCALE_PACKED, // I32 [ceil(K/512), align(N, 4)]: four exponents a word, one word per weight
                     // row
    FQ_SCALE_FORMAT_COUNT
} fq_scale_format;

// "f32", "pow2", "e8m0", "packed"; static.
const char *fq_scale_format_name(fq_scale_format format);

// True for all but f32: the config then says scale_fmt "ue8m0".
bool fq_scale_format_is_ue8m0(fq_scale_format format);

// dtype and shape (rank 2) of the scale tensor of a weight [rows, cols] in 128×128 blocks.
void fq_scale_tensor_shape(fq_scale_format format, uint64_t rows, uint64_t cols, fq_dtype *dtype,
                           uint64_t shape[2]);

// A rectangle of blocks of one weight, the unit that scales are moved in. Rows and columns of
// elements; row0 and col0 are multiples of the block.
typedef struct fq_scale_window {
    uint64_t matrix;                   // its number in a stack (experts); 0 for a single one
    uint64_t weight_rows, weight_cols; // of the whole matrix
    fq_block block;
    uint64_t row0, rows;
    uint64_t col0, cols;
} fq_scale_window;

// Writes the window's scales, grid [ceil(rows/block.rows), ceil(cols/block.cols)], in their stored
// form to file; tensor_offset is where the scale tensor starts in the shard's data. Writing all
// windows of a matrix writes every byte of the scale tensor once, packed padding included, as long
// as windows of `packed` start at a multiple of four blocks of columns.
// scratch: 4-byte aligned, scratch_nbytes ≥ FQ_SCALE_MIN_SCRATCH, for staging. Block 128×128 only.
fq_status fq_scale_write(fq_sink_file *file, fq_sink *sink, uint64_t tensor_offset,
                         fq_scale_format format, const fq_scale_window *window, const float *grid,
                         void *scratch, size_t scratch_nbytes, fq_error *err);

// How a stored scale tensor holds the scales of a weight; found by pairing.
typedef enum fq_scale_storage {
    FQ_STORED_GRID,   // floating: F32, BF16, F16 or F8_E8M0, one element per block
    FQ_STORED_U8,     // exponents in U8, one per block
    FQ_STORED_PACKED, // FQ_SCALE_PACKED's words
} fq_scale_storage;

// Reads the window's scales into grid. A NaN, infinite or negative scale, -0.0 too, or packed words
// that differ within a block are FQ_BAD_INPUT, naming the tensor and the block. Zero is let
// through: it is right over a block of zeros. scratch as above.
fq_status fq_scale_read(float *grid, const fq_checkpoint *checkpoint, const fq_tensor *tensor,
                        fq_scale_storage storage, const fq_scale_window *window, void *scratch,
                        size_t scratch_nbytes, fq_error *err);

// What may be wrong with a scale as it is stored.
typedef enum fq_scale_flaw {
    FQ_SCALE_SOUND,
    FQ_SCALE_NAN,
    FQ_SCALE_INFINITE,
    FQ_SCALE_NEGATIVE, // -0.0 too
    FQ_SCALE_UNEVEN,   // packed words differ within a block
    FQ_SCALE_PADDING,  // packed bytes behind the last block or row are not 0
    // What only those see who know more than the scale:
    FQ_SCALE_ZERO,      // over a block that is not zero
    FQ_SCALE_UNROUNDED, // no power of two, where all must be
} fq_scale_flaw;

// Flaws of a window's scales. Where there are some, that of the first block in row-major order.
typedef struct fq_scale_flaws {
    uint64_t n; // as often as they were met
    fq_scale_flaw kind;
    uint64_t row, col; // of the block in the grid of its matrix
} fq_scale_flaws;

// Like fq_scale_read, but flaws are found instead of failing: such scales are NaN in the grid.
// Padding, which the window that reaches the end of a row or column has, is looked at too.
fq_status fq_scale_examine(float *grid, fq_scale_flaws *flaws, const fq_checkpoint *checkpoint,
                           const fq_tensor *tensor, fq_scale_storage storage,
                           const fq_scale_window *window, void *scratch, size_t scratch_nbytes,
                           fq_error *err);

// Adds the flaw of a block.
void fq_scale_flaws_add(fq_scale_flaws *flaws, fq_scale_flaw flaw, uint64_t row, uint64_t col);

// "NaN", "infinite": the end of a sentence on a scale; static.
const char *fq_scale_flaw_text(fq_scale_flaw flaw);

// Fails with what is wrong ("NaN") with the scale of one block, number grid_index in the window's
// grid. Only scales of a stack are a tensor of rank 3: then the expert is named too. FQ_BAD_INPUT.
fq_status fq_scale_fail(const fq_checkpoint *checkpoint, const fq_tensor *tensor,
                        const fq_scale_window *window, uint64_t grid_index, const char *what,
                        fq_error *err);

#endif
