// What a lane of the CPU's GEMM keeps while it multiplies a strip.
#ifndef FQ_KERNELS_CPU_GEMM_H
#define FQ_KERNELS_CPU_GEMM_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/multiply.h"
#include "lib/gemm.h"

// Tokens are padded to whole panels with zeros. Nothing but memory is owned.
typedef struct fq_cpu_gemm_lane {
    const fq_gemm_operand *activations;
    size_t rows;        // of the strip
    uint64_t next_col;  // the first that is not multiplied yet
    bool has_reference; // the pieces bring one
    void *memory;       // holds what follows; kept for the next strip
    size_t nbytes;

    double *exact, *reference; // [rows][tokens] Yexact and Yref
    float *product;            // [rows][tokens] Y
    // Of the block of columns at work, the tokens in FP64:
    double *codes, *values; // [panels][depth][FQ_CPU_PANEL_F64]
    double *token_scales;   // [tokens]
    double *ones;           // [tokens]
} fq_cpu_gemm_lane;

// Frees what a lane keeps.
void fq_cpu_gemm_lane_close(fq_cpu_gemm_lane *lane);

#endif
