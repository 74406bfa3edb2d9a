// The CRC-32 of a file must come out right whatever the pieces, their order and their rows are: a
// wrong one would make every resumed run write its shards again.
#include "formats/crc.h"
#include "tests/check.h"

#include <stdlib.h>

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

// RFC 1952, section 8, bit by bit.
static uint32_t plain_crc32(const unsigned char *bytes, size_t n) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return crc ^ 0xFFFFFFFF;
}

static void test_known(void) {
    CHECK_U64(fq_crc32(0, "123456789", 9), 0xCBF43926);
    CHECK_U64(fq_crc32(fq_crc32(0, "1234", 4), "56789", 5), 0xCBF43926);
    CHECK_U64(fq_crc32(7, NULL, 0), 7);
}

enum { MAX_NBYTES = 5000, MAX_PIECES = MAX_NBYTES };

// Cuts a file into runs, and shuffles them.
static void test_runs_in_any_order(void) {
    static unsigned char file[MAX_NBYTES];
    static fq_sink_rows pieces[MAX_PIECES];
    for (int turn = 0; turn < 200; turn++) {
        const size_t nbytes = 1 + random_below(MAX_NBYTES);
        size_t n = 0;
        uint32_t sum = 0;
        for (size_t i = 0; i < nbytes; i++)
            file[i] = (unsigned char)random_below(256);
        for (size_t at = 0; at < nbytes; n++) {
            const size_t left = nbytes - at, most = 1 + random_below(1000);
            pieces[n] = fq_sink_run(at, 1 + random_below((uint32_t)(left < most ? left : most)));
            at += pieces[n].row_nbytes;
        }
        for (size_t i = n; i > 1; i--) {
            const size_t k = random_below((uint32_t)i);
            const fq_sink_rows moved = pieces[k];
            pieces[k] = pieces[i - 1];
            pieces[i - 1] = moved;
        }
        for (size_t i = 0; i < n; i++)
            sum ^= fq_crc32_of_rows(&pieces[i], file + pieces[i].offset, nbytes);
        CHECK_U64(sum, plain_crc32(file, nbytes));
    }
}

// A matrix between other bytes, written as bands of columns.
static void test_rows(void) {
    static unsigned char file[MAX_NBYTES], band[MAX_NBYTES];
    for (int turn = 0; turn < 200; turn++) {
        const size_t rows = 1 + random_below(40), cols = 1 + random_below(60);
        const size_t before = random_below(100), after = random_below(100);
        const size_t nbytes = before + rows * cols + after;
        uint32_t sum = 0;
        for (size_t i = 0; i < nbytes; i++)
            file[i] = (unsigned char)random_below(256);
        for (size_t col = 0; col < cols;) {
            const size_t n = 1 + random_below((uint32_t)(cols - col));
            const fq_sink_rows where = {before + col, cols, rows, n};
            for (size_t r = 0; r < rows; r++)
                memcpy(band + r * n, file + before + r * cols + col, n);
            sum ^= fq_crc32_of_rows(&where, band, nbytes);
            col += n;
        }
        const fq_sink_rows ends[] = {fq_sink_run(0, before),
                                     fq_sink_run(before + rows * cols, after)};
        sum ^= fq_crc32_of_rows(&ends[0], file, nbytes);
        sum ^= fq_crc32_of_rows(&ends[1], file + before + rows * cols, nbytes);
        CHECK_U64(sum, plain_crc32(file, nbytes));
    }
}

// Places beyond 4 GiB, in a file of zeros but for its first and last byte. The CRC of zeros moved
// on by 2^33 bytes is known to be right if moving on twice by 2^32 comes to the same.
static void test_far_places(void) {
    const uint64_t half = UINT64_C(1) << 32;
    const fq_sink_rows first = fq_sink_run(0, 1);
    const uint32_t once = fq_crc32_of_rows(&first, "a", 1 + half);
    const uint32_t twice = fq_crc32_of_rows(&first, "a", 1 + 2 * half);
    const fq_sink_rows rows = {0, half, 2, 1};
    CHECK_U64(fq_crc32_of_rows(&rows, "ab", 1 + half), once ^ fq_crc32(0, "b", 1));
    const fq_sink_rows wide = {0, half, 3, 1};
    CHECK_U64(fq_crc32_of_rows(&wide, "abc", 1 + 2 * half),
              twice ^ fq_crc32_of_rows(&first, "b", 1 + half) ^ fq_crc32(0, "c", 1));
}

int main(void) {
    test_known();
    test_runs_in_any_order();
    test_rows();
    test_far_places();
    return check_result();
}
