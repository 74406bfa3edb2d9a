// The CUDA backend: what goes through the lanes in which order.
#include "kernels/cuda/backend.h"

#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>

#include <assert.h>
#include <string.h>

static fq_status start_quantize(const fq_cuda_lane *l, const fq_quantize_job *job, fq_error *err) {
    fq_quantize_job on_gpu = *job;
    on_gpu.source = l->floats;
    on_gpu.codes = l->codes;
    on_gpu.scales = (void *)(l->side + FQ_CUDA_SIDE_COUNTS);
    const unsigned code = fq_cuda_quantize(&on_gpu, (fq_cuda_quantize_counts *)l->side, l->stream);
    return fq_gpu_check(l->gpu, "quantize", code, err);
}

static void hand_over_quantized(const fq_cuda_lane *l) {
    const fq_quantize_job *job = &l->job.quantize;
    fq_cuda_quantize_counts found;
    memcpy(&found, l->stage, sizeof found);
    *job->counts = (fq_quantize_counts){
        .saturated = found.saturated,
        .flushed_to_zero = found.flushed_to_zero,
        .zero_blocks = found.zero_blocks,
        .floored_blocks = found.floored_blocks,
        .nonfinite = found.nonfinite,
    };
    if (found.nonfinite > 0) {
        job->counts->nonfinite_row = ~found.first_nonfinite / job->cols;
        job->counts->nonfinite_col = ~found.first_nonfinite % job->cols;
    }
    memcpy(job->scales, l->stage + FQ_CUDA_SIDE_COUNTS,
           fq_cuda_count_blocks(job->rows, job->cols, job->block) * sizeof(float));
}

static fq_status quantize(fq_device *device, uint32_t index, const fq_quantize_job *job,
                          fq_error *err) {
    fq_cuda_lane *l = fq_cuda_lane_for(device, index, job->rows, job->cols, job->block);
    const size_t n = job->rows * job->cols;
    const size_t n_blocks = fq_cuda_count_blocks(job->rows, job->cols, job->block);
    fq_status status = fq_gpu_use(l->gpu, err);
    if (!status)
        status = fq_gpu_check(l->gpu, "cudaMemsetAsync",
                              cudaMemsetAsync(l->side, 0, FQ_CUDA_SIDE_COUNTS, l->stream), err);
    if (!status)
        status = fq_cuda_copy(l, l->floats, job->source, n * fq_dtype_size(job->source_dtype), err);
    if (!status)
        status = start_quantize(l, job, err);
    if (!status)
        status = fq_cuda_copy(l, job->codes, l->codes, n, err);
    if (!status)
        status =
            fq_cuda_copy(l, l->stage, l->side, FQ_CUDA_SIDE_COUNTS + n_blocks * sizeof(float), err);
    if (!status) {
        l->hand_over = hand_over_quantized;
        l->job.quantize = *job;
    }
    return status;
}

static fq_status start_dequantize(const fq_cuda_lane *l, const fq_dequantize_job *job,
                                  fq_error *err) {
    fq_dequantize_job on_gpu = *job;
    on_gpu.codes = l->codes;
    on_gpu.scales = (void *)(l->side + FQ_CUDA_SIDE_COUNTS);
    on_gpu.target = l->floats;
    const unsigned code = fq_cuda_dequantize(&on_gpu, (fq_dequantize_counts *)l->side, l->stream);
    return fq_gpu_check(l->gpu, "dequantize", code, err);
}

static void hand_over_dequantized(const fq_cuda_lane *l) {
    const fq_dequantize_job *job = &l->job.dequantize;
    memcpy(job->counts, l->stage, sizeof *job->counts);
}

static fq_status dequantize(fq_device *device, uint32_t index, const fq_dequantize_job *job,
                            fq_error *err) {
    fq_cuda_lane *l = fq_cuda_lane_for(device, index, job->rows, job->cols, job->block);
    const size_t n = job->rows * job->cols;
    const size_t n_blocks = fq_cuda_count_blocks(job->rows, job->cols, job->block);
    fq_status status = fq_gpu_use(l->gpu, err);
    if (!status)
        status = fq_cuda_copy_scales(l, job->scales, n_blocks, err);
    if (!status)
        status = fq_cuda_copy(l, l->codes, job->codes, n, err);
    if (!status)
        status = start_dequantize(l, job, err);
    if (!status)
        status = fq_cuda_copy(l, job->target, l->floats, n * fq_dtype_size(job->target_dtype), err);
    if (!status)
        status = fq_cuda_copy(l, l->stage, l->side, FQ_CUDA_SIDE_COUNTS, err);
    if (!status) {
        l->hand_over = hand_over_dequantized;
        l->job.dequantize = *job;
    }
    return status;
}

static fq_status wait(fq_device *device, uint32_t index, fq_error *err) {
    assert(index < device->n_lanes);
    fq_cuda_lane *l = &device->lanes[index];
    void (*const hand_over)(const fq_cuda_lane *) = l->hand_over;
    l->hand_over = NULL;
    const fq_status status = fq_cuda_drain(l, err);
    if (!status && hand_over)
        hand_over(l);
    return status;
}

static const char *describe(const fq_device *device) { return device->description; }

static const fq_backend cuda_backend = {
    .name = "cuda",
    .open = fq_cuda_open,
    .close = fq_cuda_close,
    .host_alloc = fq_cuda_host_alloc,
    .host_free = fq_cuda_host_free,
    .quantize = quantize,
    .dequantize = dequantize,
    .wait = wait,
    .describe = describe,
};

fq_status fq_cuda_find(const fq_backend **out, uint32_t *n_gpus, fq_error *err) {
    *out = &cuda_backend;
    return fq_gpu_count(n_gpus, err);
}
