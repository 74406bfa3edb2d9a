// Loads cuBLASLt and drives its product of FP8 matrices with scales of 1×128 and 128×128 blocks.
#include "cublaslt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>

enum { WORKSPACE_BYTES = 64 << 20 };

// The functions used, as X(name).
#define FUNCTIONS(X)                                                                               \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)

struct cublaslt {
    void *library;
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    cublasLtHandle_t handle;
    void *workspace;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t weights, activations, result;
    cublasLtMatmulHeuristicResult_t algorithm;
};

static bool find_functions(cublaslt *lt) {
#define FIND(name)                                                                                 \
    *(void **)&lt->name = dlsym(lt->library, #name);                                               \
    if (!lt->name)                                                                                 \
        return false;
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

cublaslt *cublaslt_open(void) {
    cublaslt *lt = calloc(1, sizeof *lt);
    if (!lt)
        return NULL;
    lt->library = dlopen("libcublasLt.so.13", RTLD_NOW);
    if (!lt->library)
        lt->library = dlopen("libcublasLt.so", RTLD_NOW);
    if (lt->library && find_functions(lt) && lt->cublasLtCreate(&lt->handle) == 0 &&
        cudaMalloc(&lt->workspace, WORKSPACE_BYTES) == cudaSuccess)
        return lt;
    cublaslt_close(lt);
    return NULL;
}

static void drop_plan(cublaslt *lt) {
    if (lt->result)
        lt->cublasLtMatrixLayoutDestroy(lt->result);
    if (lt->activations)
        lt->cublasLtMatrixLayoutDestroy(lt->activations);
    if (lt->weights)
        lt->cublasLtMatrixLayoutDestroy(lt->weights);
    if (lt->operation)
        lt->cublasLtMatmulDescDestroy(lt->operation);
    lt->result = lt->activations = lt->weights = NULL;
    lt->operation = NULL;
}

void cublaslt_close(cublaslt *lt) {
    if (!lt)
        return;
    if (lt->handle) {
        drop_plan(lt);
        lt->cublasLtDestroy(lt->handle);
    }
    cudaFree(lt->workspace);
    if (lt->library)
        dlclose(lt->library);
    free(lt);
}

static bool set(cublaslt *lt, cublasLtMatmulDescAttributes_t attribute, const void *value,
                size_t size) {
    return lt->cublasLtMatmulDescSetAttribute(lt->operation, attribute, value, size) == 0;
}

static bool set_scales(cublaslt *lt, const fq_cuda_gemm *g) {
    return set(lt, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->b_scales, sizeof g->b_scales) &&
           set(lt, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->a_scales, sizeof g->a_scales);
}

// cuBLASLt counts columns first: row-major D = A · Bᵀ is its Dᵀ = B · Aᵀ, and its A is B.
static bool describe(cublaslt *lt, const fq_cuda_gemm *g) {
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtMatmulMatrixScale_t blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const cublasLtMatmulMatrixScale_t vectors = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    return lt->cublasLtMatmulDescCreate(&lt->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
           set(lt, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) &&
           set(lt, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &blocks, sizeof blocks) &&
           set(lt, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &vectors, sizeof vectors) &&
           set_scales(lt, g) &&
           lt->cublasLtMatrixLayoutCreate(&lt->weights, CUDA_R_8F_E4M3, g->k, g->n,
                                          (int64_t)g->b_stride) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&lt->activations, CUDA_R_8F_E4M3, g->k, g->m,
                                          (int64_t)g->a_stride) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&lt->result, CUDA_R_16BF, g->n, g->m,
                                          (int64_t)g->d_stride) == 0;
}

bool cublaslt_plan(cublaslt *lt, const fq_cuda_gemm *gemm) {
    const size_t workspace_bytes = WORKSPACE_BYTES;
    cublasLtMatmulPreference_t preference = NULL;
    int n_found = 0;
    drop_plan(lt);
    if (describe(lt, gemm) && lt->cublasLtMatmulPreferenceCreate(&preference) == 0 &&
        lt->cublasLtMatmulPreferenceSetAttribute(preference,
                                                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace_bytes, sizeof workspace_bytes) == 0 &&
        lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, lt->operation, lt->weights, lt->activations,
                                           lt->result, lt->result, preference, 1, &lt->algorithm,
                                           &n_found) != 0)
        n_found = 0;
    if (preference)
        lt->cublasLtMatmulPreferenceDestroy(preference);
    return n_found == 1;
}

bool cublaslt_enqueue(cublaslt *lt, const fq_cuda_gemm *gemm, struct CUstream_st *stream) {
    const float one = 1.0f, zero = 0.0f;
    return set_scales(lt, gemm) &&
           lt->cublasLtMatmul(lt->handle, lt->operation, &one, gemm->b, lt->weights, gemm->a,
                              lt->activations, &zero, gemm->d, lt->result, gemm->d, lt->result,
                              &lt->algorithm.algo, lt->workspace, WORKSPACE_BYTES, stream) == 0;
}
