// The backends of this build, and which of them a run uses.
#ifndef FQ_KERNELS_H
#define FQ_KERNELS_H

#include "lib/checker.h"
#include "lib/gemm.h"

// The device that is always found, and may turn out to be another one.
#define FQ_DEVICE_AUTO "auto"

enum { FQ_MAX_GPUS = 64 };

// Where the arithmetic of a run is done. Goes into fq_device_options.
typedef struct fq_device_choice {
    const fq_backend *backend;  // static
    uint32_t gpus[FQ_MAX_GPUS]; // [n_gpus] ordinals; none for the CPU
    uint32_t n_gpus;
} fq_device_choice;

// What a run has to compute, for "auto" to weigh.
typedef struct fq_device_work {
    uint64_t nbytes;    // read and written by quantizing, casting back and comparing
    double n_products;  // of a weight's element and a token's, in verify's GEMM
    uint32_t n_threads; // that would do it on the CPU
    uint64_t n_files;   // that are written; 0: none
} fq_device_work;

// Chooses by --device: "auto", "cpu", "cuda" (every GPU), "cuda:0,1". "auto" takes what is likely
// to be done soonest, the CPU, one GPU or several, and does not look for GPUs where that is the
// CPU; only it looks at work. FQ_DEVICE, saying why and what to use instead, if this build or
// machine lacks the device; FQ_USAGE for other names, and for a GPU that is named twice.
fq_status fq_device_choose(fq_device_choice *out, const char *device, const fq_device_work *work,
                           fq_error *err);

// The checks of a backend; static.
const fq_checker *fq_checker_find(const fq_backend *backend);

// The GEMM of a backend; static.
const fq_gemm *fq_gemm_find(const fq_backend *backend);

#endif
