// Activations are the same on every machine, whatever else is asked for; captured ones are found by
// name or width and refused where they are no use; and all are quantized by A1. verify's figures
// rest on them.
#include "kernels/kernels.h"
#include "lib/activations.h"
#include "lib/band.h"
#include "lib/fp8.h"
#include "lib/normal.h"
#include "tests/check.h"
#include "tests/memory_checkpoint.h"

#include <math.h>

static fq_activations_place open_cpu(void) {
    const fq_device_options options = {.n_lanes = 1,
                                       .max_elements = FQ_MIN_BAND_ELEMENTS,
                                       .max_blocks = fq_band_max_blocks(FQ_MIN_BAND_ELEMENTS)};
    fq_activations_place place = {.lane = 0};
    fq_device_choice cpu = {0};
    fq_error err = {0};
    CHECK(fq_device_choose(&cpu, "cpu", NULL, &err) == FQ_OK);
    place.backend = cpu.backend;
    CHECK(place.backend->open(&place.device, &options, &err) == FQ_OK);
    return place;
}

static fq_activations make(const fq_activations_options *options, fq_activations_key key,
                           const fq_activations_place *place) {
    fq_activations made = {.values = NULL};
    fq_error err = {0};
    if (!CHECK(fq_activations_make(&made, options, &key, place, &err) == FQ_OK))
        CHECK_NOTE("%s\n", err.text);
    return made;
}

// Worked out by Python's statistics.NormalDist, whose algorithm has 16 digits, from the same bits.
static void test_known_numbers(void) {
    static const struct {
        uint64_t seed, row, col;
        double value;
    } known[] = {
        {0, 0, 0, -1.0861360153073254},        {0, 0, 1, 1.8972432998758555},
        {0, 1, 0, -0.9008283676382407},        {1, 0, 0, 0.5058303907688637},
        {0, 127, 7167, 0.28658508892138196},   {UINT64_MAX, 3, 5, -0.7041744106173805},
        {42, 4095, 18431, 1.4222671735604058},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const double value = fq_normal(known[i].seed, known[i].row, known[i].col);
        CHECK(fabs(value - known[i].value) < 2e-7 * fabs(known[i].value));
    }
    CHECK(fq_normal(0, 0, 0) == -0x1.160d034d83b14p+0); // to the bit
    CHECK(fq_normal(0, 0, 3) == 0x1.4be86ffdc32bcp+0);
}

// Mean, variance, kurtosis and tails, within five standard deviations of their estimates.
static void test_distribution(void) {
    const double n = 1000.0 * 1000.0;
    double sum = 0.0, sum2 = 0.0, sum4 = 0.0, n_over_3 = 0.0, with_next = 0.0;
    for (uint64_t row = 0; row < 1000; row++) {
        for (uint64_t col = 0; col < 1000; col++) {
            const double x = fq_normal(7, row, col);
            sum += x;
            sum2 += x * x;
            sum4 += x * x * x * x;
            n_over_3 += fabs(x) > 3.0;
            with_next += x * fq_normal(7, row, col + 1);
        }
    }
    CHECK(fabs(sum / n) < 5e-3);
    CHECK(fabs(sum2 / n - 1.0) < 7e-3);
    CHECK(fabs(sum4 / n - 3.0) < 5e-2);
    CHECK(fabs(n_over_3 / n - 0.0026998) < 2.6e-4);
    CHECK(fabs(with_next / n) < 5e-3);
}

// More tokens or columns leave the others as they are.
static void test_normal(const fq_activations_place *place) {
    fq_activations_options options = {.kind = FQ_ACTIVATIONS_NORMAL, .tokens = 5, .seed = 3};
    fq_activations few = make(&options, (fq_activations_key){.cols = 200}, place);
    options.tokens = 33;
    fq_activations many = make(&options, (fq_activations_key){.cols = 1100}, place);
    CHECK_U64(few.tokens, 5);
    CHECK_U64(few.cols, 200);
    for (size_t row = 0; row < 5; row++)
        CHECK(memcmp(few.values + row * 200, many.values + row * 1100, 200 * 2) == 0);
    bool saturated = false;
    CHECK_U64(few.values[4 * 200 + 199],
              fq_bf16_of_f32_sat((float)fq_normal(3, 4, 199), &saturated));
    fq_activations_free(&few);
    fq_activations_free(&many);
}

static void check_block(const fq_activations *a, uint64_t row, uint64_t block, bool pow2) {
    const uint64_t n_blocks = fq_ceil_div(a->cols, 128), first = row * a->cols + block * 128;
    const uint64_t n = a->cols - block * 128 < 128 ? a->cols - block * 128 : 128;
    float amax = 0.0f;
    for (uint64_t i = first; i < first + n; i++)
        amax = fmaxf(amax, fabsf(fq_f32_of_bf16(a->values[i])));
    const float scale = fq_scale_of_amax(amax, FQ_DEFAULT_AMAX_FLOOR, pow2);
    bool same = a->scales[row * n_blocks + block] == scale;
    for (uint64_t i = first; i < first + n; i++)
        same &= a->codes[i] == fq_e4m3_of_f32_sat(fq_f32_of_bf16(a->values[i]) / scale);
    CHECK(same && "scale and codes of A1");
}

// Shapes that go to the backend whole, in several parts, and in pieces of a row.
static void test_quantized(const fq_activations_place *place) {
    static const uint64_t shapes[][2] = {{3, 1}, {130, 300}, {40, 7168}, {2, 262144 + 300}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const bool pow2 = s % 2;
        const fq_activations_options options = {.tokens = shapes[s][0]};
        const fq_activations_key key = {.cols = shapes[s][1], .pow2_scales = pow2};
        fq_activations made = make(&options, key, place);
        for (uint64_t row = 0; row < made.tokens; row++) {
            for (uint64_t block = 0; block < fq_ceil_div(made.cols, 128); block++)
                check_block(&made, row, block, pow2);
        }
        fq_activations_free(&made);
    }
}

// They are in the scale of their block, and nowhere else.
static void test_outliers(const fq_activations_place *place) {
    fq_activations_options options = {
        .kind = FQ_ACTIVATIONS_OUTLIER, .tokens = 4, .magnitude = 1e4};
    const fq_activations_key key = {.cols = 1000};
    fq_activations outliers = make(&options, key, place);
    options.kind = FQ_ACTIVATIONS_NORMAL;
    fq_activations normal = make(&options, key, place);
    for (uint64_t i = 0; i < 4 * 1000; i++) {
        const bool is_outlier = i % 1000 % FQ_ACTIVATIONS_OUTLIER_STEP == 0;
        CHECK_U64(outliers.values[i], is_outlier ? 0 : normal.values[i]);
        if (is_outlier)
            CHECK_U64(outliers.codes[i], 0);
    }
    for (uint64_t row = 0; row < 4; row++) {
        const float outlier = (float)(fabs(fq_normal(0, row, 0)) * 1e4 / 448.0);
        CHECK(fabsf(outliers.scales[row * 8] / outlier - 1.0f) < 0.01f);
        CHECK(outliers.scales[row * 8 + 1] == normal.scales[row * 8 + 1]);
    }
    fq_activations_free(&outliers);
    fq_activations_free(&normal);
}

// A file of captured activations; each value is its place.
static void fill_captured(memory_checkpoint *file) {
    uint16_t *down = memory_checkpoint_add_2d(file, 0, "m.down_proj", FQ_BF16, 6, 900);
    for (size_t i = 0; i < 6 * 900; i++)
        down[i] = (uint16_t)(0x3F80 + i % 0x80);
    float *up = memory_checkpoint_add_2d(file, 0, "m.up_proj.weight", FQ_F32, 2, 200);
    for (size_t i = 0; i < 2 * 200; i++)
        up[i] = i == 7 ? 3.4e38f : (float)i;
    uint16_t *gate = memory_checkpoint_add_2d(file, 0, "m.gate_proj", FQ_F16, 3, 200);
    for (size_t i = 0; i < 3 * 200; i++)
        gate[i] = (uint16_t)(0x3C00 + i);
    memory_checkpoint_add_2d(file, 0, "m.o_proj.weight", FQ_I32, 3, 64);
    float *bad = memory_checkpoint_add_2d(file, 0, "m.q_proj", FQ_F32, 3, 50);
    bad[2 * 50 + 9] = -INFINITY;
    memory_checkpoint_finish(file, 1);
}

// The name of the tensor that is taken, or the reason why none is.
static const char *found(const fq_activations_options *options, const char *weight, uint64_t cols) {
    fq_activations_key key = {.cols = 0};
    const char *why = NULL;
    if (!fq_activations_find(&key, options, weight, cols, &why))
        return why;
    CHECK_U64(key.cols, cols);
    return key.tensor ? key.tensor->name : "made up";
}

static void test_found(const fq_activations_options *options) {
    CHECK_STR(found(options, "m.up_proj.weight", 200), "m.up_proj.weight");
    CHECK_STR(found(options, "m.gate_proj.weight", 200), "m.gate_proj");
    CHECK_STR(found(options, "m.down_proj.weight", 900), "m.down_proj");
    // By width, since the tensor of that name has another.
    CHECK_STR(found(options, "m.up_proj.weight", 900), "m.down_proj");
    CHECK_STR(found(options, "other", 900), "m.down_proj");
    CHECK_STR(found(options, "m.k_proj.weight", 200), "several activations of that width");
    CHECK_STR(found(options, "m.o_proj.weight", 64), "no activations of that width");
    const fq_activations_options normal = {.kind = FQ_ACTIVATIONS_NORMAL, .tokens = 1};
    CHECK_STR(found(&normal, "m.o_proj.weight", 64), "made up");
}

static void test_captured(const fq_activations_place *place) {
    memory_checkpoint file = {0};
    fill_captured(&file);
    const fq_checkpoint *captured = &file.checkpoint;
    const fq_activations_options options = {
        .kind = FQ_ACTIVATIONS_CAPTURED, .tokens = 4, .captured = captured};
    fq_error err = {0};
    CHECK(fq_activations_check(captured, &err) == FQ_OK);
    test_found(&options);
    fq_activations_key key = {.cols = 900, .tensor = fq_checkpoint_find(captured, "m.down_proj")};
    fq_activations down = make(&options, key, place);
    CHECK_U64(down.tokens, 4);
    CHECK_U64(down.values[3 * 900 + 899], 0x3F80 + (3 * 900 + 899) % 0x80);
    key = (fq_activations_key){.cols = 200,
                               .tensor = fq_checkpoint_find(captured, "m.up_proj.weight")};
    fq_activations up = make(&options, key, place);
    CHECK_U64(up.tokens, 2); // all that there are
    CHECK_U64(up.values[7], 0x7F7F);
    CHECK_U64(up.values[399], 0x43C8); // 399 is no BF16 value: 400
    key.tensor = fq_checkpoint_find(captured, "m.gate_proj");
    fq_activations gate = make(&options, key, place);
    CHECK_U64(gate.values[0], 0x3F80);
    fq_activations bad = {.values = NULL};
    key = (fq_activations_key){.cols = 50, .tensor = fq_checkpoint_find(captured, "m.q_proj")};
    CHECK(fq_activations_make(&bad, &options, &key, place, &err) == FQ_BAD_INPUT);
    CHECK_STR(err.text, "model: m.q_proj: row 2, column 9 is not finite; capture activations that "
                        "are");
    fq_activations_free(&bad);
    fq_activations_free(&gate);
    fq_activations_free(&up);
    fq_activations_free(&down);
    memory_checkpoint_free(&file);
}

static void test_useless_file(void) {
    memory_checkpoint file = {0};
    const uint64_t shape[] = {2, 3, 4};
    fq_error err = {0};
    memory_checkpoint_add(&file, 0, "a", FQ_F32, 3, shape);
    memory_checkpoint_add_2d(&file, 0, "b", FQ_I64, 2, 2);
    memory_checkpoint_add_2d(&file, 0, "c", FQ_BF16, 0, 2);
    memory_checkpoint_finish(&file, 1);
    CHECK(fq_activations_check(&file.checkpoint, &err) == FQ_USAGE);
    CHECK_HAS(err.text, "model: no tensor [tokens, columns] of BF16, F16 or F32");
    memory_checkpoint_free(&file);
}

int main(void) {
    const fq_activations_place place = open_cpu();
    test_known_numbers();
    test_distribution();
    test_normal(&place);
    test_quantized(&place);
    test_outliers(&place);
    test_captured(&place);
    test_useless_file();
    place.backend->close(place.device);
    return check_result();
}
