// Every call of the CUDA runtime fails once while verify's GEMM runs, alone or with all that
// follow: each must be told of, never give wrong figures as right ones, and leave nothing behind.
#include "fake_cuda.h"
#include "kernels/cuda/backend.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>

enum { TOKENS = 3, ROWS = 130, COLS = 600, N_LANES = 3, N_GPUS = 2 };
enum { N_BLOCKS = (COLS + 127) / 128, N_ROW_BLOCKS = (ROWS + 127) / 128, N_WORDS = 2 };

static uint16_t values[TOKENS * COLS], source[ROWS * COLS];
static uint8_t x_codes[TOKENS * COLS], codes[ROWS * COLS];
static float x_scales[TOKENS * N_BLOCKS], scales[N_ROW_BLOCKS * N_BLOCKS];
static uint32_t words[N_WORDS * ROWS];

// All values are 1, so that every element of every product is COLS.
static void make_operands(void) {
    enum { BF16_ONE = 0x3F80, E4M3_ONE = 0x38, WORD_OF_ONES = 0x7F7F7F7F };
    for (size_t i = 0; i < ROWS * COLS; i++) {
        source[i] = BF16_ONE;
        codes[i] = E4M3_ONE;
    }
    for (size_t i = 0; i < TOKENS * COLS; i++) {
        values[i] = BF16_ONE;
        x_codes[i] = E4M3_ONE;
    }
    for (size_t i = 0; i < TOKENS * N_BLOCKS; i++)
        x_scales[i] = 1.0f;
    for (size_t i = 0; i < N_ROW_BLOCKS * N_BLOCKS; i++)
        scales[i] = 1.0f;
    for (size_t i = 0; i < N_WORDS * ROWS; i++)
        words[i] = WORD_OF_ONES;
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

static void check_sums(const fq_gemm_sums *sums) {
    for (size_t row = 0; row < ROWS; row++) {
        CHECK_U64(sums[row].n, TOKENS);
        CHECK(sums[row].kernel_error2 == 0.0 && sums[row].error2 == 0.0);
        CHECK(sums[row].exact2 == (double)TOKENS * COLS * COLS);
        CHECK(sums[row].reference2 == sums[row].exact2);
    }
}

// One strip in two pieces, without its end. False if it failed somewhere.
static bool add_strip(const fq_backend *cuda, fq_device *device, uint32_t lane,
                      const fq_gemm_strip *strip) {
    const fq_gemm *gemm = fq_cuda_verify_gemm();
    static uint8_t part_codes[ROWS * 512];
    static uint16_t part_source[ROWS * 512];
    fq_error err = {0};
    bool good = is_clean(gemm->begin(device, lane, strip, &err), &err);
    for (uint64_t col0 = 0; col0 < COLS && good; col0 += 512) {
        const uint64_t cols = COLS - col0 < 512 ? COLS - col0 : 512;
        memcpy(part_codes, codes, ROWS * cols);
        memcpy(part_source, source, ROWS * cols * sizeof *source);
        const fq_gemm_piece piece = {.rows = ROWS,
                                     .cols = cols,
                                     .col0 = col0,
                                     .codes = part_codes,
                                     .scales = scales,
                                     .packed = words + col0 / 512 * ROWS,
                                     .packed_stride = ROWS,
                                     .source = part_source,
                                     .source_dtype = FQ_BF16};
        good = is_clean(gemm->add(device, lane, &piece, &err), &err);
        good &= is_clean(cuda->wait(device, lane, &err), &err);
        CHECK_U64(fake_n_queued(), 0);
    }
    return good;
}

// A strip that is multiplied by itself.
static bool multiply(const fq_backend *cuda, fq_device *device, uint32_t lane,
                     const fq_gemm_operand *x) {
    const fq_gemm *gemm = fq_cuda_verify_gemm();
    static fq_gemm_sums sums[ROWS];
    static float product[TOKENS * ROWS];
    const fq_gemm_strip strip = {.activations = x, .rows = ROWS};
    const fq_gemm_result result = {.sums = sums, .product = product};
    fq_error err = {0};
    bool good = add_strip(cuda, device, lane, &strip);
    if (good)
        good = is_clean(gemm->end(device, lane, &result, &err), &err);
    good &= is_clean(cuda->wait(device, lane, &err), &err);
    if (good)
        check_sums(sums);
    for (size_t i = 0; good && i < TOKENS * ROWS; i++)
        CHECK(product[i] == (float)COLS);
    return good;
}

static void take(void *n_taken, const fq_gemm_sums *sums, uint64_t rows) {
    ++*(uint32_t *)n_taken;
    CHECK_U64(rows, ROWS);
    check_sums(sums);
}

// A strip a lane in a group, twice. False if it failed somewhere: the strips that did not are
// launched all the same, unless that is what fails. Where there is no room, there is no group.
static bool multiply_group(const fq_backend *cuda, fq_device *device, const fq_gemm_operand *x,
                           uint64_t *n_calls_until_free) {
    const fq_gemm *gemm = fq_cuda_verify_gemm();
    uint32_t n_taken = 0, n_ended = 0;
    const fq_gemm_group_options options = {
        .activations = x, .rows = ROWS, .n_strips = 2 * N_LANES, .has_words = true, .take = take};
    fq_gemm_strip strip = {.activations = x, .rows = ROWS, .taker = &n_taken};
    fq_error err = {0};
    bool good = is_clean(gemm->open_group(&strip.group, device, &options, &err), &err);
    CHECK(good || !strip.group);
    for (uint32_t i = 0; i < options.n_strips && strip.group; i++) {
        const uint32_t lane = i % N_LANES;
        bool ended = add_strip(cuda, device, lane, &strip);
        if (ended)
            ended = is_clean(gemm->end(device, lane, NULL, &err), &err);
        n_ended += ended;
        good &= ended;
    }
    const bool launched = is_clean(gemm->launch(device, strip.group, &err), &err);
    if (launched)
        CHECK_U64(n_taken, n_ended);
    *n_calls_until_free = fake_n_calls();
    gemm->close_group(device, strip.group);
    return good && launched;
}

// What became of one use of the GEMM.
typedef struct outcome {
    bool opened;
    uint32_t n_failed;           // products, or all of them by loading
    uint64_t n_calls_until_free; // made before anything was given back
} outcome;

static void use_device(outcome *out, const fq_backend *cuda, fq_device *device) {
    const fq_gemm *gemm = fq_cuda_verify_gemm();
    const fq_gemm_activations activations = {
        .tokens = TOKENS, .cols = COLS, .values = values, .codes = x_codes, .scales = x_scales};
    fq_gemm_operand *x = NULL;
    fq_error err = {0};
    const bool loaded = is_clean(gemm->load(&x, device, &activations, &err), &err);
    CHECK(loaded == (x != NULL));
    out->n_failed += !loaded;
    for (uint32_t lane = 0; lane < N_LANES && loaded; lane++)
        out->n_failed += !multiply(cuda, device, lane, x);
    out->n_calls_until_free = fake_n_calls();
    if (loaded)
        out->n_failed += !multiply_group(cuda, device, x, &out->n_calls_until_free);
    gemm->unload(device, x);
    cuda->close(device);
}

static outcome use_gemm(const fake_settings *settings) {
    const uint32_t gpus[N_GPUS] = {1, 0};
    const fq_device_options options = {.n_lanes = N_LANES,
                                       .max_elements = 1,
                                       .max_blocks = 1,
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
    if (out.opened)
        use_device(&out, cuda, device);
    CHECK_STR(fake_misuse(), "");
    return out;
}

static void test_without_failures(void) {
    const fake_settings settings = {.n_gpus = N_GPUS, .driver = 13000};
    const outcome out = use_gemm(&settings);
    CHECK(out.opened);
    CHECK_U64(out.n_failed, 0);
    CHECK_U64(fake_n_alive(), 0);
    CHECK(fake_n_kernels(1) > fake_n_kernels(0)); // lanes 0 and 2
    CHECK(fake_n_kernels(0) > 0);
}

// One call fails: nothing else does. A resource that could not be given back is the only one left.
static void test_single_failures(void) {
    fake_settings settings = {
        .n_gpus = N_GPUS, .driver = 13000, .fail_with = cudaErrorMemoryAllocation};
    uint64_t n_calls = 1;
    for (settings.fail_at = 1; settings.fail_at <= n_calls; settings.fail_at++) {
        const outcome out = use_gemm(&settings);
        n_calls = fake_n_calls();
        CHECK(out.n_failed <= 1);
        CHECK(fake_n_alive() <= 1);
        if (!out.opened)
            CHECK_U64(fake_n_alive(), 0);
    }
    CHECK(n_calls > 150);
}

// A GPU that is gone: all fails from some call on, and closing still frees the host's memory, which
// the address sanitizer sees.
static void test_lasting_failures(void) {
    fake_settings settings = {.n_gpus = N_GPUS,
                              .driver = 13000,
                              .fail_from_then_on = true,
                              .fail_with = cudaErrorIllegalAddress};
    uint64_t n_calls = 1;
    for (settings.fail_at = 1; settings.fail_at <= n_calls; settings.fail_at++) {
        const outcome out = use_gemm(&settings);
        n_calls = fake_n_calls();
        CHECK(!out.opened || out.n_failed > 0 || settings.fail_at > out.n_calls_until_free);
    }
}

int main(void) {
    const fake_settings none = {.n_gpus = 0};
    make_operands();
    test_without_failures();
    test_single_failures();
    test_lasting_failures();
    fake_reset(&none);
    return check_result();
}
