// GPUs that were opened, and their lanes: see device.h.
#include "kernels/cuda/device.h"

#include "kernels/cuda/gemm/group.h"
#include "kernels/host_memory.h"

#include <cuda_runtime_api.h>

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ELEMENT_NBYTES = 4, // FP32
    ALIGNMENT = 256,        // of the parts of a lane's memory
};

static_assert(sizeof(fq_cuda_quantize_counts) <= FQ_CUDA_SIDE_COUNTS, "the counts have room");
static_assert(sizeof(fq_cuda_compare_counts) <= FQ_CUDA_SIDE_COUNTS, "the counts have room");

static size_t align_up(size_t nbytes) { return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

// ---- Memory of the host

// Pages that the driver pins for all GPUs, so that they read and write them at the full speed of
// the bus; where it does not, all works at a fraction of it. cudaHostAlloc would take ten times as
// long, page by page. The thread's current GPU is one that is open.
static void *alloc_pinned(size_t nbytes) {
    void *memory = fq_host_memory_alloc(nbytes);
    if (memory && cudaHostRegister(memory, nbytes, cudaHostRegisterPortable) != cudaSuccess)
        (void)cudaGetLastError(); // or a later call would tell of it
    return memory;
}

static void free_pinned(void *memory) {
    if (memory)
        (void)cudaHostUnregister(memory);
    (void)cudaGetLastError(); // it may not have been pinned
    free(memory);
}

// ---- Opening and closing

// A context, the kernels, and the memory of the lanes.
static fq_status open_gpu(fq_cuda_gpu *g, fq_error *err) {
    const size_t nbytes = g->n_lanes * g->device->lane_nbytes;
    fq_status status = fq_gpu_use(g->ordinal, err);
    if (!status)
        status = fq_gpu_check(g->ordinal, "loading the kernels", fq_cuda_load(), err);
    if (!status)
        status =
            fq_gpu_check(g->ordinal, "cudaMalloc", cudaMalloc((void **)&g->memory, nbytes), err);
    // Where an element is not finite some codes are not written, but copied out all the same: they
    // must not be what another program left behind.
    if (!status)
        status = fq_gpu_check(g->ordinal, "cudaMemset", cudaMemset(g->memory, 0, nbytes), err);
    if (!status)
        status = fq_gpu_finish(g->ordinal, err);
    if (!status && g->device->has_checks)
        status = fq_cuda_groups_find_room(g, err);
    return status;
}

static void *open_gpu_in_thread(void *argument) {
    fq_cuda_gpu *g = argument;
    (void)open_gpu(g, &g->err);
    return NULL;
}

// Contexts take their time: those of several GPUs are made side by side, where there are threads.
static fq_status open_gpus(fq_device *device, fq_error *err) {
    fq_status status = FQ_OK;
    for (uint32_t i = 1; i < device->n_gpus; i++) {
        fq_cuda_gpu *g = &device->gpus[i];
        g->has_opener = pthread_create(&g->opener, NULL, open_gpu_in_thread, g) == 0;
    }
    for (uint32_t i = 0; i < device->n_gpus; i++) {
        fq_cuda_gpu *g = &device->gpus[i];
        if (g->has_opener)
            pthread_join(g->opener, NULL);
        else
            open_gpu_in_thread(g);
        if (!status && g->err.status) {
            *err = g->err;
            status = err->status;
        }
    }
    return status;
}

// The i-th lane gets its parts of its GPU's memory.
static fq_status open_lane(fq_device *device, uint32_t i, fq_error *err) {
    const fq_cuda_gpu *g = &device->gpus[i % device->n_gpus];
    fq_cuda_lane *l = &device->lanes[i];
    l->gpu = g->ordinal;
    l->floats = g->memory + i / device->n_gpus * device->lane_nbytes;
    l->codes = (uint8_t *)l->floats + align_up(device->max_elements * MAX_ELEMENT_NBYTES);
    l->side = l->codes + align_up(device->max_elements);
    l->stage = device->stages + i * device->side_nbytes;
    if (device->has_checks) {
        l->errors = (void *)(l->side + device->errors_offset);
        l->errors_stage = (void *)(l->stage + device->errors_offset);
    }
    fq_status status = fq_gpu_use(l->gpu, err);
    if (!status)
        status = fq_gpu_check(l->gpu, "cudaStreamCreate",
                              cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), err);
    if (!status)
        status = fq_gpu_check(
            l->gpu, "cudaEventCreate",
            cudaEventCreateWithFlags(&l->done, cudaEventBlockingSync | cudaEventDisableTiming),
            err);
    return status;
}

// "NVIDIA H200", "2 x NVIDIA H200": GPUs of one machine are alike; the first stands for all.
static fq_status describe_gpus(fq_device *device, fq_error *err) {
    char name[FQ_GPU_NAME];
    const fq_status status = fq_gpu_name(name, device->gpus[0].ordinal, err);
    if (status)
        return status;
    if (device->n_gpus == 1)
        snprintf(device->description, sizeof device->description, "%s", name);
    else
        snprintf(device->description, sizeof device->description, "%u x %s",
                 (unsigned)device->n_gpus, name);
    return FQ_OK;
}

static fq_status open_all(fq_device *device, const fq_device_options *options, fq_error *err) {
    device->gpus = calloc(device->n_gpus, sizeof *device->gpus);
    device->lanes = calloc(device->n_lanes, sizeof *device->lanes);
    if (!device->gpus || !device->lanes)
        return fq_fail_memory(err);
    for (uint32_t i = 0; i < device->n_gpus; i++) {
        const uint32_t n_lanes = device->n_lanes / device->n_gpus;
        device->gpus[i].device = device;
        device->gpus[i].ordinal = options->gpus[i];
        device->gpus[i].n_lanes = n_lanes + (i < device->n_lanes % device->n_gpus);
    }
    fq_status status = open_gpus(device, err);
    if (status)
        return status;
    device->stages = alloc_pinned(device->n_lanes * device->side_nbytes);
    if (!device->stages)
        return fq_fail_memory(err);
    for (uint32_t i = 0; i < device->n_lanes && !status; i++)
        status = open_lane(device, i, err);
    return status ? status : describe_gpus(device, err);
}

// Errors do not matter any more: what cannot be freed goes with the process.
void fq_cuda_close(fq_device *device) {
    if (!device)
        return;
    for (uint32_t i = 0; device->lanes && i < device->n_lanes; i++) {
        if (device->lanes[i].stream)
            (void)cudaStreamDestroy(device->lanes[i].stream);
        if (device->lanes[i].done)
            (void)cudaEventDestroy(device->lanes[i].done);
        fq_cuda_strip_close(device->lanes[i].strip);
    }
    for (uint32_t i = 0; device->gpus && i < device->n_gpus; i++)
        (void)cudaFree(device->gpus[i].memory);
    free_pinned(device->stages);
    free(device->lanes);
    free(device->gpus);
    free(device);
}

fq_status fq_cuda_open(fq_device **out, const fq_device_options *options, fq_error *err) {
    assert(options->n_lanes > 0 && options->n_gpus > 0);
    fq_device *device = calloc(1, sizeof *device);
    if (!device)
        return fq_fail_memory(err);
    device->n_lanes = options->n_lanes;
    device->n_gpus = options->n_gpus < options->n_lanes ? options->n_gpus : options->n_lanes;
    device->max_elements = options->max_elements;
    device->max_blocks = options->max_blocks;
    device->has_checks = options->for_checks;
    device->errors_offset = align_up(FQ_CUDA_SIDE_COUNTS + options->max_blocks * sizeof(float));
    device->side_nbytes = device->errors_offset;
    if (device->has_checks)
        device->side_nbytes += align_up(options->max_blocks * sizeof(fq_block_errors));
    device->lane_nbytes = align_up(options->max_elements * MAX_ELEMENT_NBYTES) +
                          align_up(options->max_elements) + device->side_nbytes;
    const fq_status status = open_all(device, options, err);
    if (status) {
        fq_cuda_close(device);
        return status;
    }
    *out = device;
    return FQ_OK;
}

void *fq_cuda_host_alloc(fq_device *device, size_t nbytes) {
    (void)device;
    return alloc_pinned(nbytes);
}

void fq_cuda_host_free(fq_device *device, void *memory, size_t nbytes) {
    (void)device, (void)nbytes;
    free_pinned(memory);
}

// ---- Lanes

fq_cuda_lane *fq_cuda_lane_for(fq_device *device, uint32_t index, uint64_t rows, uint64_t cols,
                               fq_block block) {
    assert(index < device->n_lanes);
    assert(rows * cols <= device->max_elements);
    assert(fq_cuda_count_blocks(rows, cols, block) <= device->max_blocks);
    (void)rows, (void)cols, (void)block; // without assertions
    return &device->lanes[index];
}

fq_status fq_cuda_copy(const fq_cuda_lane *lane, void *to, const void *from, size_t nbytes,
                       fq_error *err) {
    return fq_gpu_check(lane->gpu, "cudaMemcpyAsync",
                        cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, lane->stream), err);
}

fq_status fq_cuda_copy_scales(const fq_cuda_lane *lane, const float *scales, size_t n,
                              fq_error *err) {
    memset(lane->stage, 0, FQ_CUDA_SIDE_COUNTS);
    memcpy(lane->stage + FQ_CUDA_SIDE_COUNTS, scales, n * sizeof *scales);
    return fq_cuda_copy(lane, lane->side, lane->stage, FQ_CUDA_SIDE_COUNTS + n * sizeof *scales,
                        err);
}

fq_status fq_cuda_drain(const fq_cuda_lane *lane, fq_error *err) {
    fq_status status = fq_gpu_use(lane->gpu, err);
    if (!status)
        status = fq_gpu_check(lane->gpu, "cudaEventRecord",
                              cudaEventRecord(lane->done, lane->stream), err);
    if (!status)
        return fq_gpu_check(lane->gpu, "cudaEventSynchronize", cudaEventSynchronize(lane->done),
                            err);
    (void)cudaStreamSynchronize(lane->stream); // copies may still be under way
    (void)cudaGetLastError();
    return status;
}
