// Memory of kernel tests: arrays between guards, random contents, comparison with coordinates.
#ifndef FQ_TESTS_KERNELS_MATRIX_H
#define FQ_TESTS_KERNELS_MATRIX_H

#include "tests/kernels/devices.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

// nbytes aligned to 64 between GUARD bytes of GUARD_BYTE; so are the contents, so that bytes that
// were not written show.
static inline void *guarded_alloc(size_t nbytes) {
    uint8_t *memory = aligned_alloc(GUARD, (nbytes + 3 * GUARD - 1) / GUARD * GUARD);
    if (!memory)
        exit(1);
    memset(memory, GUARD_BYTE, nbytes + 2 * GUARD);
    return memory + GUARD;
}

// True if the guards are as they were.
static inline bool guarded_intact(const void *array, size_t nbytes) {
    const uint8_t *bytes = array;
    for (size_t i = 0; i < GUARD; i++) {
        if (bytes[nbytes + i] != GUARD_BYTE || (bytes - GUARD)[i] != GUARD_BYTE)
            return false;
    }
    return true;
}

static inline void guarded_free(void *array) {
    if (array)
        free((uint8_t *)array - GUARD);
}

// nbytes aligned to 64 and not one more: for inputs, so that a sanitizer sees a read beyond.
static inline void *exact_alloc(size_t nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, GUARD, nbytes) != 0)
        exit(1);
    return memory;
}

// A fixed sequence: splitmix64.
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline uint64_t random_under(uint64_t *state, uint64_t n) { return random_next(state) % n; }

// n finite elements whose magnitudes spread over some powers of two below a random one, with zeros
// of both signs and subnormals among them.
static inline void random_fill(void *array, size_t n, fq_dtype dtype, uint64_t *state) {
    const uint64_t mantissa_bits = dtype == FQ_BF16 ? 7 : dtype == FQ_F16 ? 10 : 23;
    const uint64_t n_exponents = dtype == FQ_F16 ? 31 : 255;
    const uint64_t top = random_under(state, n_exponents);
    const uint64_t spread = 1 + random_under(state, 24);
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = random_next(state);
        const uint64_t below = (r >> 32) % spread;
        const uint64_t exponent = (r >> 56) < 8 || top < below ? 0 : top - below;
        uint64_t bits = exponent << mantissa_bits | (r & ((1u << mantissa_bits) - 1));
        if ((r >> 24 & 0xFF) < 4)
            bits = 0;
        bits |= (r >> 31 & 1) << (dtype == FQ_F32 ? 31 : 15);
        if (dtype == FQ_F32)
            ((float *)array)[i] = fq_f32_of_bits((uint32_t)bits);
        else
            ((uint16_t *)array)[i] = (uint16_t)bits;
    }
}

// Compares [rows, cols] elements of `size` bytes; says where the first difference is.
static inline bool same_matrix(const char *variant, const char *what, const void *actual,
                               const void *expected, uint64_t rows, uint64_t cols, size_t size) {
    const uint8_t *a = actual, *e = expected;
    if (memcmp(a, e, rows * cols * size) == 0)
        return true;
    uint64_t i = 0;
    while (memcmp(a + i * size, e + i * size, size) == 0)
        i++;
    uint32_t is = 0, should = 0;
    memcpy(&is, a + i * size, size);
    memcpy(&should, e + i * size, size);
    fprintf(stderr, "%s: %s [%d, %d] is 0x%X, not 0x%X\n", variant, what, (int)(i / cols),
            (int)(i % cols), is, should);
    return false;
}

#endif
