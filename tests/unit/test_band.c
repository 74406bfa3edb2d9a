// A plan is cut into bands that cover every element once, never exceed the buffers, and keep order.
#include "lib/band.h"
#include "tests/check.h"

#include <stdlib.h>

typedef struct cut {
    uint64_t rows, cols;
    fq_block block;
    size_t max_elements;
} cut_case;

static void check_band(const cut_case *cut, const fq_band *band) {
    CHECK(band->rows > 0 && band->cols > 0);
    CHECK(band->rows * band->cols <= cut->max_elements);
    CHECK(fq_ceil_div(band->rows, cut->block.rows) * fq_ceil_div(band->cols, cut->block.cols) <=
          fq_band_max_blocks(cut->max_elements));
    CHECK_U64(band->row0 % cut->block.rows, 0);
    CHECK_U64(band->col0 % fq_band_col_unit(cut->block), 0);
}

// Bands come row by row of bands: together they are the matrix exactly if each begins where the
// one before ended.
static void check_cut(const cut_case *cut) {
    fq_step step = {.action = FQ_QUANTIZE,
                    .source_matrix = {.rows = cut->rows, .cols = cut->cols},
                    .block = cut->block};
    fq_plan_shard shard = {.steps = &step, .n_steps = 1};
    const fq_plan plan = {.shards = &shard, .n_shards = 1};
    fq_band_cursor cursor = fq_band_first(&plan, 0, cut->max_elements);
    fq_band band = {0};
    uint64_t row = 0, col = 0, n = 0;
    while (fq_band_next(&cursor, &band)) {
        check_band(cut, &band);
        CHECK_U64(band.row0, row);
        CHECK_U64(band.col0, col);
        CHECK_U64(band.order, n);
        CHECK(band.begins_shard == (n == 0));
        n++;
        col += band.cols;
        if (col == cut->cols) {
            col = 0;
            row += band.rows;
        }
        CHECK(band.ends_shard == (row == cut->rows));
    }
    CHECK(n > 0 && row == cut->rows && col == 0);
}

// Bands of transposed matrices: whole rows, as many as their codes allow, in pieces that fit the
// buffers and make up the band.
static void check_turned(uint64_t rows, uint64_t cols, fq_dtype dtype, uint64_t band_rows) {
    const size_t max_elements = 1 << 20;
    const fq_tensor source = {.name = "stack", .dtype = dtype};
    fq_step step = {.action = FQ_QUANTIZE,
                    .source = &source,
                    .source_matrix = {.rows = rows, .cols = cols, .transposed = true},
                    .block = {128, 128}};
    fq_plan_shard shard = {.steps = &step, .n_steps = 1};
    const fq_plan plan = {.shards = &shard, .n_shards = 1};
    fq_band_cursor cursor = fq_band_first(&plan, 0, max_elements);
    fq_band band = {0};
    uint64_t row = 0;
    while (fq_band_next(&cursor, &band)) {
        CHECK_U64(band.row0, row);
        CHECK_U64(band.rows, band_rows < rows - row ? band_rows : rows - row);
        CHECK(band.col0 == 0 && band.cols == cols);
        CHECK(band.rows * band.cols <= fq_band_max_turned(max_elements, dtype));
        row += band.rows;
        uint64_t col = 0;
        while (col < cols) {
            const fq_band piece = fq_band_piece(&band, col, max_elements);
            CHECK(piece.row0 == band.row0 && piece.rows == band.rows && piece.col0 == col);
            CHECK(piece.cols > 0 && piece.rows * piece.cols <= max_elements);
            CHECK_U64(piece.col0 % fq_band_col_unit(step.block), 0);
            col += piece.cols;
        }
        CHECK_U64(col, cols);
    }
    CHECK_U64(row, rows);
}

static void test_turned(void) {
    check_turned(8192, 5120, FQ_BF16, 1024); // 5 · 2^20 codes
    check_turned(8192, 5120, FQ_F32, 512);   // 3 · 2^20, in whole blocks
    check_turned(8192, 640, FQ_BF16, 2048);  // a piece has 512 columns at least
    check_turned(8192, 100, FQ_BF16, 8192);  // one piece
    check_turned(200, 5120, FQ_BF16, 200);
    check_turned(200, 40960, FQ_BF16, 128);
}

static void test_cuts(void) {
    static const cut_case cuts[] = {
        {1, 1, {128, 128}, FQ_MIN_BAND_ELEMENTS},
        {7168, 18432, {128, 128}, 1 << 20},
        {7168, 18432, {128, 128}, FQ_MIN_BAND_ELEMENTS},
        {130, 1100, {128, 128}, FQ_MIN_BAND_ELEMENTS},
        {8388736, 1, {128, 128}, 1 << 20},   // a tall matrix: many blocks, few columns
        {128, 1 << 24, {128, 128}, 1 << 20}, // a row of blocks larger than a band
        {1, 100000000, {128, 128}, 1 << 20},
        {65537, 65536, {128, 128}, 1 << 24}, // more than 2^32 elements
        {1000, 7168, {1, 32}, 1 << 20},
        {1000000, 1, {1, 32}, FQ_MIN_BAND_ELEMENTS}, // a scale for every element
        {3, 1000000, {1, 1}, FQ_MIN_BAND_ELEMENTS},
        {1000, 100000, {512, 512}, FQ_MIN_BAND_ELEMENTS},
        {1000, 5000, {32, 32}, FQ_MIN_BAND_ELEMENTS},
        {1000, 500000, {1, 48}, FQ_MIN_BAND_ELEMENTS},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        check_cut(&cuts[i]);
}

// Copies are cut into bytes; empty tensors and empty shards have one band each, so that every shard
// is begun and ended; bands of a later shard come later.
static void test_copies_and_empty(void) {
    const fq_tensor large = {.name = "large", .nbytes = 3 * FQ_MIN_BAND_ELEMENTS + 5};
    const fq_tensor empty = {.name = "empty"};
    fq_step steps[] = {{.action = FQ_COPY, .source = &large},
                       {.action = FQ_COPY, .source = &empty}};
    fq_step matrix = {.action = FQ_QUANTIZE, .block = {128, 128}};
    fq_plan_shard shards[] = {
        {.steps = steps, .n_steps = 2}, {.n_steps = 0}, {.steps = &matrix, .n_steps = 1}};
    const fq_plan plan = {.shards = shards, .n_shards = 3};
    fq_band_cursor cursor = fq_band_first(&plan, 0, FQ_MIN_BAND_ELEMENTS);
    fq_band band;
    uint64_t nbytes = 0;
    for (int i = 0; i < 4; i++) {
        CHECK(fq_band_next(&cursor, &band) && band.step == &steps[0] && band.byte0 == nbytes);
        nbytes += band.nbytes;
        CHECK(!band.ends_shard);
    }
    CHECK_U64(nbytes, large.nbytes);
    CHECK(fq_band_next(&cursor, &band) && band.step == &steps[1] && band.nbytes == 0);
    CHECK(band.ends_shard && !band.begins_shard);
    CHECK(!fq_band_next(&cursor, &band));
    for (size_t shard = 1; shard < 3; shard++) {
        const uint64_t before = band.order;
        cursor = fq_band_first(&plan, shard, FQ_MIN_BAND_ELEMENTS);
        CHECK(fq_band_next_order(&cursor) > before);
        CHECK(fq_band_next(&cursor, &band) && band.shard == shard && band.rows == 0);
        CHECK(band.order > before && band.begins_shard && band.ends_shard);
        CHECK(!fq_band_next(&cursor, &band));
    }
}

int main(void) {
    test_cuts();
    test_turned();
    test_copies_and_empty();
    return check_result();
}
