// Which variants a 64-bit ARM processor can run: every one has NEON.
#include "kernels/cpu/cpu.h"

size_t fq_cpu_variants(const fq_cpu_variant *out[FQ_CPU_MAX_VARIANTS]) {
    out[0] = &fq_cpu_neon;
    out[1] = &fq_cpu_plain;
    return 2;
}
