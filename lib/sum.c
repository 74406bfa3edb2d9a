// Exact sums: see sum.h.
#include "sum.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    DIGIT_BITS = 32,
    MANTISSA_BITS = 52, // of FP64, the leading one aside
    MAX_EXPONENT = 0x7FF,
    LEAST_EXPONENT = -1074, // of 2, of FP64's least step
};

static void carry(fq_sum *sum) {
    for (int i = 0; i + 1 < FQ_SUM_DIGITS; i++) {
        sum->digits[i + 1] += sum->digits[i] >> DIGIT_BITS;
        sum->digits[i] &= UINT32_MAX;
    }
    sum->n_uncarried = 0;
}

void fq_sum_add(fq_sum *sum, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    assert(bits >> 63 == 0 || value == 0.0);
    const uint32_t exponent = (uint32_t)(bits >> MANTISSA_BITS) & MAX_EXPONENT;
    uint64_t mantissa = bits & ((UINT64_C(1) << MANTISSA_BITS) - 1);
    if (exponent == MAX_EXPONENT) {
        sum->infinite = true;
        return;
    }
    if (exponent > 0)
        mantissa |= UINT64_C(1) << MANTISSA_BITS;
    // In steps of 2^-1074: mantissa · 2^place. Subnormals have the place of the least normal value.
    const uint32_t place = exponent > 0 ? exponent - 1 : 0;
    uint64_t *digits = &sum->digits[place / DIGIT_BITS];
    const uint32_t shift = place % DIGIT_BITS;
    const uint64_t low = (mantissa & UINT32_MAX) << shift, high = (mantissa >> DIGIT_BITS) << shift;
    digits[0] += low & UINT32_MAX;
    digits[1] += (low >> DIGIT_BITS) + (high & UINT32_MAX);
    digits[2] += high >> DIGIT_BITS;
    // A digit grows by less than 2^33 at a time.
    if (++sum->n_uncarried == UINT32_C(1) << 30)
        carry(sum);
}

double fq_sum_value(const fq_sum *sum) {
    if (sum->infinite)
        return (double)INFINITY;
    fq_sum carried = *sum;
    carry(&carried);
    int top = FQ_SUM_DIGITS - 1;
    while (top > 0 && carried.digits[top] == 0)
        top--;
    // Three digits hold 65 bits at least, from the leading one on.
    double value = 0.0;
    for (int i = top; i >= 0 && i > top - 3; i--)
        value += ldexp((double)carried.digits[i], LEAST_EXPONENT + DIGIT_BITS * i);
    return value;
}
