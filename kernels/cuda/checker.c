// The checks of the CUDA backend: codes and weights go in, errors and counts come back.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

#include <assert.h>
#include <string.h>

static fq_status start_compare(const fq_cuda_lane *l, const fq_compare_job *job, fq_error *err) {
    fq_compare_job on_gpu = *job;
    on_gpu.codes = l->codes;
    on_gpu.source = l->floats;
    on_gpu.scales = (const void *)(l->side + FQ_CUDA_SIDE_COUNTS);
    on_gpu.blocks = l->errors;
    const unsigned code = fq_cuda_compare(&on_gpu, (fq_cuda_compare_counts *)l->side, l->stream);
    return fq_gpu_check(l->gpu, "compare", code, err);
}

static fq_finding finding_of(const fq_cuda_finding *found, uint64_t cols) {
    if (found->n == 0)
        return (fq_finding){0};
    return (fq_finding){.n = found->n, .first = {~found->first / cols, ~found->first % cols}};
}

static void hand_over_compared(const fq_cuda_lane *l) {
    const fq_compare_job *job = &l->job.compare;
    fq_cuda_compare_counts found;
    memcpy(&found, l->stage, sizeof found);
    *job->counts = (fq_compare_counts){
        .saturated = found.saturated,
        .flushed_to_zero = found.flushed_to_zero,
        .nan_codes = finding_of(&found.nan_codes, job->cols),
        .codes_differ = finding_of(&found.codes_differ, job->cols),
        .out_of_bound = finding_of(&found.out_of_bound, job->cols),
        .nonfinite = finding_of(&found.nonfinite, job->cols),
    };
    memcpy(job->blocks, l->errors_stage,
           fq_cuda_count_blocks(job->rows, job->cols, job->block) * sizeof *job->blocks);
}

static fq_status compare(fq_device *device, uint32_t index, const fq_compare_job *job,
                         fq_error *err) {
    assert(device->has_checks);
    fq_cuda_lane *l = fq_cuda_lane_for(device, index, job->rows, job->cols, job->block);
    const size_t n = job->rows * job->cols;
    const size_t n_blocks = fq_cuda_count_blocks(job->rows, job->cols, job->block);
    fq_status status = fq_gpu_use(l->gpu, err);
    if (!status)
        status = fq_cuda_copy_scales(l, job->scales, n_blocks, err);
    if (!status)
        status = fq_cuda_copy(l, l->codes, job->codes, n, err);
    if (!status)
        status = fq_cuda_copy(l, l->floats, job->source, n * fq_dtype_size(job->source_dtype), err);
    if (!status)
        status = start_compare(l, job, err);
    if (!status)
        status = fq_cuda_copy(l, l->stage, l->side, FQ_CUDA_SIDE_COUNTS, err);
    if (!status)
        status = fq_cuda_copy(l, l->errors_stage, l->errors, n_blocks * sizeof *l->errors, err);
    if (!status) {
        l->hand_over = hand_over_compared;
        l->job.compare = *job;
    }
    return status;
}

static const fq_checker cuda_checker = {.compare = compare};

const fq_checker *fq_cuda_checker(void) { return &cuda_checker; }
