// The codes of BF16 values under one scale, as a small table that SIMD code looks up.
//
// E4M3 codes of x / scale go up by 8 when x doubles, as long as the quotient is in E4M3's normal
// range. So they are known for all x from the codes of one power of two, 128 mantissas of BF16; and
// in these each run of 8 mantissas meets at most one step from a code to the next. docs/numerics.md
// derives it.
#ifndef FQ_KERNELS_CPU_STEPS_H
#define FQ_KERNELS_CPU_STEPS_H

#include "kernels/cpu/cpu.h"

enum {
    FQ_CPU_STEPS_GROUPS = 16,      // runs of mantissas
    FQ_CPU_STEPS_GROUP_SHIFT = 3,  // mantissa >> 3 is its run
    FQ_CPU_STEPS_N_MANTISSAS = 128 // of BF16
};

struct fq_cpu_steps {
    // For |x| = (1 + m/128)·2^e and a scale in [2^f, 2^(f+1)), with e - f = 7:
    uint8_t base[FQ_CPU_STEPS_GROUPS]; // the code where m >> 3 is the index,
    uint8_t last[FQ_CPU_STEPS_GROUPS]; // up to this m; one more beyond
};

// One row for each mantissa of a BF16 amax, one for powers of two, one for the default floor.
enum { FQ_CPU_N_STEPS = FQ_CPU_STEPS_N_MANTISSAS + 2 };

// Fills the table from the scalar codecs.
void fq_cpu_steps_fill(fq_cpu_steps rows[FQ_CPU_N_STEPS]);

// The row of the table for a block of elements of that dtype; NULL if it has none and must be
// divided. amax and scale are the block's: the scale may be any, but only one that follows from
// amax, a power of two, and that of the default floor have rows.
const fq_cpu_steps *fq_cpu_steps_find(const fq_cpu_steps rows[FQ_CPU_N_STEPS],
                                      fq_dtype source_dtype, float amax, float scale);

// The code of x is its row's code plus 8 × x's biased exponent minus this, modulo 256.
static inline uint8_t fq_cpu_steps_bias(float scale) {
    return (uint8_t)(((fq_bits_of_f32(scale) >> 23) + 7) << 3);
}

// The least BF16 magnitude (its bits) that a row is right for: x ≥ 2^(f-5), whose quotient is over
// 2^-6 and so normal; and no BF16 subnormal.
static inline uint16_t fq_cpu_steps_least(float scale) {
    const uint32_t exponent = fq_bits_of_f32(scale) >> 23;
    return (uint16_t)((exponent > 6 ? exponent - 5 : 1) << 7);
}

#endif
