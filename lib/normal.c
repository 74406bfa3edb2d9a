// Normally distributed numbers: see normal.h.
#include "normal.h"

#include <math.h>

static const uint64_t golden_gamma = 0x9E3779B97F4A7C15u; // splitmix64's step: 2^64 / golden ratio

// splitmix64's output for a state.
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// Natural logarithm of x, normal and positive, to 12 digits. A C library's own may differ in the
// last bit from another's.
static double log_of(double x) {
    int exponent;
    double m = frexp(x, &exponent); // 0.5 to 1
    if (m < 0x1.6a09e667f3bcdp-1) { // the root of 0.5
        m *= 2.0;
        exponent--;
    }
    // ln m = 2 artanh(s), |s| at most 0.172: what is left out is under 2·s^17 / 17.
    const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
    double sum = 1.0 / 15.0;
    for (int n = 13; n > 0; n -= 2)
        sum = sum * s2 + 1.0 / n;
    return 2.0 * s * sum + exponent * 0x1.62e42fefa39efp-1; // ln 2
}

// PPND7: the number that a share p of the distribution lies under; 2^-33 ≤ p ≤ 1 - 2^-33, so that
// its third range, beyond e^-25, is not needed.
static double quantile(double p) {
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        const double a = ((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179;
        const double b = ((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0;
        return q * a / b;
    }
    const double r = sqrt(-log_of(q < 0.0 ? p : 1.0 - p)) - 1.6;
    const double c = ((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777;
    const double d = (0.12021132975 * r + 0.73700164250) * r + 1.0;
    return q < 0.0 ? -(c / d) : c / d;
}

double fq_normal(uint64_t seed, uint64_t row, uint64_t col) {
    const uint64_t of_row = mix(mix(seed + golden_gamma) + golden_gamma * (row + 1));
    const uint64_t bits = mix(of_row + golden_gamma * (col + 1));
    return quantile(((double)(bits >> 32) + 0.5) * 0x1p-32);
}
