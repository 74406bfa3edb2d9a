// Grids of scales: the few forms that are read, and names for those that are refused.
#include "grid.h"

#include <inttypes.h>
#include <string.h>

enum { SHAPE_TEXT_SIZE = 128 }; // longer than any sound scale's

static const fq_block weight_block = {FQ_BLOCK_SIZE, FQ_BLOCK_SIZE};
static const fq_block square_mx_block = {32, 32}; // DeepSeek-V4.1
static const fq_block mx_block = {1, 32};         // OCP microscaling

// The grid that a weight needs in a block: [rows, cols], after n_matrices where it is a stack.
typedef struct needed_grid {
    uint64_t n_matrices; // 0: a single matrix
    uint64_t rows, cols;
} needed_grid;

static needed_grid grid_of(const fq_tensor *weight, fq_block block) {
    const uint64_t *matrix = weight->shape + weight->rank - 2;
    return (needed_grid){
        .n_matrices = weight->rank == 3 ? weight->shape[0] : 0,
        .rows = fq_ceil_div(matrix[0], block.rows),
        .cols = fq_ceil_div(matrix[1], block.cols),
    };
}

// Exporters squeeze dimensions of 1 away, or put some in: [rows, 1, cols, 1].
static bool fits(const fq_tensor *scale, needed_grid grid) {
    const uint64_t *s = scale->shape;
    if (grid.n_matrices > 0)
        return scale->rank == 3 && s[0] == grid.n_matrices && s[1] == grid.rows &&
               s[2] == grid.cols;
    switch (scale->rank) {
    case 0:
        return grid.rows == 1 && grid.cols == 1;
    case 1:
        return (grid.cols == 1 && s[0] == grid.rows) || (grid.rows == 1 && s[0] == grid.cols);
    case 2:
        return s[0] == grid.rows && s[1] == grid.cols;
    case 4:
        return s[0] == grid.rows && s[1] == 1 && s[2] == grid.cols && s[3] == 1;
    default:
        return false;
    }
}

static bool is_block(fq_block a, fq_block b) { return a.rows == b.rows && a.cols == b.cols; }

static bool is_exponent(fq_dtype dtype) { return dtype == FQ_F8_E8M0 || dtype == FQ_U8; }

// The blocks to be tried, best first; returns how many. The config's own is all there is, but for
// microscaling exponents: some of its tensors have them row by row.
static size_t list_blocks(fq_block out[3], fq_dtype scale_dtype, const fq_quant_config *quant) {
    size_t n = 0;
    out[n++] = quant->has_block ? quant->block : weight_block;
    if (!is_exponent(scale_dtype))
        return n;
    if (!quant->has_block)
        out[n++] = square_mx_block;
    if (!quant->has_block || quant->block.cols == mx_block.cols)
        out[n++] = mx_block;
    return n;
}

// U8 may hold anything: it is an exponent only where something says so.
static bool is_exponent_by_config(const fq_quant_config *quant) {
    return quant->ue8m0 || (quant->method && strcmp(quant->method, "mxfp8") == 0);
}

static fq_status match_packed(fq_pair *pair, const fq_quant_config *quant, fq_error *why) {
    const fq_tensor *weight = pair->weight, *scale = pair->scale;
    if (weight->rank != 2 || (quant->has_block && !is_block(quant->block, weight_block)))
        return fq_fail(why, FQ_BAD_INPUT,
                       "I32 scales are read only as packed exponents of a matrix in blocks of "
                       "128 x 128; start from another checkpoint");
    const uint64_t needed[] = {fq_ceil_div(weight->shape[1], FQ_PACKED_COLS),
                               fq_packed_stride(weight->shape[0])};
    if (scale->rank != 2 || scale->shape[0] != needed[0] || scale->shape[1] != needed[1]) {
        char is[SHAPE_TEXT_SIZE], must_be[SHAPE_TEXT_SIZE];
        fq_shape_format(is, sizeof is, scale->shape, scale->rank);
        fq_shape_format(must_be, sizeof must_be, needed, 2);
        return fq_fail(
            why, FQ_BAD_INPUT,
            "I32 %s is no packed scale tensor of %s, which would be %s; get the file again", is,
            weight->name, must_be);
    }
    pair->storage = FQ_STORED_PACKED;
    pair->block = weight_block;
    return FQ_OK;
}

// What a coarser scale tensor has one scale for, where that is known; NULL if it is not.
static const char *name_granularity(const fq_tensor *weight, const fq_tensor *scale) {
    uint64_t n = 0;
    if (fq_shape_volume(&n, scale->shape, scale->rank) && n == 1)
        return "the whole tensor";
    if (weight->rank == 3)
        return scale->shape[0] == weight->shape[0] && n == weight->shape[0] ? "each expert" : NULL;
    const bool is_column = scale->rank == 2 && scale->shape[1] == 1;
    return (scale->rank == 1 || is_column) && scale->shape[0] == weight->shape[0] ? "each row"
                                                                                  : NULL;
}

static fq_status fail_grid(const fq_pair *pair, fq_block block, fq_error *why) {
    const fq_tensor *weight = pair->weight, *scale = pair->scale;
    const needed_grid grid = grid_of(weight, block);
    const uint64_t needed[] = {grid.n_matrices, grid.rows, grid.cols};
    char is[SHAPE_TEXT_SIZE], must_be[SHAPE_TEXT_SIZE];
    fq_shape_format(is, sizeof is, scale->shape, scale->rank);
    fq_shape_format(must_be, sizeof must_be, grid.n_matrices ? needed : needed + 1,
                    grid.n_matrices ? 3 : 2);
    const char *granularity = name_granularity(weight, scale);
    if (granularity)
        return fq_fail(why, FQ_BAD_INPUT,
                       "shape %s is one scale for %s of %s; this version reads block scales only, "
                       "here %s for blocks of %" PRIu64 " x %" PRIu64
                       "; start from an unquantized or a block-scaled FP8 checkpoint",
                       is, granularity, weight->name, must_be, block.rows, block.cols);
    const bool is_split = weight->rank == 2 && scale->rank == 2 && scale->shape[1] == grid.cols &&
                          scale->shape[0] > grid.rows;
    return fq_fail(why, FQ_BAD_INPUT,
                   "shape %s does not fit %s, which needs %s in blocks of %" PRIu64 " x %" PRIu64
                   "; %s",
                   is, weight->name, must_be, block.rows, block.cols,
                   is_split ? "more rows of scales than blocks: they were made for each part of a "
                              "tensor-parallel split; merge them with the tool that made them"
                            : "check weight_block_size in config.json, or get the file again");
}

static bool is_readable(fq_dtype dtype) { return fq_dtype_is_source(dtype) || is_exponent(dtype); }

fq_status fq_grid_match(fq_pair *pair, const fq_quant_config *quant, fq_error *why) {
    const fq_tensor *scale = pair->scale;
    if (scale->dtype == FQ_I32)
        return match_packed(pair, quant, why);
    if (!is_readable(scale->dtype))
        return fq_fail(why, FQ_BAD_INPUT,
                       "scales of dtype %s are not read; only F32, BF16, F16, F8_E8M0, U8 and "
                       "packed I32 are; start from another checkpoint",
                       fq_dtype_name(scale->dtype));
    fq_block blocks[3];
    const size_t n = list_blocks(blocks, scale->dtype, quant);
    size_t i = 0;
    while (i < n && !fits(scale, grid_of(pair->weight, blocks[i])))
        i++;
    if (i == n)
        return fail_grid(pair, blocks[0], why);
    if (scale->dtype == FQ_U8 && !is_block(blocks[i], mx_block) && !is_exponent_by_config(quant))
        return fq_fail(why, FQ_BAD_INPUT,
                       "U8 scales are taken for exponents only if config.json says scale_fmt "
                       "ue8m0 or quant_method mxfp8; add what is true of it");
    pair->storage = scale->dtype == FQ_U8 ? FQ_STORED_U8 : FQ_STORED_GRID;
    pair->block = blocks[i];
    return FQ_OK;
}
