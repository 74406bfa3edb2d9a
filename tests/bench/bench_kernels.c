// Times quantize and dequantize of every variant against memcpy of as many bytes, in one thread.
//
// bench_kernels [ROWS COLS]...: without shapes, two large matrices and one that stays in the cache.
// Time is that of the thread, so that a busy machine disturbs it less.
#include "kernels/cpu/backend.h"
#include "kernels/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MIN_REPEATS = 3, MAX_REPEATS = 15 };

static const fq_block blocks[] = {{128, 128}, {1, 128}, {32, 32}, {1, 32}};
static const fq_dtype dtypes[] = {FQ_BF16, FQ_F16, FQ_F32};
enum { N_BLOCKS = sizeof blocks / sizeof blocks[0], N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

// One matrix with its codes and scales, and the job that is being timed.
typedef struct bench {
    const fq_backend *backend;
    fq_device *device;
    uint64_t rows, cols;
    size_t n;
    void *floats;   // [rows, cols], room for FP32
    uint8_t *codes; // [rows, cols]
    float *scales;  // [rows, ceil(cols / 32)] at most
    char *copy;     // room for memcpy from one half to the other
    fq_block block;
    fq_dtype dtype;
} bench;

static void die(const char *what) {
    fprintf(stderr, "bench_kernels: %s\n", what);
    exit(1);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Bytes read and written: the floats on one side, the codes on the other.
static size_t bytes_moved(const bench *b) { return b->n * (fq_dtype_bits(b->dtype) / 8 + 1); }

static void run_memcpy(const bench *b) {
    const size_t half = bytes_moved(b) / 2;
    memcpy(b->copy + half, b->copy, half);
    __asm__ volatile("" ::: "memory"); // the copy is wanted though nobody reads it
}

static void run_quantize(const bench *b) {
    fq_quantize_counts counts;
    const fq_quantize_job job = {
        .source = b->floats,
        .source_dtype = b->dtype,
        .rows = b->rows,
        .cols = b->cols,
        .block = b->block,
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = b->codes,
        .scales = b->scales,
        .counts = &counts,
    };
    fq_error err = {0};
    if (b->backend->quantize(b->device, 0, &job, &err))
        die(err.text);
}

static void run_dequantize(const bench *b) {
    fq_dequantize_counts counts;
    const fq_dequantize_job job = {
        .codes = b->codes,
        .rows = b->rows,
        .cols = b->cols,
        .block = b->block,
        .scales = b->scales,
        .target_dtype = b->dtype,
        .target = b->floats,
        .counts = &counts,
    };
    fq_error err = {0};
    if (b->backend->dequantize(b->device, 0, &job, &err))
        die(err.text);
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median GB/s of some runs, each long enough for the clock; few if they are slow.
static double measure(void (*run)(const bench *b), const bench *b) {
    const double enough = 0.3;
    const size_t n_calls = 1 + ((size_t)32 << 20) / bytes_moved(b);
    double seconds[MAX_REPEATS], sum = 0;
    size_t n = 0;
    run(b);
    while (n < MIN_REPEATS || (n < MAX_REPEATS && sum < enough)) {
        const double start = seconds_now();
        for (size_t k = 0; k < n_calls; k++)
            run(b);
        const double taken = seconds_now() - start;
        sum += taken;
        seconds[n++] = taken / (double)n_calls;
    }
    qsort(seconds, n, sizeof seconds[0], compare_doubles);
    return 1e-9 * (double)bytes_moved(b) / seconds[n / 2];
}

// Sums of four uniform numbers: bell-shaped, as weights are.
static void fill(const bench *b) {
    uint64_t state = 1;
    bool saturated = false;
    for (size_t i = 0; i < b->n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const int64_t sum = (int64_t)((state >> 16 & 0xFFF) + (state >> 28 & 0xFFF) +
                                      (state >> 40 & 0xFFF) + (state >> 52)) -
                            0x2000;
        const float value = (float)sum * 0x1p-18f;
        if (b->dtype == FQ_F32)
            ((float *)b->floats)[i] = value;
        else
            ((uint16_t *)b->floats)[i] = b->dtype == FQ_BF16 ? fq_bf16_of_f32_sat(value, &saturated)
                                                             : fq_f16_of_f32_sat(value, &saturated);
    }
}

static void bench_dtype(bench *b) {
    fill(b);
    const double copy = measure(run_memcpy, b);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        b->block = blocks[i];
        const double quantize = measure(run_quantize, b);
        const double dequantize = measure(run_dequantize, b);
        printf("%-8s %-5s %3d x %-3d %7.2f %7.2f %4.0f%% %7.2f %4.0f%%\n",
               b->backend->describe(b->device), fq_dtype_name(b->dtype), (int)b->block.rows,
               (int)b->block.cols, copy, quantize, 100 * quantize / copy, dequantize,
               100 * dequantize / copy);
        fflush(stdout);
    }
}

static void *alloc(const bench *b, size_t nbytes) {
    void *memory = b->backend->host_alloc(b->device, nbytes);
    if (!memory)
        die("out of memory");
    memset(memory, 0, nbytes);
    return memory;
}

static void bench_variant(bench *b, const char *variant) {
    const size_t n_floats = 4 * b->n, n_scales = b->rows * (b->cols / 32 + 1), n_copy = 5 * b->n;
    const fq_device_options options = {.n_lanes = 1, .max_elements = b->n, .max_blocks = n_scales};
    fq_error err = {0};
    setenv("FP8Q_CPU", variant, 1);
    if (b->backend->open(&b->device, &options, &err))
        die(err.text);
    b->floats = alloc(b, n_floats);
    b->codes = alloc(b, b->n);
    b->scales = alloc(b, n_scales * sizeof *b->scales);
    b->copy = alloc(b, n_copy);
    for (size_t k = 0; k < N_DTYPES; k++) {
        b->dtype = dtypes[k];
        bench_dtype(b);
    }
    b->backend->host_free(b->device, b->floats, n_floats);
    b->backend->host_free(b->device, b->codes, b->n);
    b->backend->host_free(b->device, b->scales, n_scales * sizeof *b->scales);
    b->backend->host_free(b->device, b->copy, n_copy);
    b->backend->close(b->device);
}

static void bench_shape(uint64_t rows, uint64_t cols) {
    bench b = {.backend = &fq_cpu_backend, .rows = rows, .cols = cols, .n = rows * cols};
    const fq_cpu_variant *variants[FQ_CPU_MAX_VARIANTS];
    const size_t n_variants = fq_cpu_variants(variants);
    printf("%d x %d: GB/s read + written in one thread, and per cent of memcpy\n", (int)rows,
           (int)cols);
    printf("%-8s %-5s %9s %7s %13s %13s\n", "", "", "blocks", "memcpy", "quantize", "dequantize");
    for (size_t i = 0; i < n_variants; i++)
        bench_variant(&b, variants[i]->name);
}

int main(int argc, char **argv) {
    if (argc == 1) {
        bench_shape(8192, 8192);
        bench_shape(4096, 18432);
        bench_shape(128, 7168);
    }
    for (int i = 1; i + 1 < argc; i += 2)
        bench_shape(strtoull(argv[i], NULL, 10), strtoull(argv[i + 1], NULL, 10));
    return 0;
}
