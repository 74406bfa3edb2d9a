// Loads cuBLASLt and drives its products of FP8 matrices.
//
// The library's own header is not needed, which not every toolkit brings: what is used of it stands
// here, as of version 13, in which these names and numbers last.
#include "kernels/cuda/bench/cublaslt.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>

enum { WORKSPACE_NBYTES = 64 << 20 };

// cudaDataType_t and cublasComputeType_t
enum { R_32F = 0, R_16BF = 14, R_8F_E4M3 = 28, COMPUTE_32F = 68 };
// cublasLtMatmulDescAttributes_t
enum {
    DESC_TRANSPOSE_A = 3,
    DESC_A_SCALES = 17,
    DESC_B_SCALES = 18,
    DESC_FAST_SUMS = 25,
    DESC_A_SCALE_MODE = 31,
    DESC_B_SCALE_MODE = 32,
};
// cublasLtMatmulMatrixScale_t: one number; 1×128 blocks; 128×128 blocks
enum { SCALE_SCALAR = 0, SCALE_VECTORS = 4, SCALE_BLOCKS = 5 };
// cublasOperation_t, cublasLtMatmulPreferenceAttributes_t
enum { TRANSPOSED = 1, PREFERENCE_WORKSPACE_NBYTES = 1 };

typedef struct algorithm {
    uint64_t data[8];
} algorithm;

// cublasLtMatmulHeuristicResult_t
typedef struct heuristic {
    algorithm algorithm;
    size_t workspace_nbytes;
    int status;
    float n_waves;
    int reserved[4];
} heuristic;

// Handles, descriptions, layouts and preferences are pointers to what only the library knows; every
// function returns 0 if it worked.
struct fq_cublaslt {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*multiply)(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
                    const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                    void *d, void *d_layout, const algorithm *algorithm, void *workspace,
                    size_t workspace_nbytes, cudaStream_t stream);
    int (*create_operation)(void **operation, int compute_type, int scale_type);
    int (*destroy_operation)(void *operation);
    int (*set_operation)(void *operation, int attribute, const void *value, size_t nbytes);
    int (*create_layout)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
    int (*destroy_layout)(void *layout);
    int (*create_preference)(void **preference);
    int (*destroy_preference)(void *preference);
    int (*set_preference)(void *preference, int attribute, const void *value, size_t nbytes);
    int (*find_algorithms)(void *handle, void *operation, void *a_layout, void *b_layout,
                           void *c_layout, void *d_layout, void *preference, int n_wanted,
                           heuristic *found, int *n_found);
    void *handle;
    void *workspace;
    void *operation;
    void *weights, *activations, *result; // layouts
    heuristic chosen;
};

static bool find_functions(fq_cublaslt *lt, void *library) {
    const struct {
        void *function; // its address is written here
        const char *name;
    } table[] = {
        {&lt->create, "cublasLtCreate"},
        {&lt->destroy, "cublasLtDestroy"},
        {&lt->multiply, "cublasLtMatmul"},
        {&lt->create_operation, "cublasLtMatmulDescCreate"},
        {&lt->destroy_operation, "cublasLtMatmulDescDestroy"},
        {&lt->set_operation, "cublasLtMatmulDescSetAttribute"},
        {&lt->create_layout, "cublasLtMatrixLayoutCreate"},
        {&lt->destroy_layout, "cublasLtMatrixLayoutDestroy"},
        {&lt->create_preference, "cublasLtMatmulPreferenceCreate"},
        {&lt->destroy_preference, "cublasLtMatmulPreferenceDestroy"},
        {&lt->set_preference, "cublasLtMatmulPreferenceSetAttribute"},
        {&lt->find_algorithms, "cublasLtMatmulAlgoGetHeuristic"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        *(void **)table[i].function = dlsym(library, table[i].name);
        if (!*(void **)table[i].function)
            return false;
    }
    return true;
}

fq_cublaslt *fq_cublaslt_open(void) {
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW);
    if (!library)
        library = dlopen("libcublasLt.so", RTLD_NOW);
    fq_cublaslt *lt = library ? calloc(1, sizeof *lt) : NULL;
    if (lt && find_functions(lt, library) && lt->create(&lt->handle) == 0 &&
        cudaMalloc(&lt->workspace, WORKSPACE_NBYTES) == cudaSuccess)
        return lt;
    (void)cudaGetLastError(); // or a later call would tell of it
    fq_cublaslt_close(lt);
    return NULL;
}

static void drop_plan(fq_cublaslt *lt) {
    if (lt->result)
        lt->destroy_layout(lt->result);
    if (lt->activations)
        lt->destroy_layout(lt->activations);
    if (lt->weights)
        lt->destroy_layout(lt->weights);
    if (lt->operation)
        lt->destroy_operation(lt->operation);
    lt->result = lt->activations = lt->weights = lt->operation = NULL;
}

void fq_cublaslt_close(fq_cublaslt *lt) {
    if (!lt)
        return;
    if (lt->handle) {
        drop_plan(lt);
        lt->destroy(lt->handle);
    }
    (void)cudaFree(lt->workspace);
    free(lt); // the library stays: what it told the driver of itself would outlive it
}

static bool set_number(fq_cublaslt *lt, int attribute, int32_t value) {
    return lt->set_operation(lt->operation, attribute, &value, sizeof value) == 0;
}

static bool set_scales(fq_cublaslt *lt, const fq_cuda_gemm *g) {
    return lt->set_operation(lt->operation, DESC_A_SCALES, &g->b_scales, sizeof g->b_scales) == 0 &&
           lt->set_operation(lt->operation, DESC_B_SCALES, &g->a_scales, sizeof g->a_scales) == 0;
}

// Sums in the tensor cores' own precision, as fast as they are, are for products without blocks.
static bool set_fast_sums(fq_cublaslt *lt) {
    const int8_t yes = 1;
    return lt->set_operation(lt->operation, DESC_FAST_SUMS, &yes, sizeof yes) == 0;
}

// cuBLASLt counts columns first: row-major D = A · Bᵀ is its Dᵀ = B · Aᵀ, and its A is B.
static bool describe(fq_cublaslt *lt, const fq_cuda_gemm *g, bool block_scaled) {
    return lt->create_operation(&lt->operation, COMPUTE_32F, R_32F) == 0 &&
           set_number(lt, DESC_TRANSPOSE_A, TRANSPOSED) &&
           set_number(lt, DESC_A_SCALE_MODE, block_scaled ? SCALE_BLOCKS : SCALE_SCALAR) &&
           set_number(lt, DESC_B_SCALE_MODE, block_scaled ? SCALE_VECTORS : SCALE_SCALAR) &&
           (block_scaled || set_fast_sums(lt)) && set_scales(lt, g) &&
           lt->create_layout(&lt->weights, R_8F_E4M3, g->k, g->n, (int64_t)g->b_stride) == 0 &&
           lt->create_layout(&lt->activations, R_8F_E4M3, g->k, g->m, (int64_t)g->a_stride) == 0 &&
           lt->create_layout(&lt->result, R_16BF, g->n, g->m, (int64_t)g->d_stride) == 0;
}

bool fq_cublaslt_plan(fq_cublaslt *lt, const fq_cuda_gemm *gemm, bool block_scaled) {
    const size_t workspace_nbytes = WORKSPACE_NBYTES;
    void *preference = NULL;
    int n_found = 0;
    drop_plan(lt);
    if (describe(lt, gemm, block_scaled) && lt->create_preference(&preference) == 0 &&
        lt->set_preference(preference, PREFERENCE_WORKSPACE_NBYTES, &workspace_nbytes,
                           sizeof workspace_nbytes) == 0 &&
        lt->find_algorithms(lt->handle, lt->operation, lt->weights, lt->activations, lt->result,
                            lt->result, preference, 1, &lt->chosen, &n_found) != 0)
        n_found = 0;
    if (preference)
        lt->destroy_preference(preference);
    return n_found == 1;
}

bool fq_cublaslt_enqueue(fq_cublaslt *lt, const fq_cuda_gemm *gemm, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    return set_scales(lt, gemm) &&
           lt->multiply(lt->handle, lt->operation, &one, gemm->b, lt->weights, gemm->a,
                        lt->activations, &zero, gemm->d, lt->result, gemm->d, lt->result,
                        &lt->chosen.algorithm, lt->workspace, WORKSPACE_NBYTES, stream) == 0;
}
