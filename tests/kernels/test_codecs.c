// The scalar codecs of lib/fp8.h against what their formats mean, worked out another way: nearest
// values by search, in double precision. All other kernel tests lean on these functions.
#include "lib/fp8.h"
#include "tests/check.h"

#include <float.h>
#include <math.h>

// The value of a 16-bit or smaller format's bits, by the definition of such formats: no NaN or Inf.
static double value_of(uint32_t bits, int n_exponent, int n_mantissa) {
    const int bias = (1 << (n_exponent - 1)) - 1;
    const uint32_t mantissa = bits & ((1u << n_mantissa) - 1);
    const int exponent = (int)(bits >> n_mantissa & ((1u << n_exponent) - 1));
    const int hidden = exponent != 0;
    const double magnitude = ldexp((double)(((uint32_t)hidden << n_mantissa) + mantissa),
                                   (hidden ? exponent : 1) - bias - n_mantissa);
    return bits >> (n_exponent + n_mantissa) ? -magnitude : magnitude;
}

static void test_values(void) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        if ((bits & 0x7FFF) < 0x7F80)
            CHECK(fq_f32_of_bf16((uint16_t)bits) == value_of(bits, 8, 7));
        if ((bits & 0x7FFF) < 0x7C00)
            CHECK(fq_f32_of_f16((uint16_t)bits) == value_of(bits, 5, 10));
        if (bits < 256 && (bits & 0x7F) != FQ_E4M3_NAN_CODE)
            CHECK(fq_f32_of_e4m3((uint8_t)bits) == value_of(bits, 4, 3));
        if (bits < FQ_E8M0_NAN)
            CHECK(fq_f32_of_e8m0((uint8_t)bits) == ldexp(1.0, (int)bits - 127));
    }
    CHECK(isinf(fq_f32_of_f16(0x7C00)) && isinf(fq_f32_of_bf16(0x7F80)));
    CHECK(isnan(fq_f32_of_f16(0x7C01)) && isnan(fq_f32_of_bf16(0x7F81)));
    CHECK(isnan(fq_f32_of_e8m0(FQ_E8M0_NAN)));
    CHECK_U64(fq_bits_of_f32(fq_f32_of_e4m3(0x7F)), 0x7FC00000);
    CHECK_U64(fq_bits_of_f32(fq_f32_of_e4m3(0xFF)), 0xFFC00000);
    CHECK_U64(fq_bits_of_f32(fq_f32_of_e4m3(0x80)), 0x80000000);
    CHECK_U64(fq_bits_of_f32(fq_f32_of_f16(0x8000)), 0x80000000);
}

typedef struct format {
    int n_exponent, n_mantissa;
    uint32_t greatest; // bits of the greatest finite value
} format;

static uint32_t encode(const format *f, float value, bool *saturated) {
    if (f->n_mantissa == 3)
        return fq_e4m3_of_f32_sat(value);
    return f->n_mantissa == 7 ? fq_bf16_of_f32_sat(value, saturated)
                              : fq_f16_of_f32_sat(value, saturated);
}

// value lies between the format's values of bits and bits + 1.
static void check_between(const format *f, uint32_t bits, float value) {
    const double low = value_of(bits, f->n_exponent, f->n_mantissa);
    const double high = value_of(bits + 1, f->n_exponent, f->n_mantissa);
    const double middle = (low + high) / 2; // exact
    const uint32_t up = value > middle || (value == middle && (bits & 1));
    const uint32_t expected = bits + up > f->greatest ? f->greatest : bits + up;
    const uint32_t sign = 1u << (f->n_exponent + f->n_mantissa);
    bool saturated = false;
    CHECK_U64(encode(f, value, &saturated), expected);
    CHECK_U64(encode(f, -value, &saturated), expected | sign);
    if (f->n_mantissa != 3)
        CHECK(saturated == (bits + up > f->greatest));
}

// Around each value of a format and each middle of two; the last step leads beyond the greatest.
static void test_rounding(const format *f) {
    for (uint32_t bits = 0; bits <= f->greatest; bits++) {
        const double low = value_of(bits, f->n_exponent, f->n_mantissa);
        const double high = value_of(bits + 1, f->n_exponent, f->n_mantissa);
        const float middle = (float)((low + high) / 2);
        check_between(f, bits, (float)low);
        check_between(f, bits, nextafterf((float)low, FLT_MAX));
        check_between(f, bits, nextafterf(middle, 0.0f));
        check_between(f, bits, middle);
        check_between(f, bits, nextafterf(middle, FLT_MAX));
        if (high <= (double)FLT_MAX)
            check_between(f, bits, nextafterf((float)high, 0.0f));
    }
}

static void test_beyond(void) {
    bool saturated = false;
    CHECK_U64(fq_e4m3_of_f32_sat(FLT_MAX), FQ_E4M3_MAX_CODE);
    CHECK_U64(fq_e4m3_of_f32_sat(-INFINITY), 0x80 | FQ_E4M3_MAX_CODE);
    CHECK_U64(fq_bf16_of_f32_sat(INFINITY, &saturated), 0x7F7F);
    CHECK(saturated);
    saturated = false;
    CHECK_U64(fq_f16_of_f32_sat(-FLT_MAX, &saturated), 0xFBFF);
    CHECK(saturated);
    saturated = false;
    CHECK_U64(fq_bf16_of_f32_sat(fq_f32_of_bits(0xFFC00000), &saturated), 0xFFC0);
    CHECK_U64(fq_f16_of_f32_sat(fq_f32_of_bits(0x7FC00000), &saturated), 0x7E00);
    CHECK(!saturated);
}

static void test_scale(void) {
    CHECK_U64(fq_bits_of_f32(fq_scale_of_amax(1.0f, FQ_DEFAULT_AMAX_FLOOR, false)), 0x3B124925);
    CHECK(fq_scale_of_amax(1.0f, 0.0f, true) == 0x1p-8f);
    CHECK(fq_scale_of_amax(448.0f, 0.0f, true) == 1.0f);
    CHECK(fq_scale_of_amax(nextafterf(448.0f, FLT_MAX), 0.0f, true) == 2.0f);
    CHECK(fq_scale_of_amax(0.0f, 1e-4f, false) == 1e-4f / 448.0f);
    CHECK(fq_scale_of_amax(1e-5f, 1e-4f, true) == 0x1p-22f);
    CHECK(fq_scale_of_amax(0.0f, 0.0f, false) == 1.0f);
    CHECK(fq_scale_of_amax(0.0f, 0.0f, true) == 1.0f);
    CHECK(fq_scale_of_amax(0x1p-149f, 0.0f, false) == 0x1p-149f);
    CHECK(fq_scale_of_amax(0x1p-149f, 0.0f, true) == 0x1p-126f);
    CHECK(fq_scale_of_amax(FLT_MAX, 0.0f, true) == 0x1p120f);
    CHECK_U64(fq_e8m0_of_f32_up(0.0f), 1);
    CHECK_U64(fq_e8m0_of_f32_up(0x1p-127f), 1);
    CHECK_U64(fq_e8m0_of_f32_up(0x1.000002p-126f), 2);
    CHECK_U64(fq_e8m0_of_f32_up(1.0f), 127);
    CHECK_U64(fq_e8m0_of_f32_up(FLT_MAX), 254);
}

int main(void) {
    const format bf16 = {8, 7, 0x7F7F}, f16 = {5, 10, 0x7BFF}, e4m3 = {4, 3, FQ_E4M3_MAX_CODE};
    test_values();
    test_rounding(&bf16);
    test_rounding(&f16);
    test_rounding(&e4m3);
    test_beyond();
    test_scale();
    return check_result();
}
