// Scale tensors written in windows and read back: every format, ragged shapes, every way to cut.
#include "lib/fp8.h"
#include "lib/scale.h"
#include "tests/check.h"
#include "tests/memory_checkpoint.h"
#include "tests/memory_sink.h"

#include <math.h>

enum { SCRATCH = FQ_SCALE_MIN_SCRATCH };

static const fq_block block = {FQ_BLOCK_SIZE, FQ_BLOCK_SIZE};

// Powers of two that tell every block from its neighbours.
static float scale_at(uint64_t i, uint64_t j) {
    return ldexpf(1.0f, (int)((i * 7 + j * 3) % 40) - 20);
}

static fq_scale_window window_of(uint64_t rows, uint64_t cols, uint64_t row0, uint64_t n_rows,
                                 uint64_t col0, uint64_t n_cols) {
    return (fq_scale_window){.weight_rows = rows,
                             .weight_cols = cols,
                             .block = block,
                             .row0 = row0,
                             .rows = row0 + n_rows > rows ? rows - row0 : n_rows,
                             .col0 = col0,
                             .cols = col0 + n_cols > cols ? cols - col0 : n_cols};
}

static void fill_grid(float *grid, const fq_scale_window *window) {
    size_t n = 0;
    for (uint64_t r = 0; r < window->rows; r += FQ_BLOCK_SIZE) {
        for (uint64_t c = 0; c < window->cols; c += FQ_BLOCK_SIZE)
            grid[n++] =
                scale_at((window->row0 + r) / FQ_BLOCK_SIZE, (window->col0 + c) / FQ_BLOCK_SIZE);
    }
}

// Writes the scales of a [rows, cols] weight in windows of n_rows x n_cols, then reads them back in
// windows of the same cut and compares.
static void round_trip(fq_scale_format format, uint64_t rows, uint64_t cols, uint64_t n_rows,
                       uint64_t n_cols) {
    fq_dtype dtype;
    uint64_t shape[2];
    fq_scale_tensor_shape(format, rows, cols, &dtype, shape);
    memory_checkpoint memory = {0};
    memory_checkpoint_add_2d(&memory, 0, "w.weight_scale_inv", dtype, shape[0], shape[1]);
    memory_checkpoint_finish(&memory, 1);
    memory_sink sink;
    memory_sink_init(&sink, -1);
    fq_sink_file *file;
    fq_error err = {0};
    sink.sink.begin(&sink.sink, &file, &memory.shards[0], &err);
    static float grid[1 << 16], back[1 << 16];
    static _Alignas(64) unsigned char scratch[SCRATCH];
    for (uint64_t r = 0; r < rows; r += n_rows) {
        for (uint64_t c = 0; c < cols; c += n_cols) {
            const fq_scale_window window = window_of(rows, cols, r, n_rows, c, n_cols);
            fill_grid(grid, &window);
            CHECK(fq_scale_write(file, &sink.sink, 0, format, &window, grid, scratch, SCRATCH,
                                 &err) == FQ_OK);
        }
    }
    CHECK(memory_sink_is_complete(file));
    memcpy(memory.bytes[0], file->bytes, memory.shards[0].data_nbytes);
    const fq_scale_storage storage = format == FQ_SCALE_PACKED ? FQ_STORED_PACKED : FQ_STORED_GRID;
    for (uint64_t r = 0; r < rows; r += n_rows) {
        for (uint64_t c = 0; c < cols; c += n_cols) {
            const fq_scale_window window = window_of(rows, cols, r, n_rows, c, n_cols);
            const size_t n =
                (size_t)(fq_ceil_div(window.rows, 128) * fq_ceil_div(window.cols, 128));
            fill_grid(grid, &window);
            CHECK(fq_scale_read(back, &memory.checkpoint, &memory.shards[0].tensors[0], storage,
                                &window, scratch, SCRATCH, &err) == FQ_OK);
            CHECK(memcmp(grid, back, n * sizeof *grid) == 0);
        }
    }
    memory_sink_finish(&sink);
    memory_checkpoint_free(&memory);
}

static void test_round_trips(void) {
    static const uint64_t shapes[][2] = {{1, 1},     {128, 128}, {130, 1100}, {262, 640},
                                         {576, 512}, {1000, 1},  {1, 5000},   {3, 129}};
    for (int format = 0; format < FQ_SCALE_FORMAT_COUNT; format++) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            round_trip((fq_scale_format)format, shapes[i][0], shapes[i][1], 128, 512);
            round_trip((fq_scale_format)format, shapes[i][0], shapes[i][1], 384, 1024);
            round_trip((fq_scale_format)format, shapes[i][0], shapes[i][1], 1 << 20, 1 << 20);
        }
    }
}

// The vector that DeepGEMM's layout is described by: MN = 3 rows, 5 blocks of K, E[r][c] = 10r + c.
// Rows of one weight block share an exponent, so the rows here are three weights of one row each.
static void test_packed_words(void) {
    for (uint64_t r = 0; r < 3; r++) {
        memory_checkpoint memory = {0};
        memory_checkpoint_add_2d(&memory, 0, "w.weight_scale_inv", FQ_I32, 2, 4);
        memory_checkpoint_finish(&memory, 1);
        memory_sink sink;
        memory_sink_init(&sink, -1);
        fq_sink_file *file;
        fq_error err = {0};
        sink.sink.begin(&sink.sink, &file, &memory.shards[0], &err);
        float grid[5];
        for (uint64_t c = 0; c < 5; c++)
            grid[c] = fq_f32_of_e8m0((uint8_t)(10 * r + c + 1)); // exponent 0 is never written
        const fq_scale_window window = window_of(1, 640, 0, 1, 0, 640);
        _Alignas(64) unsigned char scratch[SCRATCH];
        CHECK(fq_scale_write(file, &sink.sink, 0, FQ_SCALE_PACKED, &window, grid, scratch, SCRATCH,
                             &err) == FQ_OK);
        uint32_t words[8];
        memcpy(words, file->bytes, sizeof words);
        const uint32_t step = (uint32_t)(10 * r) * 0x01010101u;
        CHECK_U64(words[0], 0x04030201u + step);
        CHECK_U64(words[4], 0x00000005u + 10 * r);
        for (int pad = 1; pad < 4; pad++) {
            CHECK_U64(words[pad], 0);
            CHECK_U64(words[4 + pad], 0);
        }
        memory_sink_finish(&sink);
        memory_checkpoint_free(&memory);
    }
}

// Reads a [1, 1] grid that holds one element of that dtype.
static fq_status read_one(float *out, fq_dtype dtype, const void *element, fq_error *err) {
    memory_checkpoint memory = {0};
    void *bytes = memory_checkpoint_add_2d(&memory, 0, "w.weight_scale_inv", dtype, 1, 1);
    memcpy(bytes, element, fq_dtype_bits(dtype) / 8);
    memory_checkpoint_finish(&memory, 1);
    const fq_scale_window window = window_of(5, 5, 0, 5, 0, 5);
    _Alignas(64) unsigned char scratch[SCRATCH];
    const fq_status status = fq_scale_read(out, &memory.checkpoint, &memory.shards[0].tensors[0],
                                           dtype == FQ_U8 ? FQ_STORED_U8 : FQ_STORED_GRID, &window,
                                           scratch, SCRATCH, err);
    memory_checkpoint_free(&memory);
    return status;
}

static void test_dtypes_and_bad_values(void) {
    fq_error err = {0};
    float scale;
    CHECK(read_one(&scale, FQ_BF16, &(uint16_t){0x3F00}, &err) == FQ_OK && scale == 0.5f);
    CHECK(read_one(&scale, FQ_F16, &(uint16_t){0x3400}, &err) == FQ_OK && scale == 0.25f);
    CHECK(read_one(&scale, FQ_F32, &(float){0.0f}, &err) == FQ_OK && scale == 0.0f);
    CHECK(read_one(&scale, FQ_F8_E8M0, &(uint8_t){120}, &err) == FQ_OK && scale == 0x1p-7f);
    CHECK(read_one(&scale, FQ_F8_E8M0, &(uint8_t){0}, &err) == FQ_OK && scale == 0x1p-127f);
    CHECK(read_one(&scale, FQ_U8, &(uint8_t){128}, &err) == FQ_OK && scale == 2.0f);
    CHECK(read_one(&scale, FQ_U8, &(uint8_t){255}, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "a.safetensors: w.weight_scale_inv: the scale of block [0, 0] is NaN");
    CHECK(read_one(&scale, FQ_F32, &(float){-1.0f}, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "negative");
    CHECK(read_one(&scale, FQ_F32, &(float){-0.0f}, &err) == FQ_BAD_INPUT);
    CHECK(read_one(&scale, FQ_F32, &(float){INFINITY}, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "infinite");
}

// The second expert of a stack: its own scales are read, and a bad one is named with the expert.
static void test_stack(void) {
    memory_checkpoint memory = {0};
    float *scales = memory_checkpoint_add_2d(&memory, 0, "w.weight_scale_inv", FQ_F32, 2, 6);
    for (int i = 0; i < 12; i++)
        scales[i] = (float)(i + 1);
    memory_checkpoint_finish(&memory, 1);
    fq_tensor stacked = memory.shards[0].tensors[0];
    stacked.shape = (uint64_t[]){2, 2, 3};
    stacked.rank = 3;
    fq_scale_window window = window_of(256, 384, 128, 128, 0, 384);
    window.matrix = 1;
    _Alignas(64) unsigned char scratch[SCRATCH];
    float grid[3];
    fq_error err = {0};
    CHECK(fq_scale_read(grid, &memory.checkpoint, &stacked, FQ_STORED_GRID, &window, scratch,
                        SCRATCH, &err) == FQ_OK);
    CHECK(grid[0] == 10.0f && grid[1] == 11.0f && grid[2] == 12.0f);
    scales[11] = NAN;
    CHECK(fq_scale_read(grid, &memory.checkpoint, &stacked, FQ_STORED_GRID, &window, scratch,
                        SCRATCH, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "the scale of block [1, 2] of expert 1 is NaN");
    memory_checkpoint_free(&memory);
}

// Packed words that differ within the rows of a block are no scales of 128x128 blocks.
static void test_packed_must_agree(void) {
    memory_checkpoint memory = {0};
    uint32_t *words = memory_checkpoint_add_2d(&memory, 0, "w.weight_scale_inv", FQ_I32, 1, 8);
    for (int i = 0; i < 5; i++)
        words[i] = 0x7F;
    words[3] = 0x80;
    memory_checkpoint_finish(&memory, 1);
    const fq_scale_window window = window_of(5, 5, 0, 5, 0, 5);
    _Alignas(64) unsigned char scratch[SCRATCH];
    float scale;
    fq_error err = {0};
    CHECK(fq_scale_read(&scale, &memory.checkpoint, &memory.shards[0].tensors[0], FQ_STORED_PACKED,
                        &window, scratch, SCRATCH, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "row 3");
    memory_checkpoint_free(&memory);
}

// What is wrong is counted, the first is named, and the others are read all the same.
static void test_flaws_are_found(void) {
    memory_checkpoint memory = {0};
    memory_checkpoint_add_2d(&memory, 0, "f", FQ_F32, 2, 3);
    uint32_t *words = memory_checkpoint_add_2d(&memory, 0, "p", FQ_I32, 1, 260);
    float *scales = (float *)(void *)memory.bytes[0];
    for (int i = 0; i < 6; i++)
        scales[i] = (float)(i + 1);
    scales[2] = -1.0f;
    scales[4] = NAN;
    for (int i = 0; i < 258; i++)
        words[i] = 0x7F7E;
    words[200] ^= 0x100; // of block [1, 1]
    words[130] ^= 1;     // of block [1, 0]
    words[5] |= 1u << 31;
    words[259] = 7;
    memory_checkpoint_finish(&memory, 1);
    const fq_scale_window window = window_of(256, 384, 0, 256, 0, 384);
    const fq_scale_window packed = window_of(258, 256, 0, 258, 0, 256);
    _Alignas(64) unsigned char scratch[SCRATCH];
    float grid[6];
    fq_scale_flaws flaws;
    fq_error err = {0};
    CHECK(fq_scale_examine(grid, &flaws, &memory.checkpoint, &memory.shards[0].tensors[0],
                           FQ_STORED_GRID, &window, scratch, SCRATCH, &err) == FQ_OK);
    CHECK_U64(flaws.n, 2);
    CHECK(flaws.kind == FQ_SCALE_NEGATIVE && flaws.row == 0 && flaws.col == 2);
    CHECK(grid[0] == 1.0f && isnan(grid[2]) && grid[3] == 4.0f && isnan(grid[4]));
    CHECK(fq_scale_examine(grid, &flaws, &memory.checkpoint, &memory.shards[0].tensors[1],
                           FQ_STORED_PACKED, &packed, scratch, SCRATCH, &err) == FQ_OK);
    CHECK_U64(flaws.n, 4);
    CHECK(flaws.kind == FQ_SCALE_PADDING && flaws.row == 0 && flaws.col == 1);
    CHECK(grid[0] == 0.5f && grid[1] == 1.0f && isnan(grid[2]) && isnan(grid[3]));
    CHECK(grid[4] == 0.5f && grid[5] == 1.0f);
    memory_checkpoint_free(&memory);
}

int main(void) {
    test_round_trips();
    test_packed_words();
    test_dtypes_and_bad_values();
    test_stack();
    test_packed_must_agree();
    test_flaws_are_found();
    return check_result();
}
