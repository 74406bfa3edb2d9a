// Fills and finds the tables of steps: see steps.h.
#include "kernels/cpu/steps.h"

#include <assert.h>

enum { ROW_POW2 = FQ_CPU_STEPS_N_MANTISSAS, ROW_DEFAULT_FLOOR };

static void fill_row(fq_cpu_steps *row, float scale) {
    const uint32_t exponent = fq_bits_of_f32(scale) >> 23;
    for (uint32_t m = 0; m < FQ_CPU_STEPS_N_MANTISSAS; m++) {
        const float x = fq_f32_of_bf16((uint16_t)((exponent + 7) << 7 | m));
        const uint8_t code = fq_e4m3_of_f32_sat(x / scale);
        const uint32_t group = m >> FQ_CPU_STEPS_GROUP_SHIFT;
        if (m == group << FQ_CPU_STEPS_GROUP_SHIFT)
            row->base[group] = code;
        if (code == row->base[group])
            row->last[group] = (uint8_t)m;
        assert(code - row->base[group] <= 1);
    }
}

void fq_cpu_steps_fill(fq_cpu_steps rows[FQ_CPU_N_STEPS]) {
    for (uint32_t m = 0; m < FQ_CPU_STEPS_N_MANTISSAS; m++) {
        const float amax = fq_f32_of_bf16((uint16_t)(FQ_F32_BIAS << 7 | m));
        fill_row(&rows[m], fq_scale_of_amax(amax, 0.0f, false));
    }
    fill_row(&rows[ROW_POW2], 1.0f);
    fill_row(&rows[ROW_DEFAULT_FLOOR], fq_scale_of_amax(0.0f, FQ_DEFAULT_AMAX_FLOOR, false));
}

const fq_cpu_steps *fq_cpu_steps_find(const fq_cpu_steps rows[FQ_CPU_N_STEPS],
                                      fq_dtype source_dtype, float amax, float scale) {
    if (source_dtype != FQ_BF16 || scale < 0x1p-126f)
        return NULL;
    if ((fq_bits_of_f32(scale) & 0x7FFFFFu) == 0)
        return &rows[ROW_POW2];
    if (scale == fq_scale_of_amax(amax, 0.0f, false))
        return &rows[(fq_bits_of_f32(amax) >> 16) % FQ_CPU_STEPS_N_MANTISSAS];
    return scale == fq_scale_of_amax(0.0f, FQ_DEFAULT_AMAX_FLOOR, false) ? &rows[ROW_DEFAULT_FLOOR]
                                                                         : NULL;
}
