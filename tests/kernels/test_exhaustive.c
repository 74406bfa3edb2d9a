// Every BF16 value under the scale of every BF16 amax not less than it: 532,701,120 pairs, both
// signs, FP32 and UE8M0 scales. SIMD variants look codes up instead of dividing, GPUs multiply by a
// reciprocal, and only trying all of them shows that no pair is wrong. GPUs do so with F16, too:
// 503,856,640 pairs.
#include "subjects.h"
#include "tests/check.h"

#include <pthread.h>
#include <unistd.h>

enum {
    N_FINITE = 0x7F80,     // BF16 magnitudes that are finite
    N_FINITE_F16 = 0x7C00, // and F16
    MAX_THREADS = 64,
    LEAST_BLOCK = 128,
    // All values, and for each block its amax; the last block is filled up.
    MAX_ELEMENTS = 2 * N_FINITE * LEAST_BLOCK / (LEAST_BLOCK - 1) + 128 * 128,
};

typedef struct mode {
    const char *name;
    fq_dtype dtype;
    bool pow2;
    float floor;
    uint32_t n_amax; // from 0 on
} mode;

static const mode modes[] = {
    {"f32 scales", FQ_BF16, false, FQ_DEFAULT_AMAX_FLOOR, N_FINITE},
    {"pow2 scales", FQ_BF16, true, FQ_DEFAULT_AMAX_FLOOR, N_FINITE},
    // Only amax under the default floor are different without it: 0x38D2 is the first over 1e-4.
    {"f32 scales, no floor", FQ_BF16, false, 0.0f, 0x38D2},
    {"pow2 scales, no floor", FQ_BF16, true, 0.0f, 0x38D2},
    // For GPUs only; 0x068E is the first over 1e-4.
    {"f32 scales, F16", FQ_F16, false, FQ_DEFAULT_AMAX_FLOOR, N_FINITE_F16},
    {"f32 scales, no floor, F16", FQ_F16, false, 0.0f, 0x068E},
};
enum { N_MODES = sizeof modes / sizeof modes[0], N_CPU_MODES = 4 };

typedef struct mismatch {
    uint64_t n;
    const char *subject, *mode; // of the first
    uint32_t amax, x;           // their bits
    uint8_t actual, expected;
} mismatch;

// One thread's share: every n_threads-th amax of those that are tried.
typedef struct worker {
    pthread_t thread;
    const subjects *subjects;
    uint32_t lane, n_threads, stride;
    const uint16_t *values; // +x, -x for all x
    uint16_t *pairs;        // [N_FINITE]: their codes
    uint16_t *source;       // [MAX_ELEMENTS], and so on
    uint8_t *expected, *codes;
    float *scales;
    uint64_t n_pairs;
    mismatch bad;
} worker;

static float value_of(fq_dtype dtype, uint32_t bits) {
    return dtype == FQ_BF16 ? fq_f32_of_bf16((uint16_t)bits) : fq_f32_of_f16((uint16_t)bits);
}

static uint8_t code_of(fq_dtype dtype, uint32_t x, float scale) {
    return fq_e4m3_of_f32_sat(value_of(dtype, x) / scale);
}

// Fills in the codes of ±x for all x up to amax, and returns how many x that are not zero get code
// 0. Division and rounding are monotonic, so that it is enough to find where each code begins.
static uint64_t fill_pairs(uint16_t *pairs, fq_dtype dtype, uint32_t amax, float scale) {
    uint64_t n_flushed = 0;
    for (uint32_t begin = 0, end = 0; begin <= amax; begin = end) {
        const uint8_t code = code_of(dtype, begin, scale);
        const uint8_t pair[2] = {code, code | 0x80};
        uint32_t beyond = amax + 1;
        end = begin + 1;
        while (end < beyond) {
            const uint32_t middle = (end + beyond) / 2;
            if (code_of(dtype, middle, scale) == code)
                end = middle + 1;
            else
                beyond = middle;
        }
        uint16_t both;
        memcpy(&both, pair, sizeof both);
        for (uint32_t x = begin; x < end; x++)
            pairs[x] = both;
        if (code == 0)
            n_flushed = end - 1;
    }
    return n_flushed;
}

// The matrix of ±x for all x up to amax, in blocks of n_block elements one after the other. The
// first of each is amax itself, and so is what the last one is filled up with. Returns the number
// of blocks, and how many elements that are not zero get code 0.
static size_t fill_matrix(worker *w, const mode *m, uint32_t amax, float scale, size_t n_block,
                          uint64_t *n_flushed) {
    const uint8_t *codes = (const uint8_t *)w->pairs;
    const size_t n_values = 2 * ((size_t)amax + 1);
    size_t n_blocks = 0;
    *n_flushed = 2 * fill_pairs(w->pairs, m->dtype, amax, scale);
    for (size_t done = 0; done < n_values; n_blocks++) {
        const size_t left = n_values - done, n = left < n_block - 1 ? left : n_block - 1;
        uint16_t *source = &w->source[n_blocks * n_block];
        uint8_t *expected = &w->expected[n_blocks * n_block];
        for (size_t i = 0; i < n_block; i += i == 0 ? n + 1 : 1) {
            source[i] = (uint16_t)amax;
            expected[i] = codes[2 * amax];
        }
        memcpy(source + 1, w->values + done, n * sizeof *source);
        memcpy(expected + 1, codes + done, n);
        done += n;
    }
    const bool amax_is_flushed = amax > 0 && codes[2 * amax] == 0;
    *n_flushed += amax_is_flushed ? n_blocks * n_block - n_values : 0;
    return n_blocks;
}

static void note_mismatch(worker *w, const subject *s, const mode *m, uint32_t amax, size_t n) {
    if (w->bad.n++ > 0)
        return;
    size_t i = 0;
    while (i < n - 1 && w->codes[i] == w->expected[i])
        i++;
    w->bad.subject = s->name;
    w->bad.mode = m->name;
    w->bad.amax = amax;
    w->bad.x = w->source[i];
    w->bad.actual = w->codes[i];
    w->bad.expected = w->expected[i];
}

static bool all_are(const float *scales, size_t n, float scale) {
    for (size_t j = 0; j < n; j++) {
        if (scales[j] != scale)
            return false;
    }
    return true;
}

// All x up to amax, in blocks of that many rows and 128 columns.
static void try_blocks(worker *w, const mode *m, uint32_t amax, uint64_t block_rows) {
    const float scale = fq_scale_of_amax(value_of(m->dtype, amax), m->floor, m->pow2);
    const size_t n_block = block_rows * LEAST_BLOCK;
    uint64_t n_flushed = 0;
    const size_t n_blocks = fill_matrix(w, m, amax, scale, n_block, &n_flushed);
    const size_t n = n_blocks * n_block;
    for (size_t k = 0; k < w->subjects->n; k++) {
        const subject *s = &w->subjects->all[k];
        fq_quantize_counts counts;
        fq_error err = {0};
        const fq_quantize_job job = {
            .source = w->source,
            .source_dtype = m->dtype,
            .rows = n / LEAST_BLOCK,
            .cols = LEAST_BLOCK,
            .block = {block_rows, LEAST_BLOCK},
            .pow2_scales = m->pow2,
            .amax_floor = m->floor,
            .codes = w->codes,
            .scales = w->scales,
            .counts = &counts,
        };
        const bool done = s->backend->quantize(s->device, w->lane, &job, &err) == FQ_OK &&
                          s->backend->wait(s->device, w->lane, &err) == FQ_OK;
        if (!done || !all_are(w->scales, n_blocks, scale) || counts.flushed_to_zero != n_flushed ||
            memcmp(w->codes, w->expected, n) != 0)
            note_mismatch(w, s, m, amax, n);
    }
}

// A GPU has one kernel for 128×128 and one for 1×128; the CPU makes no difference.
static void try_amax(worker *w, const mode *m, uint32_t amax) {
    try_blocks(w, m, amax, 128);
    if (subjects_are_gpus())
        try_blocks(w, m, amax, 1);
    w->n_pairs += amax + 1;
}

// Tried whatever the stride: powers of two, 448·2^k and their neighbours, subnormals, the ends.
static bool is_special(uint32_t amax, const mode *m) {
    const uint32_t mantissa = amax & 0x7F;
    return mantissa <= 1 || (mantissa >= 0x5F && mantissa <= 0x61) || mantissa == 0x7F ||
           amax < 0x80 || amax + 1 == m->n_amax;
}

static void *work(void *argument) {
    worker *w = argument;
    const size_t n_modes = subjects_are_gpus() ? N_MODES : N_CPU_MODES;
    for (size_t i = 0; i < n_modes; i++) {
        for (uint32_t amax = w->lane; amax < modes[i].n_amax; amax += w->n_threads) {
            if (amax % w->stride == 0 || is_special(amax, &modes[i]))
                try_amax(w, &modes[i], amax);
        }
    }
    return NULL;
}

static void *alloc(size_t nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, nbytes) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static void start(worker *w) {
    w->pairs = alloc(N_FINITE * sizeof *w->pairs);
    w->source = alloc(MAX_ELEMENTS * sizeof *w->source);
    w->expected = alloc(MAX_ELEMENTS);
    w->codes = alloc(MAX_ELEMENTS);
    w->scales = alloc(MAX_ELEMENTS / LEAST_BLOCK * sizeof *w->scales);
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
        fprintf(stderr, "no thread\n");
        exit(1);
    }
}

static void finish(worker *w, uint64_t *n_pairs) {
    pthread_join(w->thread, NULL);
    *n_pairs += w->n_pairs;
    if (!CHECK(w->bad.n == 0 && w->n_pairs > 0))
        CHECK_NOTE("%" PRIu64 " amax with faults; %s, %s, amax 0x%04" PRIx32
                   ": code of 0x%04" PRIx32 " is 0x%02x, not 0x%02x\n",
                   w->bad.n, w->bad.subject, w->bad.mode, w->bad.amax, w->bad.x,
                   (unsigned)w->bad.actual, (unsigned)w->bad.expected);
    free(w->pairs);
    free(w->source);
    free(w->expected);
    free(w->codes);
    free(w->scales);
}

// stride: tries every stride-th amax, and the special ones; 1 tries all.
int main(int argc, char **argv) {
    static uint16_t values[2 * N_FINITE];
    static worker workers[MAX_THREADS];
    const uint32_t stride = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t n = n_cpus < 1 ? 1 : n_cpus > MAX_THREADS ? MAX_THREADS : (uint32_t)n_cpus;
    uint64_t n_pairs = 0;
    subjects them;
    const fq_device_options options = {
        .n_lanes = n, .max_elements = MAX_ELEMENTS, .max_blocks = MAX_ELEMENTS / LEAST_BLOCK};
    subjects_open(&them, &options);
    for (uint32_t x = 0; x < N_FINITE; x++) {
        values[2 * x] = (uint16_t)x;
        values[2 * x + 1] = (uint16_t)(x | 0x8000);
    }
    for (uint32_t i = 0; i < n; i++) {
        workers[i] = (worker){
            .subjects = &them, .lane = i, .n_threads = n, .stride = stride, .values = values};
        start(&workers[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        finish(&workers[i], &n_pairs);
    subjects_close(&them);
    printf("%" PRIu64 " pairs of amax and x, each with both signs, on each variant\n", n_pairs);
    return check_result();
}
