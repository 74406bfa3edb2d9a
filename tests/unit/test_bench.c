// The parts of the benchmarks that a wrong figure would come from: medians, sizes, random weights.
#include "kernels/bench.h"
#include "lib/fp8.h"

#include "tests/check.h"

static void test_median(void) {
    CHECK(fq_bench_median((double[]){7}, 1) == 7);
    CHECK(fq_bench_median((double[]){9, 1, 2}, 3) == 2);
    CHECK(fq_bench_median((double[]){9, 1, 2, 4}, 4) == 3);
}

static void test_sizes(void) {
    fq_bench_sizes sizes;
    fq_error err = {0};
    fq_bench_job job = {.rows = 129, .cols = 300, .dtype = FQ_F32, .block = {128, 128}};
    CHECK(fq_bench_sizes_of(&sizes, &job, &err) == FQ_OK);
    CHECK_U64(sizes.n_elements, 129 * 300);
    CHECK_U64(sizes.n_blocks, 2 * 3);
    CHECK_U64(sizes.source_nbytes, 129 * 300 * 4);
    CHECK_U64(sizes.nbytes, 129 * 300 * 5 + 6 * 4);
    job.rows = job.cols = (uint64_t)1 << 31;
    CHECK(fq_bench_sizes_of(&sizes, &job, &err) == FQ_DEVICE);
}

// All matrices but the one at hand are together far larger than the cache.
static void test_rotation(void) {
    const fq_bench_sizes small = {.nbytes = 1 << 20}, large = {.nbytes = (uint64_t)1 << 30};
    CHECK((fq_bench_n_matrices(&small, 32 << 20) - 1) * small.nbytes >= 4 * (32 << 20));
    CHECK_U64(fq_bench_n_matrices(&large, 32 << 20), 2);
    CHECK_U64(fq_bench_n_matrices(&large, 0), 1);
}

// Weights of one size or of zeros would be quantized on paths that real ones do not take.
static void test_fill(void) {
    enum { N = (1 << 20) + 1000 };
    static uint16_t weights[N], again[N];
    fq_bench_fill(weights, N, FQ_BF16, 1);
    fq_bench_fill(again, N, FQ_BF16, 1);
    CHECK(memcmp(weights, again, sizeof weights) == 0);
    fq_bench_fill(again, N, FQ_BF16, 2);
    CHECK(memcmp(weights, again, sizeof weights) != 0);
    double sum = 0, squares = 0;
    float amax = 0;
    for (size_t i = 0; i < N; i++) {
        const float value = fq_f32_of_bf16(weights[i]);
        const float magnitude = value < 0 ? -value : value;
        sum += (double)value;
        squares += (double)value * (double)value;
        amax = magnitude > amax ? magnitude : amax;
    }
    const double deviation_squared = squares / N;
    CHECK(sum / N * (sum / N) < deviation_squared / 1000);
    // Between a bell's tails and a flat distribution's.
    CHECK((double)amax * (double)amax > 8 * deviation_squared);
    CHECK(amax < 1);
    CHECK(weights[N - 1] == weights[N - 1 - (1 << 20)]);
}

int main(void) {
    test_median();
    test_sizes();
    test_rotation();
    test_fill();
    return check_result();
}
