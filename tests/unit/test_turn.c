// Matrices of bytes are transposed as plain loops do it, whole tiles and ragged ones, and nothing
// is written beside the transpose.
#include "lib/turn.h"
#include "tests/check.h"

#include <stdbool.h>
#include <string.h>

enum { MOST = 150, STRIDE = MOST + 7 };

static void check_size(size_t rows, size_t cols) {
    static uint8_t from[MOST * MOST], to[MOST * STRIDE];
    for (size_t i = 0; i < rows * cols; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 13 | 1);
    memset(to, 0, sizeof to);
    fq_turn_bytes(to, STRIDE, from, rows, cols);
    size_t n_wrong = 0;
    for (size_t c = 0; c < MOST; c++) {
        for (size_t r = 0; r < STRIDE; r++) {
            const bool is_inside = r < rows && c < cols;
            n_wrong += to[c * STRIDE + r] != (is_inside ? from[r * cols + c] : 0);
        }
    }
    if (!CHECK(n_wrong == 0))
        CHECK_NOTE("[%zu, %zu]\n", rows, cols);
}

int main(void) {
    static const size_t sizes[] = {1, 7, 8, 9, 16, 63, 64, 65, 72, 128, 129, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            check_size(sizes[i], sizes[k]);
    }
    return check_result();
}
