// Which variants any other processor can run: the plain one.
#include "kernels/cpu/cpu.h"

size_t fq_cpu_variants(const fq_cpu_variant *out[FQ_CPU_MAX_VARIANTS]) {
    out[0] = &fq_cpu_plain;
    return 1;
}
