// Every call of the CUDA runtime fails once, alone or with all that follow: the backend must say so
// in one clear line, never give wrong bytes as right ones, be closed after any of it, and leave
// nothing behind.
#include "fake_cuda.h"
#include "kernels/cuda/backend.h"
#include "tests/check.h"
#include "tests/kernels/reference_compare.h"

#include <stdlib.h>

enum { ROWS = 130, COLS = 200, N = ROWS * COLS, N_BLOCKS = 4, N_LANES = 3, N_GPUS = 2 };

// What a job reads, what it must give, and what it gives.
typedef struct buffers {
    uint16_t *source, *target; // host memory of the device
    uint8_t *codes;
    float scales[N_BLOCKS];
    fq_quantize_counts quantized;
    fq_dequantize_counts dequantized;
    fq_block_errors errors[N_BLOCKS];
    fq_compare_counts compared;
} buffers;

static uint16_t source[N], expected_target[N];
static uint8_t expected_codes[N], spoilt_codes[N];
static float expected_scales[N_BLOCKS];
static fq_quantize_counts expected_quantized;
static fq_dequantize_counts expected_dequantized;
static fq_block_errors expected_errors[N_BLOCKS];
static fq_compare_counts expected_compared;

static const fq_block block = {128, 128};

static fq_quantize_job quantize_job(const buffers *b, uint8_t *codes, float *scales,
                                    fq_quantize_counts *counts) {
    return (fq_quantize_job){.source = b ? b->source : source,
                             .source_dtype = FQ_BF16,
                             .rows = ROWS,
                             .cols = COLS,
                             .block = block,
                             .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
                             .codes = codes,
                             .scales = scales,
                             .counts = counts};
}

static fq_dequantize_job dequantize_job(uint16_t *target, fq_dequantize_counts *counts) {
    return (fq_dequantize_job){.codes = expected_codes,
                               .rows = ROWS,
                               .cols = COLS,
                               .block = block,
                               .scales = expected_scales,
                               .target_dtype = FQ_BF16,
                               .target = target,
                               .counts = counts};
}

static fq_compare_job compare_job(const uint16_t *weights, fq_block_errors *errors,
                                  fq_compare_counts *counts) {
    return (fq_compare_job){.codes = spoilt_codes,
                            .source = weights,
                            .source_dtype = FQ_BF16,
                            .rows = ROWS,
                            .cols = COLS,
                            .block = block,
                            .scales = expected_scales,
                            .slack = 0x1p-9f,
                            .blocks = errors,
                            .counts = counts};
}

static void make_expectations(void) {
    // Some become zero, so that there are counts that the next job must not find.
    for (uint32_t i = 0; i < N; i++)
        source[i] = (uint16_t)(i % 100 ? 0x3C00 + i * 7 % 0x300 + (i % 3 ? 0 : 0x8000) : 0x0100);
    const fq_quantize_job quantize =
        quantize_job(NULL, expected_codes, expected_scales, &expected_quantized);
    reference_quantize(&quantize);
    const fq_dequantize_job dequantize = dequantize_job(expected_target, &expected_dequantized);
    reference_dequantize(&dequantize);
    memcpy(spoilt_codes, expected_codes, N);
    spoilt_codes[3 * COLS + 7] = 0x7F;
    spoilt_codes[129 * COLS + 199] ^= 0x81;
    const fq_compare_job compare = compare_job(source, expected_errors, &expected_compared);
    reference_compare(&compare);
}

// A status is success, or a line that says on which GPU what failed and what to do.
static bool is_clean(fq_status status, const fq_error *err) {
    CHECK(cudaGetLastError() == cudaSuccess); // or a later call would tell of it once more
    if (status == FQ_OK)
        return true;
    CHECK_U64(status, FQ_DEVICE);
    CHECK_HAS(err->text, "cuda:");
    CHECK_HAS(err->text, "--device cpu");
    return false;
}

// Waits twice: once for a job, which is then over, and once for none.
static bool wait_twice(const fq_backend *cuda, fq_device *device, uint32_t lane, buffers *b) {
    fq_error err = {0};
    const bool waited = is_clean(cuda->wait(device, lane, &err), &err);
    CHECK_U64(fake_n_queued(), 0);
    const buffers before = *b;
    (void)is_clean(cuda->wait(device, lane, &err), &err);
    CHECK(memcmp(&before, b, sizeof before) == 0);
    return waited;
}

static bool quantize_once(const fq_backend *cuda, fq_device *device, uint32_t lane, buffers *b) {
    const fq_quantize_job job = quantize_job(b, b->codes, b->scales, &b->quantized);
    fq_error err = {0};
    const bool started = is_clean(cuda->quantize(device, lane, &job, &err), &err);
    const bool waited = wait_twice(cuda, device, lane, b);
    if (started && waited) {
        CHECK(memcmp(b->codes, expected_codes, N) == 0);
        CHECK(memcmp(b->scales, expected_scales, sizeof expected_scales) == 0);
        CHECK(memcmp(&b->quantized, &expected_quantized, sizeof expected_quantized) == 0);
    }
    return started && waited;
}

static bool dequantize_once(const fq_backend *cuda, fq_device *device, uint32_t lane, buffers *b) {
    const fq_dequantize_job job = dequantize_job(b->target, &b->dequantized);
    fq_error err = {0};
    const bool started = is_clean(cuda->dequantize(device, lane, &job, &err), &err);
    const bool waited = wait_twice(cuda, device, lane, b);
    if (started && waited) {
        CHECK(memcmp(b->target, expected_target, sizeof expected_target) == 0);
        CHECK(memcmp(&b->dequantized, &expected_dequantized, sizeof expected_dequantized) == 0);
    }
    return started && waited;
}

static bool compare_once(const fq_backend *cuda, fq_device *device, uint32_t lane, buffers *b) {
    const fq_compare_job job = compare_job(b->source, b->errors, &b->compared);
    fq_error err = {0};
    const bool started = is_clean(fq_cuda_checker()->compare(device, lane, &job, &err), &err);
    const bool waited = wait_twice(cuda, device, lane, b);
    if (started && waited) {
        CHECK(memcmp(b->errors, expected_errors, sizeof expected_errors) == 0);
        CHECK(memcmp(&b->compared, &expected_compared, sizeof expected_compared) == 0);
    }
    return started && waited;
}

// What became of one use of the backend.
typedef struct outcome {
    bool opened;
    uint32_t n_failed;            // jobs
    uint64_t n_calls_until_close; // made before the device was closed
} outcome;

// Two lanes of one GPU at work at the same time.
static void use_two_lanes(outcome *out, const fq_backend *cuda, fq_device *device, buffers *b) {
    const fq_quantize_job quantize = quantize_job(b, b->codes, b->scales, &b->quantized);
    const fq_dequantize_job dequantize = dequantize_job(b->target, &b->dequantized);
    fq_error err = {0};
    bool ok = is_clean(cuda->quantize(device, 0, &quantize, &err), &err);
    ok &= is_clean(cuda->dequantize(device, N_GPUS, &dequantize, &err), &err);
    ok &= is_clean(cuda->wait(device, N_GPUS, &err), &err);
    ok &= is_clean(cuda->wait(device, 0, &err), &err);
    out->n_failed += !ok;
    if (ok) {
        CHECK(memcmp(b->codes, expected_codes, N) == 0);
        CHECK(memcmp(b->target, expected_target, sizeof expected_target) == 0);
    }
}

static void use_device(outcome *out, const fq_backend *cuda, fq_device *device) {
    buffers b = {.source = cuda->host_alloc(device, sizeof source),
                 .target = cuda->host_alloc(device, sizeof expected_target),
                 .codes = cuda->host_alloc(device, N)};
    CHECK(cudaGetLastError() == cudaSuccess);
    if (CHECK(b.source && b.target && b.codes)) { // pinned or not
        memcpy(b.source, source, sizeof source);
        for (uint32_t i = 0; i < 2 * N_LANES; i++) {
            out->n_failed += !quantize_once(cuda, device, i % N_LANES, &b);
            out->n_failed += !dequantize_once(cuda, device, i % N_LANES, &b);
            out->n_failed += !compare_once(cuda, device, i % N_LANES, &b);
        }
        use_two_lanes(out, cuda, device, &b);
    }
    out->n_calls_until_close = fake_n_calls();
    cuda->host_free(device, b.source, sizeof source);
    cuda->host_free(device, b.target, sizeof expected_target);
    cuda->host_free(device, b.codes, N);
    cuda->close(device);
}

static outcome use_backend(const fake_settings *settings) {
    const uint32_t gpus[N_GPUS] = {1, 0};
    const fq_device_options options = {.n_lanes = N_LANES,
                                       .max_elements = N,
                                       .max_blocks = N_BLOCKS,
                                       .for_checks = true,
                                       .gpus = gpus,
                                       .n_gpus = N_GPUS};
    const fq_backend *cuda = NULL;
    fq_device *device = NULL;
    fq_error err = {0};
    outcome out = {.opened = false};
    uint32_t n = 0;
    fake_settings working = *settings;
    working.fail_at = 0;
    fake_reset(&working);
    CHECK(fq_cuda_find(&cuda, &n, &err) == FQ_OK);
    fake_reset(settings);
    out.opened = is_clean(cuda->open(&device, &options, &err), &err);
    CHECK(out.opened == (device != NULL));
    if (out.opened)
        use_device(&out, cuda, device);
    CHECK_STR(fake_misuse(), "");
    return out;
}

static void test_without_failures(void) {
    const fake_settings settings = {.n_gpus = N_GPUS, .driver = 13000};
    const outcome out = use_backend(&settings);
    CHECK(out.opened);
    CHECK_U64(out.n_failed, 0);
    CHECK_U64(fake_n_alive(), 0);
    // Lanes 0 and 2 are on GPU 1, which comes first in the options; lane 1 is on GPU 0.
    CHECK_U64(fake_n_kernels(1), 14);
    CHECK_U64(fake_n_kernels(0), 6);
}

// One call fails: nothing else does. A resource that could not be given back is the only one left.
static void test_single_failures(cudaError_t code) {
    fake_settings settings = {.n_gpus = N_GPUS, .driver = 13000, .fail_with = code};
    uint64_t n_calls = 1;
    for (settings.fail_at = 1; settings.fail_at <= n_calls; settings.fail_at++) {
        const outcome out = use_backend(&settings);
        n_calls = fake_n_calls();
        CHECK(out.n_failed <= 1);
        if (out.opened && settings.fail_at > out.n_calls_until_close)
            CHECK(fake_n_alive() <= 1);
        else
            CHECK_U64(fake_n_alive(), 0);
    }
    CHECK(n_calls > 50);
}

// A GPU that is gone: all fails from some call on, and closing still ends and frees the host's
// memory, which the address sanitizer sees.
static void test_lasting_failures(void) {
    fake_settings settings = {.n_gpus = N_GPUS,
                              .driver = 13000,
                              .fail_from_then_on = true,
                              .fail_with = cudaErrorIllegalAddress};
    uint64_t n_calls = 1;
    for (settings.fail_at = 1; settings.fail_at <= n_calls; settings.fail_at++) {
        const outcome out = use_backend(&settings);
        n_calls = fake_n_calls();
        CHECK(!out.opened || out.n_failed > 0 || settings.fail_at > out.n_calls_until_close);
    }
}

int main(void) {
    const fake_settings none = {.n_gpus = 0};
    make_expectations();
    test_without_failures();
    test_single_failures(cudaErrorMemoryAllocation);
    test_single_failures(cudaErrorNoKernelImageForDevice);
    test_lasting_failures();
    fake_reset(&none);
    return check_result();
}
