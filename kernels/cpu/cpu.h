// What the variants of the CPU backend (plain C, AVX2, AVX-512, NEON) bring, and what they share.
#ifndef FQ_KERNELS_CPU_H
#define FQ_KERNELS_CPU_H

#include "kernels/cpu/multiply.h"
#include "lib/checker.h"
#include "lib/fp8.h"

// One body of code, made into a function for each dtype: the dtype is a constant after inlining.
#define FQ_CPU_INLINE static inline __attribute__((always_inline))

// The floating dtypes that are quantized and cast back to; index of a variant's functions.
typedef enum fq_cpu_float { FQ_CPU_BF16, FQ_CPU_F16, FQ_CPU_F32, FQ_CPU_N_FLOATS } fq_cpu_float;

// The codes of BF16 values under one scale: see steps.h.
typedef struct fq_cpu_steps fq_cpu_steps;

// What the elements of a block are divided by.
typedef struct fq_cpu_divisor {
    float scale;               // positive and finite
    const fq_cpu_steps *steps; // or NULL: divide
} fq_cpu_divisor;

// A part of one row of a matrix to quantize. Nothing is owned.
typedef struct fq_cpu_encode {
    const void *source; // [cols] of the function's dtype, finite
    uint8_t *codes;     // out: [cols]
    size_t cols;
    size_t block_cols;
    const fq_cpu_divisor *by; // [ceil(cols / block_cols)]
    const void *next;         // [cols] of source that will be read soon: worth fetching now
} fq_cpu_encode;

// A part of one row of a matrix to cast back. Nothing is owned.
typedef struct fq_cpu_decode {
    const uint8_t *codes; // [cols]
    void *target;         // out: [cols] of the function's dtype
    size_t cols;
    size_t block_cols;
    const float *scales; // [ceil(cols / block_cols)], finite and not negative
} fq_cpu_decode;

// A block's sums, lane by lane, as checker.h defines them.
typedef struct fq_cpu_errors {
    double error2[FQ_COMPARE_LANES], weight2[FQ_COMPARE_LANES];
    float max_abs;
} fq_cpu_errors;

// A row of codes to hold against the row that they stand for. Nothing is owned.
typedef struct fq_cpu_compare {
    const uint8_t *codes; // [cols]
    const void *source;   // [cols] of the function's dtype
    size_t cols;
    size_t block_cols;
    const float *scales;   // [ceil(cols / block_cols)], finite and not negative
    fq_cpu_errors *errors; // [ceil(cols / block_cols)]: what the row adds to
} fq_cpu_compare;

// Raises amax[j] to the greatest magnitude among the elements of a row's block j: its bits without
// the sign, in the dtype's own encoding. They order like the values, Inf and NaN above all others.
// row: [cols] of the function's dtype; amax: [ceil(cols / block_cols)].
typedef void fq_cpu_amax_fn(uint32_t *amax, const void *row, size_t cols, size_t block_cols);

// Writes the codes E4M3(w / scale) and adds to counts' saturated and flushed_to_zero.
// Only the plain variant takes a row in which some |w / scale| is over 464.
typedef void fq_cpu_encode_fn(const fq_cpu_encode *row, fq_quantize_counts *counts);

// Writes fl32(code × scale) rounded to the dtype, and adds to counts.
// Only the plain variant takes a row in which some 448 × scale is over the greatest finite value.
typedef void fq_cpu_decode_fn(const fq_cpu_decode *row, fq_dequantize_counts *counts);

// Adds a row to the sums of its blocks.
// Only the plain variant takes a row with NaN or Inf in source, or in which some 448 × scale is
// over the greatest finite value.
typedef void fq_cpu_compare_fn(const fq_cpu_compare *row);

// Every entry is there; all variants give the same bits.
typedef struct fq_cpu_variant {
    const char *name;  // in the environment variable FP8Q_CPU
    const char *title; // for people
    fq_cpu_amax_fn *amax[FQ_CPU_N_FLOATS];
    fq_cpu_encode_fn *encode[FQ_CPU_N_FLOATS];
    fq_cpu_decode_fn *decode[FQ_CPU_N_FLOATS];
    fq_cpu_compare_fn *compare[FQ_CPU_N_FLOATS];
    fq_cpu_multiply_fn *multiply_f32, *multiply_f64;
} fq_cpu_variant;

extern const fq_cpu_variant fq_cpu_plain; // the specification, built for every processor
extern const fq_cpu_variant fq_cpu_avx2;
extern const fq_cpu_variant fq_cpu_avx512;
extern const fq_cpu_variant fq_cpu_neon;

enum { FQ_CPU_MAX_VARIANTS = 3 };

// Fills in the variants that this machine can run, the fastest first, and returns their number.
// Each architecture has its own file for this: variants_ARCHITECTURE.c.
size_t fq_cpu_variants(const fq_cpu_variant *out[FQ_CPU_MAX_VARIANTS]);

// Do the whole of a job, as backend.h says. steps: the table of fq_cpu_steps_fill.
void fq_cpu_quantize(const fq_cpu_variant *variant, const fq_cpu_steps *steps,
                     const fq_quantize_job *job);
void fq_cpu_dequantize(const fq_cpu_variant *variant, const fq_dequantize_job *job);

// Does the whole of a job, as checker.h says.
void fq_cpu_compare_job(const fq_cpu_variant *variant, const fq_cpu_steps *steps,
                        const fq_compare_job *job);

// The index of a dtype that fq_dtype_is_source.
static inline fq_cpu_float fq_cpu_float_of_dtype(fq_dtype dtype) {
    return dtype == FQ_BF16 ? FQ_CPU_BF16 : dtype == FQ_F16 ? FQ_CPU_F16 : FQ_CPU_F32;
}

// Bytes of one element.
static inline size_t fq_cpu_float_size(fq_cpu_float type) { return type == FQ_CPU_F32 ? 4 : 2; }

// The value of an element from its bits, widened to FP32: exact.
FQ_CPU_INLINE float fq_cpu_value(fq_cpu_float type, uint32_t bits) {
    if (type == FQ_CPU_F32)
        return fq_f32_of_bits(bits);
    return type == FQ_CPU_F16 ? fq_f32_of_f16((uint16_t)bits) : fq_f32_of_bf16((uint16_t)bits);
}

// The value of element i of an array.
FQ_CPU_INLINE float fq_cpu_load(fq_cpu_float type, const void *array, size_t i) {
    if (type == FQ_CPU_F32)
        return ((const float *)array)[i];
    return fq_cpu_value(type, ((const uint16_t *)array)[i]);
}

// From this scale on, BF16 results double from each code to the one 8 above, from code 8 on: the
// least normal code, 2^-6, has a normal result. Results of 16 codes and an exponent then give all.
#define FQ_CPU_LEAST_TABLE_SCALE 0x1p-120f

static inline size_t fq_cpu_least(size_t a, size_t b) { return a < b ? a : b; }

// Lets the memory fetch n elements of what comes next, while those from i on are computed.
FQ_CPU_INLINE void fq_cpu_fetch_next(fq_cpu_float type, const fq_cpu_encode *row, size_t i,
                                     size_t n) {
    enum { CACHE_LINE = 64 };
    const size_t size = fq_cpu_float_size(type);
    for (size_t b = 0; b < n * size; b += CACHE_LINE)
        __builtin_prefetch((const char *)row->next + i * size + b);
}

// The n elements from i on, all of one block, by the plain variant: what vectors do not fit.
static inline void fq_cpu_encode_plain(fq_cpu_float type, const fq_cpu_encode *row, size_t i,
                                       size_t n, const fq_cpu_divisor *by,
                                       fq_quantize_counts *counts) {
    const fq_cpu_encode part = {
        .source = (const char *)row->source + i * fq_cpu_float_size(type),
        .codes = row->codes + i,
        .cols = n,
        .block_cols = n,
        .by = by,
    };
    fq_cpu_plain.encode[type](&part, counts);
}

// Like fq_cpu_encode_plain; also for codes among which there is a NaN.
static inline void fq_cpu_decode_plain(fq_cpu_float type, const fq_cpu_decode *row, size_t i,
                                       size_t n, const float *scale, fq_dequantize_counts *counts) {
    const fq_cpu_decode part = {
        .codes = row->codes + i,
        .target = (char *)row->target + i * fq_cpu_float_size(type),
        .cols = n,
        .block_cols = n,
        .scales = scale,
    };
    fq_cpu_plain.decode[type](&part, counts);
}

#endif
