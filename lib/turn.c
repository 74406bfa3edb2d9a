// Transposes eight by eight bytes at a time, in eight registers: see turn.h.
#include "turn.h"

#include <string.h>

enum {
    TILE = 8,
    STRIP = 64, // rows turned one tile after the other: a cache line of each row of the output
};

// Swaps the upper half of the bits of *a, half by half of width shift, with the lower half of *b's.
// Low marks the lower halves.
static void swap_halves(uint64_t *a, uint64_t *b, unsigned shift, uint64_t low) {
    const uint64_t upper = *a >> shift & low;
    *a = (*a & low) | (*b & low) << shift;
    *b = (*b & ~low) | upper;
}

// Blocks of four by four are swapped across the diagonal, within them blocks of two by two, within
// these the bytes.
static void turn_tile(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride) {
    uint64_t x[TILE];
    for (size_t i = 0; i < TILE; i++)
        memcpy(&x[i], from + i * from_stride, TILE);
    for (size_t i = 0; i < 4; i++)
        swap_halves(&x[i], &x[i + 4], 32, UINT64_C(0x00000000FFFFFFFF));
    for (size_t i = 0; i < 2; i++) {
        swap_halves(&x[i], &x[i + 2], 16, UINT64_C(0x0000FFFF0000FFFF));
        swap_halves(&x[i + 4], &x[i + 6], 16, UINT64_C(0x0000FFFF0000FFFF));
    }
    for (size_t i = 0; i < TILE; i += 2)
        swap_halves(&x[i], &x[i + 1], 8, UINT64_C(0x00FF00FF00FF00FF));
    for (size_t i = 0; i < TILE; i++)
        memcpy(to + i * to_stride, &x[i], TILE);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void turn_plainly(uint8_t *to, size_t to_stride, const uint8_t *from, size_t from_stride,
                         size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++)
            to[c * to_stride + r] = from[r * from_stride + c];
    }
}

void fq_turn_bytes(uint8_t *to, size_t to_stride, const uint8_t *from, size_t rows, size_t cols) {
    for (size_t strip = 0; strip < rows; strip += STRIP) {
        const size_t end = least(strip + STRIP, rows);
        for (size_t c = 0; c < cols; c += TILE) {
            for (size_t r = strip; r < end; r += TILE) {
                uint8_t *tile_to = to + c * to_stride + r;
                const uint8_t *tile = from + r * cols + c;
                const size_t n_rows = least(end - r, TILE), n_cols = least(cols - c, TILE);
                if (n_rows == TILE && n_cols == TILE)
                    turn_tile(tile_to, to_stride, tile, cols);
                else
                    turn_plainly(tile_to, to_stride, tile, cols, n_rows, n_cols);
            }
        }
    }
}
