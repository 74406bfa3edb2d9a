// Casts a matrix back on the CPU, row by row.
#include "kernels/cpu/cpu.h"

#include <assert.h>
#include <float.h>

// True if the greatest code under some scale may come out beyond the greatest finite value.
static bool may_saturate(fq_cpu_float type, const float *scales, uint64_t n) {
    static const float greatest[FQ_CPU_N_FLOATS] = {
        [FQ_CPU_BF16] = 0x1.FEp127f, [FQ_CPU_F16] = 65504.0f, [FQ_CPU_F32] = FLT_MAX};
    for (uint64_t j = 0; j < n; j++) {
        if (scales[j] * FQ_E4M3_MAX > greatest[type])
            return true;
    }
    return false;
}

void fq_cpu_dequantize(const fq_cpu_variant *variant, const fq_dequantize_job *job) {
    assert(fq_dtype_is_source(job->target_dtype));
    assert(job->rows > 0 && job->cols > 0 && job->block.rows > 0 && job->block.cols > 0);
    const fq_cpu_float type = fq_cpu_float_of_dtype(job->target_dtype);
    const uint64_t n_rows = fq_ceil_div(job->rows, job->block.rows);
    const uint64_t n_cols = fq_ceil_div(job->cols, job->block.cols);
    *job->counts = (fq_dequantize_counts){0};
    for (uint64_t i = 0; i < n_rows; i++) {
        const float *scales = job->scales + i * n_cols;
        const bool saturates = may_saturate(type, scales, n_cols);
        fq_cpu_decode_fn *decode = (saturates ? &fq_cpu_plain : variant)->decode[type];
        const uint64_t row0 = i * job->block.rows;
        const uint64_t rows = fq_cpu_least(job->block.rows, job->rows - row0);
        for (uint64_t r = row0; r < row0 + rows; r++) {
            const fq_cpu_decode row = {
                .codes = job->codes + r * job->cols,
                .target = (char *)job->target + r * job->cols * fq_cpu_float_size(type),
                .cols = job->cols,
                .block_cols = job->block.cols,
                .scales = scales,
            };
            decode(&row, job->counts);
        }
    }
}
