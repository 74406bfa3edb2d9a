// Sums of counts: see step_counts.h.
#include "step_counts.h"

void fq_step_counts_add(fq_step_counts *sum, const fq_step_counts *more) {
    sum->quantize.saturated += more->quantize.saturated;
    sum->quantize.flushed_to_zero += more->quantize.flushed_to_zero;
    sum->quantize.zero_blocks += more->quantize.zero_blocks;
    sum->quantize.floored_blocks += more->quantize.floored_blocks;
    sum->quantize.nonfinite += more->quantize.nonfinite;
    sum->dequantize.saturated += more->dequantize.saturated;
    sum->dequantize.nan_codes += more->dequantize.nan_codes;
}
