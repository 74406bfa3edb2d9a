// A fixed sequence of random numbers, the same on every machine.
#ifndef FQ_TESTS_KERNELS_RANDOM_H
#define FQ_TESTS_KERNELS_RANDOM_H

#include <stdint.h>

// splitmix64. *state is any number to begin with.
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// From 0 to n - 1; n under 2^32.
static inline uint32_t random_below(uint64_t *state, uint32_t n) {
    return (uint32_t)((random_next(state) >> 32) * n >> 32);
}

#endif
