// GPUs that were opened, and their lanes: what the CUDA backend and its checks share.
//
// A lane's GPU memory: the elements, their codes, and beside them counts, scales and, for checks,
// the errors of blocks, which go over the bus through pinned memory of the lane's own.
#ifndef FQ_KERNELS_CUDA_DEVICE_H
#define FQ_KERNELS_CUDA_DEVICE_H

#include "kernels/cuda/gemm/strip.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/launch.h"
#include "lib/checker.h"

#include <pthread.h>

enum { FQ_CUDA_SIDE_COUNTS = 128 }; // bytes of the counts, before the scales

typedef struct fq_cuda_lane fq_cuda_lane;

struct fq_cuda_lane {
    uint32_t gpu; // its ordinal
    struct CUstream_st *stream;
    struct CUevent_st *done;       // to wait for: the processor is left to others meanwhile
    void *floats;                  // GPU memory: BF16, F16 or F32
    uint8_t *codes;                // GPU memory
    unsigned char *side;           // GPU memory: counts, then scales
    unsigned char *stage;          // the same in pinned host memory
    fq_block_errors *errors;       // of the side; NULL without checks
    fq_block_errors *errors_stage; // of the stage
    fq_cuda_strip *strip;          // of the GEMM; NULL before its first
    // Gives a job's caller what came back; NULL: there is no job.
    void (*hand_over)(const fq_cuda_lane *);
    union {
        fq_quantize_job quantize;
        fq_dequantize_job dequantize;
        fq_compare_job compare;
    } job; // that hand_over looks at
};

// A GPU that is used, with the memory of all its lanes.
typedef struct fq_cuda_gpu {
    fq_device *device;
    uint32_t ordinal;
    uint32_t n_lanes;
    unsigned char *memory;
    size_t groups_max_nbytes; // of GPU memory, for groups of strips: see gemm/group.h
    size_t groups_nbytes;     // of it, taken
    pthread_t opener;
    bool has_opener;
    fq_error err; // of opening
} fq_cuda_gpu;

struct fq_device {
    uint32_t n_lanes, n_gpus;
    size_t max_elements, max_blocks;
    bool has_checks;
    size_t lane_nbytes;    // GPU memory of a lane
    size_t side_nbytes;    // of it: counts and scales, and where there are checks,
    size_t errors_offset;  // from here on the errors of blocks
    fq_cuda_gpu *gpus;     // [n_gpus]
    fq_cuda_lane *lanes;   // [n_lanes]: lane i is on GPU i % n_gpus
    unsigned char *stages; // pinned host memory of all lanes
    char description[FQ_GPU_NAME + 16];
};

// These are the backend's own: see fq_backend.
fq_status fq_cuda_open(fq_device **out, const fq_device_options *options, fq_error *err);
void fq_cuda_close(fq_device *device);
void *fq_cuda_host_alloc(fq_device *device, size_t nbytes);
void fq_cuda_host_free(fq_device *device, void *memory, size_t nbytes);

// The lane for a job on [rows, cols] elements, which must fit.
fq_cuda_lane *fq_cuda_lane_for(fq_device *device, uint32_t index, uint64_t rows, uint64_t cols,
                               fq_block block);

// Gives the lane's stream a copy between host and GPU.
fq_status fq_cuda_copy(const fq_cuda_lane *lane, void *to, const void *from, size_t nbytes,
                       fq_error *err);

// Like fq_cuda_copy: counts of zero, and a job's scales. The lane's stage is written to at once.
fq_status fq_cuda_copy_scales(const fq_cuda_lane *lane, const float *scales, size_t n,
                              fq_error *err);

// Waits for all that the lane's stream was given, whatever became of it.
fq_status fq_cuda_drain(const fq_cuda_lane *lane, fq_error *err);

static inline size_t fq_cuda_count_blocks(uint64_t rows, uint64_t cols, fq_block block) {
    return fq_ceil_div(rows, block.rows) * fq_ceil_div(cols, block.cols);
}

#endif
