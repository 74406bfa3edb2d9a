// Makes tensor maps with the driver's encoder, found at run time: nothing links to libcuda.
#include "tensor_map.h"

#include <assert.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stddef.h>

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The address never changes, so that threads may store it over each other's.
static fq_status find_encoder(encode_fn **out, fq_error *err) {
    static encode_fn *cached;
    encode_fn *encode = __atomic_load_n(&cached, __ATOMIC_ACQUIRE);
    if (!encode) {
        enum { SINCE = 12000 }; // CUDA 12.0
        void *symbol = NULL;
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        const cudaError_t status = cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &symbol, SINCE, cudaEnableDefault, &found);
        if (status != cudaSuccess || found != cudaDriverEntryPointSuccess)
            return fq_fail(err, FQ_DEVICE,
                           "the NVIDIA driver has no cuTensorMapEncodeTiled; update it");
        encode = (encode_fn *)symbol;
        __atomic_store_n(&cached, encode, __ATOMIC_RELEASE);
    }
    *out = encode;
    return FQ_OK;
}

static CUtensorMapDataType type_of(fq_cuda_element type, uint64_t *nbytes) {
    *nbytes = type == FQ_CUDA_U8 ? 1 : type == FQ_CUDA_BF16 ? 2 : 4;
    return type == FQ_CUDA_U8     ? CU_TENSOR_MAP_DATA_TYPE_UINT8
           : type == FQ_CUDA_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                  : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

static CUtensorMapSwizzle swizzle_of(uint32_t nbytes) {
    return nbytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : nbytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                          : CU_TENSOR_MAP_SWIZZLE_NONE;
}

fq_status fq_cuda_tensor_map_make(fq_cuda_tensor_map *out, const fq_cuda_matrix *matrix,
                                  fq_error *err) {
    static_assert(sizeof *out == sizeof(CUtensorMap), "the same bytes");
    encode_fn *encode = NULL;
    const fq_status status = find_encoder(&encode, err);
    if (status != FQ_OK)
        return status;
    uint64_t element_bytes = 0;
    const CUtensorMapDataType type = type_of(matrix->type, &element_bytes);
    const cuuint64_t size[2] = {matrix->cols, matrix->rows};
    const cuuint64_t stride_bytes[1] = {matrix->stride * element_bytes};
    const cuuint32_t box[2] = {matrix->box_cols, matrix->box_rows};
    const cuuint32_t element_step[2] = {1, 1};
    const CUresult result =
        encode((CUtensorMap *)out, type, 2, (void *)(uintptr_t)matrix->first, size, stride_bytes,
               box, element_step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(matrix->swizzle_bytes),
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return fq_fail(err, FQ_DEVICE, "cuTensorMapEncodeTiled refused a matrix (error %d)",
                       (int)result);
    return FQ_OK;
}
