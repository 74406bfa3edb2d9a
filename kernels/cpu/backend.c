// The CPU backend: chooses a variant, allocates host memory, and runs jobs in the calling thread.
#include "kernels/cpu/backend.h"

#include "kernels/cpu/device.h"
#include "kernels/host_memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fq_status choose_variant(const fq_cpu_variant **out, fq_error *err) {
    const fq_cpu_variant *variants[FQ_CPU_MAX_VARIANTS];
    const size_t n = fq_cpu_variants(variants);
    const char *wanted = getenv("FP8Q_CPU");
    char names[64] = "";
    for (size_t i = 0; i < n; i++) {
        if (!wanted || strcmp(wanted, variants[i]->name) == 0) {
            *out = variants[i];
            return FQ_OK;
        }
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", variants[i]->name);
    }
    return fq_fail(err, FQ_USAGE,
                   "FP8Q_CPU=%s: this machine runs no such variant; unset it or use one of %s",
                   wanted, names);
}

static fq_status open_cpu(fq_device **out, const fq_device_options *options, fq_error *err) {
    const fq_cpu_variant *variant = NULL;
    const fq_status status = choose_variant(&variant, err);
    if (status)
        return status;
    fq_device *device = malloc(sizeof *device);
    fq_cpu_gemm_lane *gemm_lanes = calloc(options->n_lanes, sizeof *gemm_lanes);
    if (!device || !gemm_lanes) {
        free(device);
        free(gemm_lanes);
        return fq_fail_memory(err);
    }
    *device =
        (fq_device){.variant = variant, .n_lanes = options->n_lanes, .gemm_lanes = gemm_lanes};
    fq_cpu_steps_fill(device->steps);
    *out = device;
    return FQ_OK;
}

static void close_cpu(fq_device *device) {
    if (!device)
        return;
    for (uint32_t lane = 0; lane < device->n_lanes; lane++)
        fq_cpu_gemm_lane_close(&device->gemm_lanes[lane]);
    free(device->gemm_lanes);
    free(device);
}

static void *host_alloc(fq_device *device, size_t nbytes) {
    (void)device;
    return fq_host_memory_alloc(nbytes);
}

static void host_free(fq_device *device, void *memory, size_t nbytes) {
    (void)device;
    (void)nbytes;
    free(memory);
}

static fq_status quantize(fq_device *device, uint32_t lane, const fq_quantize_job *job,
                          fq_error *err) {
    (void)lane, (void)err;
    assert(lane < device->n_lanes);
    fq_cpu_quantize(device->variant, device->steps, job);
    return FQ_OK;
}

static fq_status dequantize(fq_device *device, uint32_t lane, const fq_dequantize_job *job,
                            fq_error *err) {
    (void)lane, (void)err;
    assert(lane < device->n_lanes);
    fq_cpu_dequantize(device->variant, job);
    return FQ_OK;
}

static fq_status compare(fq_device *device, uint32_t lane, const fq_compare_job *job,
                         fq_error *err) {
    (void)lane, (void)err;
    assert(lane < device->n_lanes);
    fq_cpu_compare_job(device->variant, device->steps, job);
    return FQ_OK;
}

static fq_status wait(fq_device *device, uint32_t lane, fq_error *err) {
    (void)device, (void)lane, (void)err;
    assert(lane < device->n_lanes);
    return FQ_OK;
}

static const char *describe(const fq_device *device) { return device->variant->title; }

const fq_backend fq_cpu_backend = {
    .name = "cpu",
    .open = open_cpu,
    .close = close_cpu,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .quantize = quantize,
    .dequantize = dequantize,
    .wait = wait,
    .describe = describe,
};

const fq_checker fq_cpu_checker = {.compare = compare};
