// What a device offers: quantize and dequantize matrices block by block, in lanes that overlap.
#ifndef FQ_BACKEND_H
#define FQ_BACKEND_H

#include "block.h"
#include "error.h"
#include "tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What quantizing found. Sums, but for the first non-finite element.
typedef struct fq_quantize_counts {
    uint64_t saturated;       // elements beyond 464 scales, cut to ±448 (464 still rounds to 448)
    uint64_t flushed_to_zero; // non-zero elements whose code is ±0
    uint64_t zero_blocks;     // blocks of zeros only
    uint64_t floored_blocks;  // other blocks whose amax lies under the floor
    uint64_t nonfinite;       // NaN and Inf elements; where there are any, all else is void
    uint64_t nonfinite_row;   // of the first one in row-major order
    uint64_t nonfinite_col;
} fq_quantize_counts;

// What casting back found.
typedef struct fq_dequantize_counts {
    uint64_t saturated; // elements beyond the target's largest finite value, cut to it
    uint64_t nan_codes; // codes 0x7F and 0xFF; they stay NaN
} fq_dequantize_counts;

// A matrix to quantize by docs/numerics.md: amax, scale and E4M3 codes of every block.
// The pointers are host memory and are left alone by the caller until wait.
typedef struct fq_quantize_job {
    const void *source;    // [rows, cols] of source_dtype, row-major, contiguous, 64-byte aligned
    fq_dtype source_dtype; // BF16, F16 or F32
    uint64_t rows, cols;   // at least 1
    fq_block block;
    bool pow2_scales;           // round scales up to powers of two (UE8M0)
    float amax_floor;           // 0: none
    uint8_t *codes;             // out: [rows, cols] E4M3, 64-byte aligned
    float *scales;              // out: [ceil(rows/block.rows), ceil(cols/block.cols)]
    fq_quantize_counts *counts; // out: overwritten; rows and columns count from this matrix's start
} fq_quantize_job;

// A matrix to cast back: fl32(code × scale), rounded to the target dtype, saturating.
typedef struct fq_dequantize_job {
    const uint8_t *codes; // [rows, cols] E4M3, row-major, contiguous, 64-byte aligned
    uint64_t rows, cols;  // at least 1
    fq_block block;
    const float *scales;   // [ceil(rows/block.rows), ceil(cols/block.cols)], finite, not negative
    fq_dtype target_dtype; // BF16, F16 or F32
    void *target;          // out: [rows, cols], 64-byte aligned
    fq_dequantize_counts *counts; // out: overwritten
} fq_dequantize_job;

typedef struct fq_device fq_device;

typedef struct fq_device_options {
    uint32_t n_lanes;
    size_t max_elements;  // of the largest matrix a job will bring
    size_t max_blocks;    // of the largest grid of scales a job will bring
    bool for_checks;      // jobs of the backend's fq_checker will come, too
    const uint32_t *gpus; // [n_gpus] ordinals, each once; for the CUDA backend
    uint32_t n_gpus;
} fq_device_options;

// One implementation of the arithmetic. Every entry is there; every implementation gives the same
// bytes for the same job, whatever the lane.
typedef struct fq_backend {
    const char *name; // "cpu"
    fq_status (*open)(fq_device **out, const fq_device_options *options, fq_error *err);
    void (*close)(fq_device *device); // NULL is taken

    // Host memory that the device moves fastest; at least 64-byte aligned, NULL when there is none.
    void *(*host_alloc)(fq_device *device, size_t nbytes);
    void (*host_free)(fq_device *device, void *memory, size_t nbytes); // NULL is taken

    // Start a job in a lane (0 ≤ lane < n_lanes). The job is copied; its buffers are the caller's
    // again when wait(lane) returned, whatever it says, and must be left alone until then, also
    // when starting failed. Waiting for an idle lane is FQ_OK. One thread at a time uses a lane;
    // lanes are independent.
    fq_status (*quantize)(fq_device *device, uint32_t lane, const fq_quantize_job *job,
                          fq_error *err);
    fq_status (*dequantize)(fq_device *device, uint32_t lane, const fq_dequantize_job *job,
                            fq_error *err);
    fq_status (*wait)(fq_device *device, uint32_t lane, fq_error *err);

    // One word or two on what runs: "AVX-512", the GPU's name. Borrowed from the device.
    const char *(*describe)(const fq_device *device);
} fq_backend;

#endif
