// The kernels of the backend, for the runtime without a GPU: the plain CPU code.
#include "fake_cuda.h"

#include "kernels/cpu/steps.h"
#include "kernels/cuda/launch.h"

#include <string.h>

typedef struct quantization {
    fq_quantize_job job;
    fq_cuda_quantize_counts *counts;
} quantization;

static void run_quantize(const void *arguments) {
    static const fq_cuda_quantize_counts zero = {0};
    static fq_cpu_steps steps[FQ_CPU_N_STEPS];
    const quantization *q = arguments;
    fq_quantize_counts found;
    fq_quantize_job job = q->job;
    if (memcmp(q->counts, &zero, sizeof zero) != 0)
        fake_complain("counts that are not zeroed");
    job.counts = &found;
    fq_cpu_steps_fill(steps);
    fq_cpu_quantize(&fq_cpu_plain, steps, &job);
    *q->counts = (fq_cuda_quantize_counts){
        .saturated = found.saturated,
        .flushed_to_zero = found.flushed_to_zero,
        .zero_blocks = found.zero_blocks,
        .floored_blocks = found.floored_blocks,
        .nonfinite = found.nonfinite,
        .first_nonfinite =
            found.nonfinite ? ~(found.nonfinite_row * job.cols + found.nonfinite_col) : 0,
    };
}

unsigned fq_cuda_quantize(const fq_quantize_job *job, fq_cuda_quantize_counts *counts,
                          struct CUstream_st *stream) {
    const quantization q = {*job, counts};
    const void *memory[] = {job->source, job->codes, job->scales, counts};
    return fake_launch(stream, run_quantize, &q, sizeof q, memory, 4);
}

typedef struct dequantization {
    fq_dequantize_job job;
    fq_dequantize_counts *counts;
} dequantization;

static void run_dequantize(const void *arguments) {
    const dequantization *d = arguments;
    fq_dequantize_job job = d->job;
    fq_dequantize_counts found;
    if (d->counts->saturated != 0 || d->counts->nan_codes != 0)
        fake_complain("counts that are not zeroed");
    job.counts = &found;
    fq_cpu_dequantize(&fq_cpu_plain, &job);
    *d->counts = found;
}

unsigned fq_cuda_dequantize(const fq_dequantize_job *job, fq_dequantize_counts *counts,
                            struct CUstream_st *stream) {
    const dequantization d = {*job, counts};
    const void *memory[] = {job->target, job->codes, job->scales, counts};
    return fake_launch(stream, run_dequantize, &d, sizeof d, memory, 4);
}

typedef struct comparison {
    fq_compare_job job;
    fq_cuda_compare_counts *counts;
} comparison;

static fq_cuda_finding number_of(const fq_finding *found, uint64_t cols) {
    if (found->n == 0)
        return (fq_cuda_finding){0};
    return (fq_cuda_finding){.n = found->n, .first = ~(found->first.row * cols + found->first.col)};
}

static void run_compare(const void *arguments) {
    static const fq_cuda_compare_counts zero = {0};
    static fq_cpu_steps steps[FQ_CPU_N_STEPS];
    const comparison *c = arguments;
    fq_compare_job job = c->job;
    fq_compare_counts found;
    if (memcmp(c->counts, &zero, sizeof zero) != 0)
        fake_complain("counts that are not zeroed");
    job.counts = &found;
    fq_cpu_steps_fill(steps);
    fq_cpu_compare_job(&fq_cpu_plain, steps, &job);
    *c->counts = (fq_cuda_compare_counts){
        .saturated = found.saturated,
        .flushed_to_zero = found.flushed_to_zero,
        .nan_codes = number_of(&found.nan_codes, job.cols),
        .codes_differ = number_of(&found.codes_differ, job.cols),
        .out_of_bound = number_of(&found.out_of_bound, job.cols),
        .nonfinite = number_of(&found.nonfinite, job.cols),
    };
}

unsigned fq_cuda_compare(const fq_compare_job *job, fq_cuda_compare_counts *counts,
                         struct CUstream_st *stream) {
    const comparison c = {*job, counts};
    const void *memory[] = {job->source, job->codes, job->scales, job->blocks, counts};
    return fake_launch(stream, run_compare, &c, sizeof c, memory, 5);
}
