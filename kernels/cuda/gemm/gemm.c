// Checks the operands of a product and hands it to a rung.
#include "gemm.h"

#include "gemm_config.h"
#include "gemm_launch.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

enum { TMA_ALIGNMENT = 16 };

typedef struct device_facts {
    int capability; // 10 · major + minor
    int n_sms;
} device_facts;

static fq_status read_device(device_facts *out, fq_error *err) {
    int device = 0, major = 0, minor = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&out->n_sms, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "gemm: %s", cudaGetErrorString(status));
    out->capability = 10 * major + minor;
    return FQ_OK;
}

static bool is_aligned(const void *first, uint64_t stride_bytes) {
    return (uintptr_t)first % TMA_ALIGNMENT == 0 && stride_bytes % TMA_ALIGNMENT == 0;
}

// Whether TMA can load the operands: its alignment, and its 32-bit coordinates.
static bool suits_sm90(const fq_cuda_gemm *g) {
    return is_aligned(g->a, g->a_stride) && is_aligned(g->b, g->b_stride) &&
           is_aligned(g->a_scales, g->a_scales_stride * sizeof(float)) && g->m <= INT32_MAX &&
           g->n <= INT32_MAX / g->n_groups && g->k <= INT32_MAX && g->k > 0;
}

static void check(const fq_cuda_gemm *g) {
    assert(g->n_groups > 0 && (g->n_groups == 1 || g->grouping != FQ_CUDA_GEMM_DENSE));
    assert(g->a_stride >= g->k && g->b_stride >= g->k && g->d_stride >= g->n);
    assert(g->a_scales_stride >= (g->a_is_shared ? g->slot_rows : g->m));
    assert(g->grouping == FQ_CUDA_GEMM_DENSE || g->group_rows);
    assert(g->grouping != FQ_CUDA_GEMM_MASKED || g->m == g->n_groups * g->slot_rows);
    assert(g->grouping == FQ_CUDA_GEMM_MASKED || !g->a_is_shared);
    (void)g;
}

fq_status fq_cuda_gemm_sm90_launch(const fq_cuda_gemm *gemm, const fq_cuda_gemm_choice *choice,
                                   struct CUstream_st *stream, fq_error *err) {
    assert(choice->split > 0 && (choice->split & (choice->split - 1)) == 0);
    return choice->kernel == FQ_CUDA_GEMM_TILES
               ? fq_cuda_gemm_sm90_tiles_launch(gemm, choice, stream, err)
               : fq_cuda_gemm_sm90_rows_launch(gemm, choice, stream, err);
}

static fq_cuda_gemm_choice choose(const fq_cuda_gemm *g, const device_facts *device) {
    const fq_cuda_gemm_shape shape = {g->m,       g->n, g->k, g->n_groups, (uint32_t)device->n_sms,
                                      g->d_is_f32};
    return fq_cuda_gemm_sm90_choose(&shape);
}

static fq_cuda_gemm_rung best_rung(const fq_cuda_gemm *g, const device_facts *device) {
    if (device->capability == 90 && suits_sm90(g))
        return FQ_CUDA_GEMM_SM90;
    return device->capability >= 89 ? FQ_CUDA_GEMM_MMA : FQ_CUDA_GEMM_SIMPLE;
}

// The rung that will run, and whether device and operands allow it.
static fq_status resolve(fq_cuda_gemm_rung *out, const fq_cuda_gemm *g, fq_cuda_gemm_rung rung,
                         const device_facts *device, fq_error *err) {
    *out = rung == FQ_CUDA_GEMM_AUTO ? best_rung(g, device) : rung;
    if (*out == FQ_CUDA_GEMM_SM90 && device->capability != 90)
        return fq_fail(err, FQ_DEVICE, "gemm_sm90 needs a GPU of compute capability 9.0");
    if (*out == FQ_CUDA_GEMM_SM90 && !suits_sm90(g))
        return fq_fail(err, FQ_USAGE,
                       "gemm_sm90 needs rows that begin at multiples of 16 bytes, and m, n and k "
                       "between 1 and 2^31");
    if (*out == FQ_CUDA_GEMM_MMA && device->capability < 89)
        return fq_fail(err, FQ_DEVICE, "gemm_mma needs a GPU of compute capability 8.9 or later");
    return FQ_OK;
}

fq_status fq_cuda_gemm_enqueue(const fq_cuda_gemm *gemm, fq_cuda_gemm_rung rung,
                               struct CUstream_st *stream, fq_error *err) {
    check(gemm);
    if (gemm->m == 0 || gemm->n == 0)
        return FQ_OK;
    device_facts device = {0};
    fq_status status = read_device(&device, err);
    if (status == FQ_OK)
        status = resolve(&rung, gemm, rung, &device, err);
    if (status != FQ_OK)
        return status;
    if (rung == FQ_CUDA_GEMM_SM90) {
        const fq_cuda_gemm_choice choice = choose(gemm, &device);
        return fq_cuda_gemm_sm90_launch(gemm, &choice, stream, err);
    }
    return rung == FQ_CUDA_GEMM_MMA ? fq_cuda_gemm_mma_launch(gemm, stream, err)
                                    : fq_cuda_gemm_simple_launch(gemm, stream, err);
}

fq_status fq_cuda_gemm_describe(char *out, size_t size, const fq_cuda_gemm *gemm,
                                fq_cuda_gemm_rung rung, fq_error *err) {
    static const char *const shared[] = {"", ", pairs share A", ", pairs share B",
                                         ", fours share A and B"};
    device_facts device = {0};
    fq_status status = read_device(&device, err);
    if (status == FQ_OK)
        status = resolve(&rung, gemm, rung, &device, err);
    if (status != FQ_OK)
        return status;
    const fq_cuda_gemm_choice c = choose(gemm, &device);
    if (rung == FQ_CUDA_GEMM_SIMPLE || rung == FQ_CUDA_GEMM_MMA)
        snprintf(out, size, "%s", rung == FQ_CUDA_GEMM_MMA ? "mma" : "simple");
    else if (c.kernel == FQ_CUDA_GEMM_TILES)
        snprintf(out, size, "tiles %u×%u%s", c.tile_m, c.tile_n, shared[c.share]);
    else
        snprintf(out, size, "rows %u×%u, K in %u", c.tile_m, c.tile_n, c.split);
    return FQ_OK;
}
