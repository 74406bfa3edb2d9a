// Sums of doubles that do not depend on the order of adding: kept exact until they are asked for.
#ifndef FQ_SUM_H
#define FQ_SUM_H

#include <stdbool.h>
#include <stdint.h>

// Digits of 32 bits, the first worth 2^-1074, FP64's least step; the last ones hold what is carried
// beyond the greatest FP64 value.
enum { FQ_SUM_DIGITS = (1074 + 1024 + 64 + 31) / 32 };

// Zeroed is 0. Not safe for use by two threads at once.
typedef struct fq_sum {
    uint64_t digits[FQ_SUM_DIGITS]; // their upper halves are still to be carried
    uint32_t n_uncarried;           // values added since
    bool infinite;
} fq_sum;

// Adds a value that is not negative and not NaN, without rounding. Infinity makes the sum infinite.
void fq_sum_add(fq_sum *sum, double value);

// The sum as FP64, within two units in the last place, and always the same for the same values.
double fq_sum_value(const fq_sum *sum);

#endif
