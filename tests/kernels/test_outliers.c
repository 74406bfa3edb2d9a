// What outlier channels of activations do to the others, under one scale for the whole tensor and
// under blocks: the experiment that made the field take blocks, with its figures. It goes through
// all that verify --activations outlier uses.
#include "kernels/kernels.h"
#include "lib/activations.h"
#include "lib/band.h"
#include "lib/fp8.h"
#include "lib/normal.h"
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>

enum {
    TOKENS = 64,
    COLS = 7168,
    ROWS = 256,
    N_BLOCKS = COLS / 128,
    N_WEIGHTS = ROWS * COLS,
    SEED_OF_WEIGHTS = 1000, // others than those of the activations
};

// Backend, device, and a weight quantized in both ways.
typedef struct experiment {
    fq_activations_place place;
    const fq_gemm *gemm;
    uint16_t *weights;                 // [ROWS, COLS] BF16, of deviation 0.02
    uint8_t *codes, *codes_per_tensor; // [ROWS, COLS]
    float scales[ROWS / 128 * N_BLOCKS], scales_per_tensor[ROWS / 128 * N_BLOCKS];
} experiment;

static void *allocate(size_t nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, nbytes) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static uint16_t bf16_of(double value) {
    bool saturated = false;
    return fq_bf16_of_f32_sat((float)value, &saturated);
}

// Quantizes n values under one scale, which is returned.
static float quantize_per_tensor(uint8_t *codes, const uint16_t *values, size_t n) {
    float amax = 0.0f;
    for (size_t i = 0; i < n; i++)
        amax = fmaxf(amax, fabsf(fq_f32_of_bf16(values[i])));
    const float scale = fq_scale_of_amax(amax, 0.0f, false);
    for (size_t i = 0; i < n; i++)
        codes[i] = fq_e4m3_of_f32_sat(fq_f32_of_bf16(values[i]) / scale);
    return scale;
}

static void make_weights(experiment *e, uint64_t seed) {
    for (size_t i = 0; i < N_WEIGHTS; i++)
        e->weights[i] = bf16_of(0.02 * fq_normal(SEED_OF_WEIGHTS + seed, i / COLS, i % COLS));
    const float scale = quantize_per_tensor(e->codes_per_tensor, e->weights, N_WEIGHTS);
    for (size_t i = 0; i < ROWS / 128 * N_BLOCKS; i++)
        e->scales_per_tensor[i] = scale;
    fq_quantize_counts counts;
    fq_error err = {0};
    const fq_quantize_job job = {
        .source = e->weights,
        .source_dtype = FQ_BF16,
        .rows = ROWS,
        .cols = COLS,
        .block = {128, 128},
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = e->codes,
        .scales = e->scales,
        .counts = &counts,
    };
    CHECK(e->place.backend->quantize(e->place.device, 0, &job, &err) == FQ_OK);
    CHECK(e->place.backend->wait(e->place.device, 0, &err) == FQ_OK);
}

// ‖Y − X·Wᵀ‖ / ‖X·Wᵀ‖
static double multiply(const experiment *e, const fq_gemm_activations *x, const uint8_t *codes,
                       const float *scales) {
    fq_device *device = e->place.device;
    fq_gemm_operand *operand = NULL;
    fq_gemm_sums sums[ROWS];
    fq_error err = {0};
    const fq_gemm_piece piece = {
        .rows = ROWS,
        .cols = COLS,
        .codes = codes,
        .scales = scales,
        .source = e->weights,
        .source_dtype = FQ_BF16,
    };
    const fq_gemm_result result = {.sums = sums};
    CHECK(e->gemm->load(&operand, device, x, &err) == FQ_OK);
    const fq_gemm_strip strip = {.activations = operand, .rows = ROWS};
    CHECK(e->gemm->begin(device, 0, &strip, &err) == FQ_OK);
    CHECK(e->gemm->add(device, 0, &piece, &err) == FQ_OK);
    CHECK(e->gemm->end(device, 0, &result, &err) == FQ_OK);
    CHECK(e->place.backend->wait(device, 0, &err) == FQ_OK);
    e->gemm->unload(device, operand);
    double error2 = 0.0, reference2 = 0.0;
    for (size_t row = 0; row < ROWS; row++) {
        CHECK_U64(sums[row].n, TOKENS);
        error2 += sums[row].error2;
        reference2 += sums[row].reference2;
    }
    return sqrt(error2 / reference2);
}

// The same activations under one scale. Outlier channels count for it and are then taken out.
static double multiply_per_tensor(const experiment *e, const fq_activations_options *options) {
    uint16_t *values = allocate(TOKENS * COLS * sizeof *values);
    uint8_t *codes = allocate(TOKENS * COLS);
    float scales[TOKENS * N_BLOCKS];
    for (size_t i = 0; i < TOKENS * COLS; i++) {
        const bool is_outlier = i % COLS % FQ_ACTIVATIONS_OUTLIER_STEP == 0;
        values[i] = bf16_of(fq_normal(options->seed, i / COLS, i % COLS) *
                            (is_outlier ? options->magnitude : 1.0));
    }
    const float scale = quantize_per_tensor(codes, values, TOKENS * COLS);
    for (size_t i = 0; i < TOKENS * N_BLOCKS; i++)
        scales[i] = scale;
    for (size_t i = 0; i < TOKENS * COLS; i++) {
        if (i % COLS % FQ_ACTIVATIONS_OUTLIER_STEP == 0)
            values[i] = codes[i] = 0;
    }
    const fq_gemm_activations x = {
        .tokens = TOKENS, .cols = COLS, .values = values, .codes = codes, .scales = scales};
    const double error = multiply(e, &x, e->codes_per_tensor, e->scales_per_tensor);
    free(values);
    free(codes);
    return error;
}

static double multiply_in_blocks(const experiment *e, const fq_activations_options *options) {
    const fq_activations_key key = {.cols = COLS};
    fq_activations made = {.values = NULL};
    fq_error err = {0};
    CHECK(fq_activations_make(&made, options, &key, &e->place, &err) == FQ_OK);
    const fq_gemm_activations x = fq_activations_view(&made);
    const double error = multiply(e, &x, e->codes, e->scales);
    fq_activations_free(&made);
    return error;
}

static void open_experiment(experiment *e, uint64_t seed) {
    const fq_device_options options = {
        .n_lanes = 1, .max_elements = N_WEIGHTS, .max_blocks = fq_band_max_blocks(N_WEIGHTS)};
    fq_device_choice cpu = {0};
    fq_error err = {0};
    CHECK(fq_device_choose(&cpu, "cpu", NULL, &err) == FQ_OK);
    e->place.backend = cpu.backend;
    CHECK(e->place.backend->open(&e->place.device, &options, &err) == FQ_OK);
    e->gemm = fq_gemm_find(e->place.backend);
    e->weights = allocate(N_WEIGHTS * sizeof *e->weights);
    e->codes = allocate(N_WEIGHTS);
    e->codes_per_tensor = allocate(N_WEIGHTS);
    make_weights(e, seed);
}

static void close_experiment(experiment *e) {
    e->place.backend->close(e->place.device);
    free(e->weights);
    free(e->codes);
    free(e->codes_per_tensor);
}

// Within that share of what is known.
static void check_error(double error, double known, double share) {
    if (!CHECK(fabs(error / known - 1.0) <= share))
        CHECK_NOTE("%.4f, not %.4f within %.0f %%\n", error, known, 100.0 * share);
}

// The argument is the seed; with another than 0 the table is only printed.
int main(int argc, char **argv) {
    static const struct {
        double magnitude, per_tensor, blocks;
    } known[] = {
        {1e1, 0.037, 0.037}, {1e3, 0.037, 0.037}, {3e4, 0.138, 0.039}, {1e5, 0.438, 0.059}};
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    static experiment e;
    open_experiment(&e, seed);
    printf("magnitude  per tensor  blocks\n");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const fq_activations_options options = {
            .kind = FQ_ACTIVATIONS_OUTLIER,
            .tokens = TOKENS,
            .seed = seed,
            .magnitude = known[i].magnitude,
        };
        const double per_tensor = multiply_per_tensor(&e, &options);
        const double blocks = multiply_in_blocks(&e, &options);
        printf("%9.0e  %10.4f  %6.4f\n", known[i].magnitude, per_tensor, blocks);
        if (seed != 0)
            continue;
        // The one scale is that of the greatest of 512 normal numbers, which varies by a tenth.
        check_error(per_tensor, known[i].per_tensor, known[i].magnitude > 1e4 ? 0.2 : 0.03);
        check_error(blocks, known[i].blocks, 0.03);
    }
    close_experiment(&e);
    return check_result();
}
