// Runs one job on every subject and compares all that comes out with the reference.
#ifndef FQ_TESTS_KERNELS_TRIAL_H
#define FQ_TESTS_KERNELS_TRIAL_H

#include "reference.h"
#include "subjects.h"
#include "tests/check.h"

enum {
    TRIAL_GUARD = 64,       // bytes before and behind what a job may write
    TRIAL_GUARD_BYTE = 0x7F // no code that quantizing gives
};

// What a job writes, between guards.
typedef struct trial_buffer {
    uint8_t *memory;
    size_t capacity;
} trial_buffer;

// The results of the last job are left in expected_*. Zeroed, then trial_init.
typedef struct trial {
    subjects subjects;
    trial_buffer actual, actual_scales;
    uint8_t *expected; // codes or targets
    float *expected_scales;
    fq_quantize_counts quantized;     // by the last trial_quantize
    fq_dequantize_counts dequantized; // by the last trial_dequantize
} trial;

static inline void *trial_alloc(size_t nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, nbytes) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static inline void trial_buffer_init(trial_buffer *b, size_t capacity) {
    b->memory = trial_alloc(capacity + 2 * TRIAL_GUARD);
    b->capacity = capacity;
}

// Opens all subjects, for jobs of up to n_elements elements and n_blocks blocks.
static inline void trial_init(trial *t, size_t n_elements, size_t n_blocks) {
    const fq_device_options options = {
        .n_lanes = 1, .max_elements = n_elements, .max_blocks = n_blocks};
    subjects_open(&t->subjects, &options);
    trial_buffer_init(&t->actual, n_elements * sizeof(float));
    trial_buffer_init(&t->actual_scales, n_blocks * sizeof(float));
    t->expected = trial_alloc(n_elements * sizeof(float));
    t->expected_scales = trial_alloc(n_blocks * sizeof(float));
}

static inline void trial_finish(trial *t) {
    subjects_close(&t->subjects);
    free(t->actual.memory);
    free(t->actual_scales.memory);
    free(t->expected);
    free(t->expected_scales);
    *t = (trial){.expected = NULL};
}

// Where n bytes are to be written; everything around them, and they, get the guard's byte.
static inline void *trial_prepare(trial_buffer *b, size_t n) {
    memset(b->memory, TRIAL_GUARD_BYTE, n + 2 * TRIAL_GUARD);
    return b->memory + TRIAL_GUARD;
}

static inline bool trial_guards_stand(const trial_buffer *b, size_t n) {
    uint8_t guard[TRIAL_GUARD];
    memset(guard, TRIAL_GUARD_BYTE, sizeof guard);
    return memcmp(b->memory, guard, sizeof guard) == 0 &&
           memcmp(b->memory + TRIAL_GUARD + n, guard, sizeof guard) == 0;
}

// Element i of an array of elements of that size, for messages.
static inline uint32_t trial_bits(const void *array, size_t i, size_t size) {
    uint32_t bits = 0;
    memcpy(&bits, (const uint8_t *)array + i * size, size);
    return bits;
}

// Checks that n elements are the same bits; names the first that is not. what: "codes".
static inline bool trial_same(const subject *s, const char *what, const void *actual,
                              const void *expected, size_t n, size_t cols, size_t size) {
    const bool same = memcmp(actual, expected, n * size) == 0;
    size_t i = 0;
    if (CHECK(same && "the bits of the reference"))
        return true;
    while (trial_bits(actual, i, size) == trial_bits(expected, i, size))
        i++;
    CHECK_NOTE("%s: %s[%zu, %zu] is 0x%" PRIx32 ", not 0x%" PRIx32 "\n", s->name, what, i / cols,
               i % cols, trial_bits(actual, i, size), trial_bits(expected, i, size));
    return false;
}

static inline void trial_describe_quantize(const fq_quantize_job *job) {
    CHECK_NOTE("source %s [%" PRIu64 ", %" PRIu64 "], blocks of %" PRIu64 "x%" PRIu64
               ", %s scales, floor %a\n",
               fq_dtype_name(job->source_dtype), job->rows, job->cols, job->block.rows,
               job->block.cols, job->pow2_scales ? "pow2" : "f32", (double)job->amax_floor);
}

static inline bool trial_counts_quantize(const subject *s, const fq_quantize_counts *a,
                                         const fq_quantize_counts *e) {
    const bool same_nonfinite = a->nonfinite == e->nonfinite &&
                                a->nonfinite_row == e->nonfinite_row &&
                                a->nonfinite_col == e->nonfinite_col;
    const bool same = a->saturated == e->saturated && a->flushed_to_zero == e->flushed_to_zero &&
                      a->zero_blocks == e->zero_blocks && a->floored_blocks == e->floored_blocks;
    // Where something is not finite the rest is void.
    if (CHECK(same_nonfinite && (same || e->nonfinite)))
        return true;
    CHECK_NOTE("%s: saturated %" PRIu64 " of %" PRIu64 ", flushed %" PRIu64 " of %" PRIu64
               ", zero blocks %" PRIu64 " of %" PRIu64 ", floored %" PRIu64 " of %" PRIu64
               ", not finite %" PRIu64 " of %" PRIu64 "\n",
               s->name, a->saturated, e->saturated, a->flushed_to_zero, e->flushed_to_zero,
               a->zero_blocks, e->zero_blocks, a->floored_blocks, e->floored_blocks, a->nonfinite,
               e->nonfinite);
    return false;
}

// Runs job, whose out pointers are not yet set, on all subjects.
static inline void trial_quantize(trial *t, fq_quantize_job job) {
    const size_t n = job.rows * job.cols;
    const size_t n_cols = fq_ceil_div(job.cols, job.block.cols);
    const size_t n_blocks = fq_ceil_div(job.rows, job.block.rows) * n_cols;
    job.codes = t->expected;
    job.scales = t->expected_scales;
    job.counts = &t->quantized;
    reference_quantize(&job);
    for (size_t k = 0; k < t->subjects.n; k++) {
        const subject *s = &t->subjects.all[k];
        fq_quantize_counts counts;
        fq_error err = {0};
        memset(&counts, 0xFF, sizeof counts); // they are overwritten, not added to
        job.codes = trial_prepare(&t->actual, n);
        job.scales = trial_prepare(&t->actual_scales, n_blocks * sizeof(float));
        job.counts = &counts;
        CHECK(s->backend->quantize(s->device, 0, &job, &err) == FQ_OK);
        CHECK(s->backend->wait(s->device, 0, &err) == FQ_OK);
        bool good = trial_counts_quantize(s, &counts, &t->quantized);
        if (t->quantized.nonfinite == 0) {
            good &= trial_same(s, "scales", job.scales, t->expected_scales, n_blocks, n_cols,
                               sizeof(float));
            good &= trial_same(s, "codes", job.codes, t->expected, n, job.cols, 1);
        }
        good &= CHECK(trial_guards_stand(&t->actual, n));
        good &= CHECK(trial_guards_stand(&t->actual_scales, n_blocks * sizeof(float)));
        if (!good)
            trial_describe_quantize(&job);
    }
}

// Runs job, whose out pointers are not yet set, on all subjects.
static inline void trial_dequantize(trial *t, fq_dequantize_job job) {
    const size_t n = job.rows * job.cols;
    const size_t size = fq_dtype_bits(job.target_dtype) / 8;
    job.target = t->expected;
    job.counts = &t->dequantized;
    reference_dequantize(&job);
    for (size_t k = 0; k < t->subjects.n; k++) {
        const subject *s = &t->subjects.all[k];
        fq_dequantize_counts counts;
        fq_error err = {0};
        memset(&counts, 0xFF, sizeof counts);
        job.target = trial_prepare(&t->actual, n * size);
        job.counts = &counts;
        CHECK(s->backend->dequantize(s->device, 0, &job, &err) == FQ_OK);
        CHECK(s->backend->wait(s->device, 0, &err) == FQ_OK);
        bool good = trial_same(s, "target", job.target, t->expected, n, job.cols, size);
        good &= CHECK(counts.saturated == t->dequantized.saturated);
        good &= CHECK(counts.nan_codes == t->dequantized.nan_codes);
        good &= CHECK(trial_guards_stand(&t->actual, n * size));
        if (!good)
            CHECK_NOTE("%s: to %s [%" PRIu64 ", %" PRIu64 "], blocks of %" PRIu64 "x%" PRIu64 "\n",
                       s->name, fq_dtype_name(job.target_dtype), job.rows, job.cols, job.block.rows,
                       job.block.cols);
    }
}

#endif
