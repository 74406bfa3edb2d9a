// What the launchers of the two Hopper kernels share: the maps of the operands, and the launch.
#ifndef FQ_CUDA_GEMM_SM90_LAUNCH_CUH
#define FQ_CUDA_GEMM_SM90_LAUNCH_CUH

#include "kernels/cuda/gemm/gemm_device.cuh"
#include "kernels/cuda/gemm/gemm_launch.h"
#include "kernels/cuda/gemm/tensor_map.h"

#include <cuda_runtime.h>

namespace gemm {

// Rows of 128 codes, swizzled as WGMMA reads them.
static inline fq_status make_codes_map(fq_cuda_tensor_map *out, const uint8_t *first,
                                       uint64_t n_rows, uint64_t k, uint64_t stride,
                                       uint32_t box_rows, fq_error *err) {
    const fq_cuda_matrix matrix = {first, FQ_CUDA_U8, n_rows, k, stride, box_rows, BLOCK, 128};
    return fq_cuda_tensor_map_make(out, &matrix, err);
}

static inline fq_status make_scales_map(fq_cuda_tensor_map *out, const fq_cuda_gemm *g,
                                        uint32_t box, fq_error *err) {
    const uint64_t n_blocks = ceil_div(g->k, BLOCK), n_rows = count_a_rows(g);
    const fq_cuda_matrix matrix = {g->a_scales,        FQ_CUDA_F32, n_blocks, n_rows,
                                   g->a_scales_stride, 1,           box,      0};
    return fq_cuda_tensor_map_make(out, &matrix, err);
}

// The maps of A, its scales and B, as both kernels load them.
template <class Arguments>
static inline fq_status make_input_maps(Arguments *args, const fq_cuda_gemm *g, uint32_t a_rows,
                                        uint32_t b_rows, uint32_t a_scales, fq_error *err) {
    const uint64_t n_a_rows = count_a_rows(g);
    fq_status status = make_codes_map(&args->a, g->a, n_a_rows, g->k, g->a_stride, a_rows, err);
    if (status == FQ_OK)
        status = make_codes_map(&args->b, g->b, g->n * g->n_groups, g->k, g->b_stride, b_rows, err);
    if (status == FQ_OK)
        status = make_scales_map(&args->a_scales, g, a_scales, err);
    return status;
}

// How a kernel is started: blocks of `threads` threads in clusters.
struct launch_shape {
    uint32_t cluster, threads;
    size_t shared_bytes;
};

// Fills config for a grid of blocks and lets the kernel have its shared memory. attribute belongs
// to config. Blocks alone are no clusters of one: those are spread over the chip, and then
// neighbours do not ask L2 together for what they share.
template <class Arguments>
cudaError_t configure(cudaLaunchConfig_t *config, cudaLaunchAttribute *attribute,
                      void (*kernel)(Arguments), const launch_shape &shape, dim3 grid) {
    attribute->id = cudaLaunchAttributeClusterDimension;
    attribute->val.clusterDim = {shape.cluster, 1, 1};
    config->gridDim = grid;
    config->blockDim = dim3(shape.threads);
    config->dynamicSmemBytes = shape.shared_bytes;
    config->attrs = attribute;
    config->numAttrs = shape.cluster > 1;
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shape.shared_bytes);
}

// Clusters of a kernel of which a multiprocessor holds one block that the device runs at one time.
// A multiprocessor may be left over in a corner of it.
template <class Arguments>
fq_status count_clusters(uint32_t *out, void (*kernel)(Arguments), const launch_shape &shape,
                         fq_error *err) {
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    int n = 0, device = 0;
    cudaError_t status = configure(&config, &attribute, kernel, shape, shape.cluster);
    if (status == cudaSuccess && shape.cluster > 1)
        status = cudaOccupancyMaxActiveClusters(&n, (const void *)kernel, &config);
    else if (status == cudaSuccess)
        status = cudaGetDevice(&device);
    if (status == cudaSuccess && shape.cluster == 1)
        status = cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess || n == 0)
        return fq_fail(err, FQ_DEVICE, "gemm_sm90: %s", cudaGetErrorString(status));
    *out = (uint32_t)n;
    return FQ_OK;
}

template <class Arguments>
fq_status launch(void (*kernel)(Arguments), const Arguments &args, const launch_shape &shape,
                 dim3 grid, cudaStream_t stream, fq_error *err) {
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    cudaError_t status = configure(&config, &attribute, kernel, shape, grid);
    config.stream = stream;
    if (status == cudaSuccess)
        status = cudaLaunchKernelEx(&config, kernel, args);
    if (status != cudaSuccess)
        return fq_fail(err, FQ_DEVICE, "gemm_sm90: %s", cudaGetErrorString(status));
    return FQ_OK;
}

} // namespace gemm

#endif
