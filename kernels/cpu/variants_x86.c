// Which variants an x86-64 processor can run.
#include "kernels/cpu/cpu.h"

size_t fq_cpu_variants(const fq_cpu_variant *out[FQ_CPU_MAX_VARIANTS]) {
    size_t n = 0;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        out[n++] = &fq_cpu_avx512;
    // With FMA; every processor that has both has F16C too.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = &fq_cpu_avx2;
    out[n++] = &fq_cpu_plain;
    return n;
}
