// inspect --stats must count every element once, whatever the dtype and the buffer, and must see
// scales of any shape.
#include "lib/fp8.h"
#include "lib/stats.h"
#include "tests/check.h"
#include "tests/memory_checkpoint.h"

#include <math.h>

static fq_stats read_stats(const memory_checkpoint *memory, const char *name, size_t nbytes) {
    static _Alignas(16) unsigned char buffer[4096];
    fq_stats stats = {0};
    fq_error err = {0};
    uint64_t bytes_read = 0;
    const fq_tensor *tensor = fq_checkpoint_find(&memory->checkpoint, name);
    CHECK(fq_stats_read(&stats, &memory->checkpoint, tensor, buffer, nbytes, &bytes_read, NULL,
                        &err) == FQ_OK);
    CHECK_U64(bytes_read, tensor->nbytes);
    return stats;
}

static void check_counts(const fq_stats *stats, uint64_t n, uint64_t zeros, uint64_t nans,
                         uint64_t infs) {
    CHECK_U64(stats->n_elements, n);
    CHECK_U64(stats->n_zeros, zeros);
    CHECK_U64(stats->n_nans, nans);
    CHECK_U64(stats->n_infs, infs);
    CHECK_U64(stats->n_finite, n - nans - infs);
}

static void test_dtypes(void) {
    memory_checkpoint memory = {0};
    const float singles[] = {1.5f, -3.0f, 0.0f, -0.0f, NAN, INFINITY, -INFINITY, 0x1p-149f};
    const double doubles[] = {1e300, -1e-300, 0.0};
    const uint16_t bf16[] = {0x3F80, 0xC000, 0x7F80, 0x7FC0, 0x8000}; // 1, -2, Inf, NaN, -0
    const uint16_t f16[] = {0x7BFF, 0x0001, 0xFC00};                  // 65504, 2^-24, -Inf
    const uint8_t e5m2[] = {0x3C, 0xC0, 0x7C, 0x7F};                  // 1, -2, Inf, NaN
    memcpy(memory_checkpoint_add_2d(&memory, 0, "f32", FQ_F32, 1, 8), singles, sizeof singles);
    memcpy(memory_checkpoint_add_2d(&memory, 0, "f64", FQ_F64, 3, 1), doubles, sizeof doubles);
    memcpy(memory_checkpoint_add_2d(&memory, 0, "bf16", FQ_BF16, 1, 5), bf16, sizeof bf16);
    memcpy(memory_checkpoint_add_2d(&memory, 0, "f16", FQ_F16, 1, 3), f16, sizeof f16);
    memcpy(memory_checkpoint_add_2d(&memory, 0, "e5m2", FQ_F8_E5M2, 1, 4), e5m2, sizeof e5m2);
    memory_checkpoint_finish(&memory, 1);
    for (size_t nbytes = 8; nbytes <= 64; nbytes += 8) { // whole tensors, and pieces
        fq_stats stats = read_stats(&memory, "f32", nbytes);
        check_counts(&stats, 8, 2, 1, 2);
        CHECK(stats.min == -3.0 && stats.max == 1.5);
        stats = read_stats(&memory, "f64", nbytes);
        check_counts(&stats, 3, 1, 0, 0);
        CHECK(stats.min == -1e-300 && stats.max == 1e300);
        stats = read_stats(&memory, "bf16", nbytes);
        check_counts(&stats, 5, 1, 1, 1);
        CHECK(stats.min == -2.0 && stats.max == 1.0);
        stats = read_stats(&memory, "f16", nbytes);
        check_counts(&stats, 3, 0, 0, 1);
        CHECK(stats.min == 0x1p-24 && stats.max == 65504.0);
        stats = read_stats(&memory, "e5m2", nbytes);
        check_counts(&stats, 4, 0, 1, 1);
        CHECK(stats.min == -2.0 && stats.max == 1.0);
    }
    memory_checkpoint_free(&memory);
}

static void test_codes(void) {
    memory_checkpoint memory = {0};
    unsigned char *codes = memory_checkpoint_add_2d(&memory, 0, "w", FQ_F8_E4M3, 3, 256);
    for (int i = 0; i < 3 * 256; i++)
        codes[i] = (unsigned char)i;
    unsigned char *exponents = memory_checkpoint_add_2d(&memory, 0, "s", FQ_F8_E8M0, 1, 3);
    exponents[0] = 0, exponents[1] = 254, exponents[2] = 255;
    memory_checkpoint_add_2d(&memory, 0, "empty", FQ_F8_E4M3, 0, 5);
    memory_checkpoint_finish(&memory, 1);
    fq_stats stats = read_stats(&memory, "w", 64);
    check_counts(&stats, 768, 6, 6, 0);
    CHECK_U64(stats.n_codes, 256);
    CHECK(stats.min == -448.0 && stats.max == 448.0);
    stats = read_stats(&memory, "s", 64);
    check_counts(&stats, 3, 0, 1, 0);
    CHECK(stats.min == 0x1p-127 && stats.max == 0x1p127);
    stats = read_stats(&memory, "empty", 64);
    check_counts(&stats, 0, 0, 0, 0);
    CHECK_U64(stats.n_codes, 0);
    memory_checkpoint_free(&memory);
}

static void test_cancelled(void) {
    memory_checkpoint memory = {0};
    _Alignas(8) unsigned char buffer[8];
    memory_checkpoint_add_2d(&memory, 0, "w", FQ_F32, 4, 4);
    memory_checkpoint_finish(&memory, 1);
    const int cancelled = 1;
    fq_stats stats;
    fq_error err = {0};
    CHECK(fq_stats_read(&stats, &memory.checkpoint, memory.checkpoint.by_name[0], buffer,
                        sizeof buffer, NULL, &cancelled, &err) == FQ_CANCELLED);
    memory_checkpoint_free(&memory);
}

// Reads the scales of a [rows, cols] weight whose one scale at `place` is `value`, others 0.5.
static fq_status read_scales(fq_scale_stats *out, uint64_t rows, uint64_t cols, uint64_t place,
                             float value) {
    memory_checkpoint memory = {0};
    const uint64_t grid_rows = fq_ceil_div(rows, 128), grid_cols = fq_ceil_div(cols, 128);
    float *grid = memory_checkpoint_add_2d(&memory, 0, "s", FQ_F32, grid_rows, grid_cols);
    for (uint64_t i = 0; i < grid_rows * grid_cols; i++)
        grid[i] = i == place ? value : 0.5f;
    memory_checkpoint_finish(&memory, 1);
    const uint64_t shape[] = {rows, cols};
    const fq_tensor weight = {.name = "w", .dtype = FQ_F8_E4M3, .rank = 2, .shape = shape};
    const fq_pair pair = {.weight = &weight,
                          .scale = memory.checkpoint.by_name[0],
                          .storage = FQ_STORED_GRID,
                          .block = {128, 128}};
    fq_error err = {0};
    const fq_status status = fq_stats_read_scales(out, &memory.checkpoint, &pair, &err);
    memory_checkpoint_free(&memory);
    return status;
}

static void test_scales(void) {
    static const struct {
        uint64_t rows, cols, last; // index of the last scale
    } shapes[] = {{1, 1, 0}, {300, 200, 5}, {128, 128 * 40000, 39999}, {128 * 40000, 1, 39999}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fq_scale_stats stats;
        CHECK(read_scales(&stats, shapes[i].rows, shapes[i].cols, shapes[i].last, 8.0f) == FQ_OK);
        CHECK(stats.max == 8.0f && stats.all_pow2);
        CHECK(stats.min == (shapes[i].last > 0 ? 0.5f : 8.0f));
        CHECK(read_scales(&stats, shapes[i].rows, shapes[i].cols, shapes[i].last, 0.3f) == FQ_OK);
        CHECK(stats.min == 0.3f && !stats.all_pow2);
        CHECK(read_scales(&stats, shapes[i].rows, shapes[i].cols, shapes[i].last, NAN) ==
              FQ_BAD_INPUT);
    }
}

int main(void) {
    test_dtypes();
    test_codes();
    test_cancelled();
    test_scales();
    return check_result();
}
