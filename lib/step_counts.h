// What carrying out a step of a plan met.
#ifndef FQ_STEP_COUNTS_H
#define FQ_STEP_COUNTS_H

#include "backend.h"

// Zeroed where nothing was counted.
typedef struct fq_step_counts {
    fq_quantize_counts quantize;
    fq_dequantize_counts dequantize;
} fq_step_counts;

// Adds what more holds to sum, the place of the first non-finite element aside.
void fq_step_counts_add(fq_step_counts *sum, const fq_step_counts *more);

#endif
