// The CUDA backend: streams and buffers, and what goes through them in which order.
//
// A lane's GPU memory: the elements, their codes, and beside them the counts and scales, which go
// over the bus as one piece through pinned memory of the lane's own.
#include "kernels/cuda/backend.h"

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"
#include "kernels/host_memory.h"

#include <cuda_runtime_api.h>

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ELEMENT_NBYTES = 4, // FP32
    ALIGNMENT = 256,        // of the parts of a lane's memory
    SIDE_COUNTS = 64,       // bytes of the counts, before the scales
};

static_assert(sizeof(fq_cuda_quantize_counts) <= SIDE_COUNTS, "the counts have room");

// What wait has to hand over.
typedef enum pending { NOTHING, QUANTIZED, DEQUANTIZED } pending;

typedef struct lane {
    uint32_t gpu; // its ordinal
    cudaStream_t stream;
    cudaEvent_t done;     // to wait for: the processor is left to others meanwhile
    void *floats;         // GPU memory: BF16, F16 or F32
    uint8_t *codes;       // GPU memory
    unsigned char *side;  // GPU memory: counts, then scales
    unsigned char *stage; // the same in pinned host memory
    pending pending;
    fq_quantize_job quantize;
    fq_dequantize_job dequantize;
} lane;

// A GPU that is used, with the memory of all its lanes.
typedef struct gpu {
    fq_device *device;
    uint32_t ordinal;
    uint32_t n_lanes;
    unsigned char *memory;
    pthread_t opener;
    bool has_opener;
    fq_error err; // of opening
} gpu;

struct fq_device {
    uint32_t n_lanes, n_gpus;
    size_t max_elements, max_blocks;
    size_t lane_nbytes;    // GPU memory of a lane
    size_t side_nbytes;    // of it: counts and scales
    gpu *gpus;             // [n_gpus]
    lane *lanes;           // [n_lanes]: lane i is on GPU i % n_gpus
    unsigned char *stages; // pinned host memory of all lanes
    char description[FQ_GPU_NAME + 16];
};

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
static fq_status open_gpu(gpu *g, fq_error *err) {
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
    return status;
}

static void *open_gpu_in_thread(void *argument) {
    gpu *g = argument;
    (void)open_gpu(g, &g->err);
    return NULL;
}

// Contexts take their time: those of several GPUs are made side by side, where there are threads.
static fq_status open_gpus(fq_device *device, fq_error *err) {
    fq_status status = FQ_OK;
    for (uint32_t i = 1; i < device->n_gpus; i++) {
        gpu *g = &device->gpus[i];
        g->has_opener = pthread_create(&g->opener, NULL, open_gpu_in_thread, g) == 0;
    }
    for (uint32_t i = 0; i < device->n_gpus; i++) {
        gpu *g = &device->gpus[i];
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
    const gpu *g = &device->gpus[i % device->n_gpus];
    lane *l = &device->lanes[i];
    l->gpu = g->ordinal;
    l->floats = g->memory + i / device->n_gpus * device->lane_nbytes;
    l->codes = (uint8_t *)l->floats + align_up(device->max_elements * MAX_ELEMENT_NBYTES);
    l->side = l->codes + align_up(device->max_elements);
    l->stage = device->stages + i * device->side_nbytes;
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
static void close_cuda(fq_device *device) {
    if (!device)
        return;
    for (uint32_t i = 0; device->lanes && i < device->n_lanes; i++) {
        if (device->lanes[i].stream)
            (void)cudaStreamDestroy(device->lanes[i].stream);
        if (device->lanes[i].done)
            (void)cudaEventDestroy(device->lanes[i].done);
    }
    for (uint32_t i = 0; device->gpus && i < device->n_gpus; i++)
        (void)cudaFree(device->gpus[i].memory);
    free_pinned(device->stages);
    free(device->lanes);
    free(device->gpus);
    free(device);
}

static fq_status open_cuda(fq_device **out, const fq_device_options *options, fq_error *err) {
    assert(options->n_lanes > 0 && options->n_gpus > 0);
    fq_device *device = calloc(1, sizeof *device);
    if (!device)
        return fq_fail_memory(err);
    device->n_lanes = options->n_lanes;
    device->n_gpus = options->n_gpus < options->n_lanes ? options->n_gpus : options->n_lanes;
    device->max_elements = options->max_elements;
    device->max_blocks = options->max_blocks;
    device->side_nbytes = align_up(SIDE_COUNTS + options->max_blocks * sizeof(float));
    device->lane_nbytes = align_up(options->max_elements * MAX_ELEMENT_NBYTES) +
                          align_up(options->max_elements) + device->side_nbytes;
    const fq_status status = open_all(device, options, err);
    if (status) {
        close_cuda(device);
        return status;
    }
    *out = device;
    return FQ_OK;
}

static void *host_alloc(fq_device *device, size_t nbytes) {
    (void)device;
    return alloc_pinned(nbytes);
}

static void host_free(fq_device *device, void *memory, size_t nbytes) {
    (void)device, (void)nbytes;
    free_pinned(memory);
}

// ---- Jobs

static fq_status copy(const lane *l, void *to, const void *from, size_t nbytes, fq_error *err) {
    return fq_gpu_check(l->gpu, "cudaMemcpyAsync",
                        cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, l->stream), err);
}

static size_t count_blocks(uint64_t rows, uint64_t cols, fq_block block) {
    return fq_ceil_div(rows, block.rows) * fq_ceil_div(cols, block.cols);
}

static fq_status launch_quantize(const lane *l, const fq_quantize_job *job, fq_error *err) {
    fq_quantize_job on_gpu = *job;
    on_gpu.source = l->floats;
    on_gpu.codes = l->codes;
    on_gpu.scales = (void *)(l->side + SIDE_COUNTS);
    const unsigned code = fq_cuda_quantize(&on_gpu, (fq_cuda_quantize_counts *)l->side, l->stream);
    return fq_gpu_check(l->gpu, "quantize", code, err);
}

static fq_status quantize(fq_device *device, uint32_t index, const fq_quantize_job *job,
                          fq_error *err) {
    assert(index < device->n_lanes);
    lane *l = &device->lanes[index];
    const size_t n = job->rows * job->cols;
    const size_t n_blocks = count_blocks(job->rows, job->cols, job->block);
    assert(n <= device->max_elements && n_blocks <= device->max_blocks);
    fq_status status = fq_gpu_use(l->gpu, err);
    if (!status)
        status = fq_gpu_check(l->gpu, "cudaMemsetAsync",
                              cudaMemsetAsync(l->side, 0, SIDE_COUNTS, l->stream), err);
    if (!status)
        status = copy(l, l->floats, job->source, n * fq_dtype_size(job->source_dtype), err);
    if (!status)
        status = launch_quantize(l, job, err);
    if (!status)
        status = copy(l, job->codes, l->codes, n, err);
    if (!status)
        status = copy(l, l->stage, l->side, SIDE_COUNTS + n_blocks * sizeof(float), err);
    if (!status) {
        l->pending = QUANTIZED;
        l->quantize = *job;
    }
    return status;
}

static fq_status launch_dequantize(const lane *l, const fq_dequantize_job *job, fq_error *err) {
    fq_dequantize_job on_gpu = *job;
    on_gpu.codes = l->codes;
    on_gpu.scales = (void *)(l->side + SIDE_COUNTS);
    on_gpu.target = l->floats;
    const unsigned code = fq_cuda_dequantize(&on_gpu, (fq_dequantize_counts *)l->side, l->stream);
    return fq_gpu_check(l->gpu, "dequantize", code, err);
}

static fq_status dequantize(fq_device *device, uint32_t index, const fq_dequantize_job *job,
                            fq_error *err) {
    assert(index < device->n_lanes);
    lane *l = &device->lanes[index];
    const size_t n = job->rows * job->cols;
    const size_t n_blocks = count_blocks(job->rows, job->cols, job->block);
    assert(n <= device->max_elements && n_blocks <= device->max_blocks);
    memset(l->stage, 0, SIDE_COUNTS);
    memcpy(l->stage + SIDE_COUNTS, job->scales, n_blocks * sizeof(float));
    fq_status status = fq_gpu_use(l->gpu, err);
    if (!status)
        status = copy(l, l->side, l->stage, SIDE_COUNTS + n_blocks * sizeof(float), err);
    if (!status)
        status = copy(l, l->codes, job->codes, n, err);
    if (!status)
        status = launch_dequantize(l, job, err);
    if (!status)
        status = copy(l, job->target, l->floats, n * fq_dtype_size(job->target_dtype), err);
    if (!status)
        status = copy(l, l->stage, l->side, SIDE_COUNTS, err);
    if (!status) {
        l->pending = DEQUANTIZED;
        l->dequantize = *job;
    }
    return status;
}

// ---- Handing over

static void hand_over_quantized(const lane *l) {
    const fq_quantize_job *job = &l->quantize;
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
    memcpy(job->scales, l->stage + SIDE_COUNTS,
           count_blocks(job->rows, job->cols, job->block) * sizeof(float));
}

// Waits for all that the lane's stream was given, whatever became of it.
static fq_status drain(const lane *l, fq_error *err) {
    fq_status status = fq_gpu_use(l->gpu, err);
    if (!status)
        status = fq_gpu_check(l->gpu, "cudaEventRecord", cudaEventRecord(l->done, l->stream), err);
    if (!status)
        return fq_gpu_check(l->gpu, "cudaEventSynchronize", cudaEventSynchronize(l->done), err);
    (void)cudaStreamSynchronize(l->stream); // copies may still be under way
    (void)cudaGetLastError();
    return status;
}

static fq_status wait(fq_device *device, uint32_t index, fq_error *err) {
    assert(index < device->n_lanes);
    lane *l = &device->lanes[index];
    const pending had = l->pending;
    l->pending = NOTHING;
    const fq_status status = drain(l, err);
    if (!status && had == QUANTIZED)
        hand_over_quantized(l);
    if (!status && had == DEQUANTIZED)
        memcpy(l->dequantize.counts, l->stage, sizeof *l->dequantize.counts);
    return status;
}

static const char *describe(const fq_device *device) { return device->description; }

static const fq_backend cuda_backend = {
    .name = "cuda",
    .open = open_cuda,
    .close = close_cuda,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .quantize = quantize,
    .dequantize = dequantize,
    .wait = wait,
    .describe = describe,
};

fq_status fq_cuda_find(const fq_backend **out, uint32_t *n_gpus, fq_error *err) {
    *out = &cuda_backend;
    return fq_gpu_count(n_gpus, err);
}
