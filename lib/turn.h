// Transposes matrices of bytes.
#ifndef FQ_TURN_H
#define FQ_TURN_H

#include <stddef.h>
#include <stdint.h>

// Writes the transpose of from [rows, cols], contiguous, to the rows of to, which are to_stride
// bytes apart: to[c · to_stride + r] = from[r · cols + c].
void fq_turn_bytes(uint8_t *to, size_t to_stride, const uint8_t *from, size_t rows, size_t cols);

#endif
