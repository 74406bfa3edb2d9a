// An open CPU device: what backend.c opens and the operations use.
#ifndef FQ_KERNELS_CPU_DEVICE_H
#define FQ_KERNELS_CPU_DEVICE_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/steps.h"

struct fq_device {
    const fq_cpu_variant *variant;
    uint32_t n_lanes;
    fq_cpu_gemm_lane *gemm_lanes; // [n_lanes]
    fq_cpu_steps steps[FQ_CPU_N_STEPS];
};

#endif
