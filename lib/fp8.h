// The scalar codecs: THE definition of every bit that fp8q computes. docs/numerics.md says why.
//
// Plain IEEE-754 FP32 with round to nearest even; compile without fast-math, contraction or
// flush-to-zero. SIMD and GPU code must give the same bits as these functions.
#ifndef FQ_FP8_H
#define FQ_FP8_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    FQ_E4M3_MAX_CODE = 0x7E, // 448
    FQ_E4M3_NAN_CODE = 0x7F,
    FQ_E4M3_BIAS = 7,
    FQ_F32_BIAS = 127,
    FQ_E8M0_BIAS = 127,
    FQ_E8M0_NAN = 255,
};

#define FQ_E4M3_MAX 448.0f          // largest finite E4M3 value
#define FQ_E4M3_SATURATES 464.0f    // half way to the next step, 480; the tie goes to 448
#define FQ_DEFAULT_AMAX_FLOOR 1e-4f // as DeepSeek's and DeepGEMM's utilities

static inline uint32_t fq_bits_of_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float fq_f32_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// BF16 is the upper half of an FP32: exact.
static inline float fq_f32_of_bf16(uint16_t bits) { return fq_f32_of_bits((uint32_t)bits << 16); }

// Nearest BF16, ties to even. A NaN keeps its sign and upper payload and becomes quiet. A finite
// value that rounds beyond the largest BF16 becomes it (0x7F7F), sign kept, and sets *saturated.
static inline uint16_t fq_bf16_of_f32_sat(float value, bool *saturated) {
    const uint32_t bits = fq_bits_of_f32(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint16_t)((bits >> 16) | 0x0040u);
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    if ((rounded & 0x7FFFu) < 0x7F80u)
        return (uint16_t)rounded;
    *saturated = true;
    return (uint16_t)((bits >> 31) << 15 | 0x7F7Fu);
}

// Exact: every FP16 value, subnormals too, is an FP32 value.
static inline float fq_f32_of_f16(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1Fu;
    const uint32_t mantissa = half & 0x3FFu;
    if (exponent == 0x1F)
        return fq_f32_of_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent != 0)
        return fq_f32_of_bits(sign | (exponent + FQ_F32_BIAS - 15) << 23 | mantissa << 13);
    const float magnitude = (float)mantissa * 0x1p-24f;
    return fq_f32_of_bits(sign | fq_bits_of_f32(magnitude));
}

// Nearest FP16, ties to even, subnormals kept. NaN and saturation (to 0x7BFF, 65504) as above.
static inline uint16_t fq_f16_of_f32_sat(float value, bool *saturated) {
    const uint32_t bits = fq_bits_of_f32(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint16_t sign = (uint16_t)(bits >> 31 << 15);
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
    if (magnitude >= fq_bits_of_f32(65520.0f)) { // half way to 65536 and beyond
        *saturated = true;
        return (uint16_t)(sign | 0x7BFFu);
    }
    if (magnitude < fq_bits_of_f32(0x1p-14f)) {
        // FP32 addition rounds to multiples of 2^-24, FP16's least step: 0.5 has ulp 2^-24.
        const float shifted = fq_f32_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (fq_bits_of_f32(shifted) - fq_bits_of_f32(0.5f)));
    }
    const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded >> 13) - ((uint32_t)(FQ_F32_BIAS - 15) << 10)));
}

// The value of an E4M3 code (OCP 8-bit floating point, E4M3): exact. 0x7F and 0xFF are NaN.
static inline float fq_f32_of_e4m3(uint8_t code) {
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t magnitude = code & 0x7Fu;
    if (magnitude == FQ_E4M3_NAN_CODE)
        return fq_f32_of_bits(sign | 0x7FC00000u);
    if (magnitude < 8)
        return fq_f32_of_bits(sign | fq_bits_of_f32((float)magnitude * 0x1p-9f));
    return fq_f32_of_bits(sign |
                          ((magnitude << 20) + ((uint32_t)(FQ_F32_BIAS - FQ_E4M3_BIAS) << 23)));
}

// Nearest E4M3, ties to even, subnormals kept, saturating at ±448; the sign of zero is kept.
// value is not NaN. Never gives a NaN code.
static inline uint8_t fq_e4m3_of_f32_sat(float value) {
    const uint32_t bits = fq_bits_of_f32(value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint8_t sign = (uint8_t)(bits >> 31 << 7);
    if (magnitude >= fq_bits_of_f32(FQ_E4M3_MAX))
        return (uint8_t)(sign | FQ_E4M3_MAX_CODE);
    if (magnitude < fq_bits_of_f32(0x1p-6f)) {
        // FP32 addition rounds to multiples of 2^-9, E4M3's least step: 2^14 has ulp 2^-9.
        const float shifted = fq_f32_of_bits(magnitude) + 0x1p14f;
        return (uint8_t)(sign | (fq_bits_of_f32(shifted) - fq_bits_of_f32(0x1p14f)));
    }
    const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((rounded >> 20) - ((uint32_t)(FQ_F32_BIAS - FQ_E4M3_BIAS) << 3)));
}

// 2^(exponent - 127), exact; exponent 0 is 2^-127, an FP32 subnormal; 255 is NaN.
static inline float fq_f32_of_e8m0(uint8_t exponent) {
    if (exponent == FQ_E8M0_NAN)
        return fq_f32_of_bits(0x7FC00000u);
    return exponent == 0 ? 0x1p-127f : fq_f32_of_bits((uint32_t)exponent << 23);
}

// The biased exponent of the least power of two that is not under scale, clamped to 1..254.
// scale is finite and not negative. Bit operations, never log2.
static inline uint8_t fq_e8m0_of_f32_up(float scale) {
    const uint32_t bits = fq_bits_of_f32(scale) & 0x7FFFFFFFu;
    const uint32_t exponent = (bits >> 23) + ((bits & 0x7FFFFFu) != 0);
    return (uint8_t)(exponent < 1 ? 1 : exponent > 254 ? 254 : exponent);
}

// The scale of a block (docs/numerics.md): max(amax, floor) / 448, one division;
// with pow2 rounded up to a power of two. amax is finite and not negative; floor 0 is none.
// Always finite and positive.
static inline float fq_scale_of_amax(float amax, float amax_floor, bool pow2) {
    const float bounded = amax > amax_floor ? amax : amax_floor;
    if (bounded == 0.0f)
        return 1.0f;
    const float scale = bounded / FQ_E4M3_MAX;
    if (pow2)
        return fq_f32_of_e8m0(fq_e8m0_of_f32_up(scale));
    return scale > 0.0f ? scale : 0x1p-149f;
}

#endif
