// Results are, byte for byte, those of PyTorch on the CPU that tests/data/golden holds: the proof
// that the specification, and with it every variant, says what the rest of the world means.
#include "golden.h"
#include "trial.h"

enum { MAX_ELEMENTS = 512 * 1024, MAX_BLOCKS = 0x8000 };

static const fq_block weight_block = {128, 128}, activation_block = {1, 128};

typedef struct golden_case {
    const char *name;
    bool has_cast_back; // of activations; that of weights is always there
} golden_case;

static const golden_case cases[] = {{"128x128", true}, {"256x384", true}, {"1x1", true},
                                    {"130x257", true}, {"300x100", true}, {"130x1100", false},
                                    {"262x640", false}};

static fq_quantize_job job_of(const golden *x, fq_block block, bool pow2) {
    return (fq_quantize_job){
        .source = x->data,
        .source_dtype = x->dtype,
        .rows = x->rows,
        .cols = x->cols,
        .block = block,
        .pow2_scales = pow2,
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
    };
}

// The reference agrees with every variant (trial.h) and here with the file.
static void check_equal(const char *file, const void *actual, const golden *expected) {
    const size_t size = fq_dtype_bits(expected->dtype) / 8;
    size_t i = 0;
    if (CHECK(memcmp(actual, expected->data, expected->n * size) == 0))
        return;
    while (trial_bits(actual, i, size) == trial_bits(expected->data, i, size))
        i++;
    CHECK_NOTE("%s[%zu, %zu] is 0x%" PRIx32 ", not 0x%" PRIx32 "\n", file, i / expected->cols,
               i % expected->cols, trial_bits(actual, i, size),
               trial_bits(expected->data, i, size));
}

static void check_cast_back(trial *t, const char *file, const char *name, const golden *codes,
                            const golden *scales, fq_block block) {
    golden back = golden_read(file, name);
    const fq_dequantize_job job = {
        .codes = codes->data,
        .rows = codes->rows,
        .cols = codes->cols,
        .block = block,
        .scales = scales->data,
        .target_dtype = back.dtype,
    };
    trial_dequantize(t, job);
    check_equal(file, t->expected, &back);
    CHECK_U64(t->dequantized.saturated, 0);
    free(back.data);
}

// kind: "w" or "a".
static void test_case(trial *t, const golden_case *c, const char *kind, bool pow2) {
    const bool weight = *kind == 'w';
    const char *name = weight ? "layer.weight" : "x";
    const fq_block block = weight ? weight_block : activation_block;
    char input[64], file[64], back[80];
    snprintf(input, sizeof input, "%s.x", c->name);
    snprintf(file, sizeof file, "%s.%s_%s", c->name, kind, pow2 ? "ue8m0" : "fp32");
    snprintf(back, sizeof back, "%s.deq", file);
    golden x = golden_read(input, "x");
    golden codes = golden_read(file, name);
    golden scales = golden_read(file, weight ? "layer.weight_scale_inv" : "x_scale");
    trial_quantize(t, job_of(&x, block, pow2));
    check_equal(file, t->expected, &codes);
    check_equal(file, t->expected_scales, &scales);
    CHECK(t->quantized.nonfinite == 0 && t->quantized.saturated == 0);
    if (weight || c->has_cast_back)
        check_cast_back(t, back, name, &codes, &scales, block);
    free(x.data);
    free(codes.data);
    free(scales.data);
}

// The exponent bytes of the weights' scales.
static void test_e8m0(const golden_case *c) {
    char file[64], byte_file[64];
    snprintf(file, sizeof file, "%s.w_ue8m0", c->name);
    snprintf(byte_file, sizeof byte_file, "%s.w_ue8m0.e8m0", c->name);
    golden scales = golden_read(file, "layer.weight_scale_inv");
    golden bytes = golden_read(byte_file, "layer.weight_scale_inv");
    CHECK_U64(bytes.n, scales.n);
    for (size_t j = 0; j < bytes.n; j++) {
        const float scale = ((const float *)scales.data)[j];
        const uint8_t byte = ((const uint8_t *)bytes.data)[j];
        CHECK_U64(fq_e8m0_of_f32_up(scale), byte);
        CHECK(fq_f32_of_e8m0(byte) == scale);
    }
    free(scales.data);
    free(bytes.data);
}

// Casting back the lower half of edge256x256, which is finite: PyTorch gives Inf where a block that
// holds the largest BF16 has a power of two as its scale; fp8q gives the largest BF16.
static void test_edge_cast_back(trial *t, const char *file, const uint8_t *codes,
                                const float *scales, bool pow2) {
    golden back = golden_read(file, "layer.weight");
    const size_t half = back.n / 2;
    const uint16_t *expected = (const uint16_t *)back.data + half;
    const fq_dequantize_job job = {
        .codes = codes,
        .rows = back.rows / 2,
        .cols = back.cols,
        .block = weight_block,
        .scales = scales,
        .target_dtype = FQ_BF16,
    };
    trial_dequantize(t, job);
    uint64_t n_inf = 0;
    for (size_t i = 0; i < half; i++) {
        const bool inf = (expected[i] & 0x7FFF) == 0x7F80;
        n_inf += inf;
        CHECK_U64(((const uint16_t *)t->expected)[i], inf ? expected[i] - 1 : expected[i]);
    }
    CHECK_U64(t->dequantized.saturated, n_inf);
    CHECK((n_inf > 0) == pow2);
    free(back.data);
}

static void test_edge(trial *t, bool pow2) {
    golden x = golden_read("edge256x256.x", "x");
    const char *file = pow2 ? "edge256x256.w_ue8m0" : "edge256x256.w_fp32";
    golden codes = golden_read(file, "layer.weight");
    golden scales = golden_read(file, "layer.weight_scale_inv");
    trial_quantize(t, job_of(&x, weight_block, pow2));
    CHECK_U64(t->quantized.nonfinite, 3); // NaN at [3, 5], +Inf at [7, 137], -Inf at [8, 137]
    CHECK_U64(t->quantized.nonfinite_row, 3);
    CHECK_U64(t->quantized.nonfinite_col, 5);
    // The lower two blocks are finite.
    const size_t half = x.n / 2;
    const golden lower = {
        .rows = 128, .cols = 256, .n = half, .dtype = FQ_BF16, .data = (uint16_t *)x.data + half};
    trial_quantize(t, job_of(&lower, weight_block, pow2));
    golden lower_codes = {
        .cols = 256, .n = half, .dtype = FQ_F8_E4M3, .data = (uint8_t *)codes.data + half};
    golden lower_scales = {.cols = 2, .n = 2, .dtype = FQ_F32, .data = (float *)scales.data + 2};
    check_equal(file, t->expected, &lower_codes);
    check_equal(file, t->expected_scales, &lower_scales);
    test_edge_cast_back(t, pow2 ? "edge256x256.w_ue8m0.deq" : "edge256x256.w_fp32.deq",
                        lower_codes.data, lower_scales.data, pow2);
    free(x.data);
    free(codes.data);
    free(scales.data);
}

// The code of every BF16. PyTorch makes NaN of |x| > 464; fp8q saturates.
static void test_table_of_codes(trial *t) {
    golden table = golden_read("table.e4m3_of_all_bf16", "code");
    const uint8_t *codes = table.data;
    uint16_t *source = trial_alloc(0x10000 * sizeof *source);
    size_t n = 0;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float x = fq_f32_of_bf16((uint16_t)bits);
        if (isnan(x))
            continue;
        const bool beyond = fabsf(x) > FQ_E4M3_SATURATES;
        CHECK_U64(fq_e4m3_of_f32_sat(x), beyond ? codes[bits] - 1u : codes[bits]);
        if (fabsf(x) <= FQ_E4M3_MAX)
            source[n++] = (uint16_t)bits;
    }
    // All that are not over 448 make a block of scale 1, on every variant.
    const golden x = {.rows = 1, .cols = n, .dtype = FQ_BF16, .data = source};
    trial_quantize(t, job_of(&x, (fq_block){1, n}, false));
    CHECK(t->expected_scales[0] == 1.0f);
    for (size_t i = 0; i < n; i++)
        CHECK_U64(t->expected[i], codes[source[i]]);
    free(source);
    free(table.data);
}

static void test_table_of_rounding_points(trial *t) {
    golden x = golden_read("table.e4m3_rounding_points", "x");
    golden table = golden_read("table.e4m3_rounding_points", "code");
    const float *points = x.data;
    float *source = trial_alloc(x.n * sizeof *source);
    const uint8_t *codes = table.data;
    CHECK_U64(x.n, table.n);
    for (size_t i = 0; i < x.n; i++) {
        CHECK_U64(fq_e4m3_of_f32_sat(points[i]), codes[i]);
        source[i] = fabsf(points[i]) <= FQ_E4M3_MAX ? points[i] : FQ_E4M3_MAX;
    }
    const golden within = {.rows = 1, .cols = x.n, .dtype = FQ_F32, .data = source};
    trial_quantize(t, job_of(&within, (fq_block){1, x.n}, false));
    CHECK(t->expected_scales[0] == 1.0f);
    for (size_t i = 0; i < x.n; i++)
        CHECK(t->expected[i] == codes[i] || source[i] != points[i]);
    free(source);
    free(x.data);
    free(table.data);
}

static void test_table_of_values(trial *t) {
    golden table = golden_read("table.fp32_of_all_e4m3", "value");
    uint8_t *codes = trial_alloc(256);
    const float one = 1.0f;
    for (uint32_t code = 0; code < 256; code++)
        codes[code] = (uint8_t)code;
    const fq_dequantize_job job = {.codes = codes,
                                   .rows = 1,
                                   .cols = 256,
                                   .block = {1, 256},
                                   .scales = &one,
                                   .target_dtype = FQ_F32};
    trial_dequantize(t, job);
    for (uint32_t code = 0; code < 256; code++) {
        const float value = ((const float *)table.data)[code];
        const float actual = ((const float *)t->expected)[code];
        // PyTorch's NaN has another payload, 0x7FF00000.
        if (isnan(value))
            CHECK(isnan(actual) && signbit(actual) == signbit(value));
        else
            CHECK_U64(fq_bits_of_f32(actual), fq_bits_of_f32(value));
    }
    CHECK_U64(t->dequantized.nan_codes, 2);
    free(codes);
    free(table.data);
}

// The scale of every BF16 amax, as one block each. The table of FP32 scales begins at 0x3000.
static void test_table_of_scales(trial *t) {
    golden fp32 = golden_read("table.scales_of_all_bf16_amax", "scale_fp32");
    golden bytes = golden_read("table.scales_of_all_bf16_amax", "scale_ue8m0_byte");
    golden x = {.rows = bytes.n, .cols = 1, .dtype = FQ_BF16};
    x.data = trial_alloc(bytes.n * sizeof(uint16_t));
    for (size_t i = 0; i < bytes.n; i++)
        ((uint16_t *)x.data)[i] = (uint16_t)i;
    CHECK_U64(bytes.n, 0x7F80);
    trial_quantize(t, job_of(&x, (fq_block){1, 1}, false));
    for (size_t i = 0; i < fp32.n; i++)
        CHECK(t->expected_scales[0x3000 + i] == ((const float *)fp32.data)[i]);
    trial_quantize(t, job_of(&x, (fq_block){1, 1}, true));
    for (size_t i = 0; i < bytes.n; i++)
        CHECK(t->expected_scales[i] == fq_f32_of_e8m0(((const uint8_t *)bytes.data)[i]));
    free(x.data);
    free(fp32.data);
    free(bytes.data);
}

int main(void) {
    trial t = {.expected = NULL};
    trial_init(&t, MAX_ELEMENTS, MAX_BLOCKS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int pow2 = 0; pow2 < 2; pow2++) {
            test_case(&t, &cases[i], "w", pow2);
            test_case(&t, &cases[i], "a", pow2);
        }
        test_e8m0(&cases[i]);
    }
    test_edge(&t, false);
    test_edge(&t, true);
    test_table_of_codes(&t);
    test_table_of_rounding_points(&t);
    test_table_of_values(&t);
    test_table_of_scales(&t);
    trial_finish(&t);
    return check_result();
}
