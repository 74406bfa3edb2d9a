// CRC-32: libdeflate is fast over bytes, zlib knows how to move a CRC over bytes that follow.
#include "crc.h"

#include <assert.h>
#include <libdeflate.h>
#include <zlib.h>

uint32_t fq_crc32(uint32_t crc, const void *data, size_t nbytes) {
    return nbytes > 0 ? libdeflate_crc32(crc, data, nbytes) : crc;
}

// The CRC of the same bytes with zeros behind them, as many as step was made for.
static uint32_t moved(uint32_t crc, uLong step) { return (uint32_t)crc32_combine_op(crc, 0, step); }

uint32_t fq_crc32_of_rows(const fq_sink_rows *rows, const void *data, uint64_t file_nbytes) {
    const unsigned char *row = data;
    const uint64_t end = rows->offset + (rows->n_rows - 1) * rows->stride + rows->row_nbytes;
    assert(end <= file_nbytes && file_nbytes <= INT64_MAX);
    uint32_t crc = fq_crc32(0, row, rows->row_nbytes);
    if (rows->n_rows > 1) {
        const uLong stride = crc32_combine_gen((z_off_t)rows->stride);
        for (uint64_t i = 1; i < rows->n_rows; i++) {
            row += rows->row_nbytes;
            crc = moved(crc, stride) ^ fq_crc32(0, row, rows->row_nbytes);
        }
    }
    return moved(crc, crc32_combine_gen((z_off_t)(file_nbytes - end)));
}
