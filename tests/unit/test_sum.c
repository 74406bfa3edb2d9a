// Sums must be the same bits in any order, since bands are finished in any; and right, since the
// figures of verify rest on them.
#include "lib/sum.h"
#include "tests/check.h"
#include "tests/kernels/random.h"

#include <float.h>
#include <math.h>

enum { N = 4096 };

static double sum_of(const double *values, size_t n) {
    fq_sum sum = {{0}, 0, false};
    for (size_t i = 0; i < n; i++)
        fq_sum_add(&sum, values[i]);
    return fq_sum_value(&sum);
}

static void check_same(double actual, double expected) {
    if (!CHECK(memcmp(&actual, &expected, sizeof actual) == 0))
        CHECK_NOTE("is %a, not %a\n", actual, expected);
}

static void shuffle(double *values, size_t n, uint64_t *state) {
    for (size_t i = n - 1; i > 0; i--) {
        const size_t k = random_below(state, (uint32_t)i + 1);
        const double value = values[i];
        values[i] = values[k];
        values[k] = value;
    }
}

// Of all magnitudes, so that FP64 would give another sum in each order.
static void test_any_order(uint64_t *state) {
    static double values[N];
    double plain = 0.0;
    for (size_t i = 0; i < N; i++) {
        values[i] = ldexp((double)random_next(state), (int)random_below(state, 300) - 200);
        plain += values[i];
    }
    const double expected = sum_of(values, N);
    CHECK(fabs(expected - plain) <= 1e-12 * plain);
    for (int round = 0; round < 20; round++) {
        shuffle(values, N, state);
        check_same(sum_of(values, N), expected);
    }
}

static void test_exact(void) {
    check_same(sum_of(NULL, 0), 0.0);
    check_same(sum_of((const double[]){0.0, -0.0}, 2), 0.0);
    check_same(sum_of((const double[]){1.0, 0x1p-60, 0x1p-60}, 3), 1.0);
    check_same(sum_of((const double[]){0x1p-60, 1.0, 0x1p-8, 0x1.8p40}, 4), 0x1.8p40 + 1.00390625);
    check_same(sum_of((const double[]){0x1p-1074, 0x1p-1074}, 2), 0x1p-1073);
    check_same(sum_of((const double[]){0x1p-1074}, 1), 0x1p-1074);
    check_same(sum_of((const double[]){DBL_MAX}, 1), DBL_MAX);
    check_same(sum_of((const double[]){DBL_MAX, DBL_MAX}, 2), (double)INFINITY);
    check_same(sum_of((const double[]){1.0, (double)INFINITY, 1.0}, 3), (double)INFINITY);
}

// Every value alone: each bit of a mantissa, at every place.
static void test_single_values(uint64_t *state) {
    for (int exponent = -1074; exponent < 1024; exponent++) {
        const double value = ldexp(1.0 + (double)(random_next(state) >> 12) * 0x1p-52, exponent);
        check_same(sum_of(&value, 1), value);
    }
}

// More values than fit without carrying: 2^30 of them would take too long, a carry is forced.
static void test_carries(void) {
    fq_sum sum = {{0}, (UINT32_C(1) << 30) - 3, false};
    for (int i = 0; i < 5; i++)
        fq_sum_add(&sum, 0x1.fffffffffffffp31);
    CHECK(sum.n_uncarried == 2);
    check_same(fq_sum_value(&sum), 5 * 0x1.fffffffffffffp31);
}

int main(void) {
    uint64_t state = 1;
    test_exact();
    test_single_values(&state);
    test_any_order(&state);
    test_carries();
    return check_result();
}
