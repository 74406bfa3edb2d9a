// Several lanes at once, from several threads: each gets the bits and counts of its own jobs, in
// whatever order the lanes' work is mixed on the device.
#include "random.h"
#include "reference.h"
#include "subjects.h"
#include "tests/check.h"

#include <pthread.h>

enum { N_LANES = 8, N_JOBS = 24, MAX_SIDE = 400, MAX_ELEMENTS = MAX_SIDE * MAX_SIDE };

// A matrix, there and back, and what must come of it.
typedef struct task {
    fq_quantize_job quantize;
    fq_dequantize_job dequantize;
    fq_quantize_counts quantized;
    fq_dequantize_counts dequantized;
    size_t n_blocks;
} task;

typedef struct worker {
    pthread_t thread;
    const subject *subject;
    uint32_t lane, n_rounds;
    const task *tasks;
    uint8_t *codes;
    float *scales, *target;
    uint64_t n_done, n_wrong;
} worker;

static void *alloc(size_t nbytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, nbytes) != 0) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static void make_task(task *out, uint64_t *state) {
    static const fq_block blocks[] = {{128, 128}, {1, 128}, {32, 32}};
    const uint64_t rows = 1 + random_below(state, MAX_SIDE);
    const uint64_t cols = 1 + random_below(state, MAX_SIDE);
    uint16_t *source = alloc(rows * cols * sizeof *source);
    const uint32_t greatest = random_below(state, 16) ? 0x4000 : 0x7F90; // some hold Inf and NaN
    for (size_t i = 0; i < rows * cols; i++)
        source[i] = (uint16_t)(random_below(state, greatest) | (random_next(state) & 0x8000));
    out->quantize = (fq_quantize_job){
        .source = source,
        .source_dtype = FQ_BF16,
        .rows = rows,
        .cols = cols,
        .block = blocks[random_below(state, 3)],
        .pow2_scales = random_below(state, 2),
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = alloc(rows * cols),
        .counts = &out->quantized,
    };
    out->n_blocks =
        fq_ceil_div(rows, out->quantize.block.rows) * fq_ceil_div(cols, out->quantize.block.cols);
    out->quantize.scales = alloc(out->n_blocks * sizeof(float));
    reference_quantize(&out->quantize);
    out->dequantize = (fq_dequantize_job){
        .codes = out->quantize.codes,
        .rows = rows,
        .cols = cols,
        .block = out->quantize.block,
        .scales = out->quantize.scales,
        .target_dtype = FQ_BF16,
        .target = alloc(rows * cols * sizeof(uint16_t)),
        .counts = &out->dequantized,
    };
    if (out->quantized.nonfinite == 0)
        reference_dequantize(&out->dequantize);
}

static bool quantize_is_right(const worker *w, const task *t) {
    fq_quantize_job job = t->quantize;
    fq_quantize_counts counts;
    fq_error err = {0};
    job.codes = w->codes;
    job.scales = w->scales;
    job.counts = &counts;
    if (w->subject->backend->quantize(w->subject->device, w->lane, &job, &err) ||
        w->subject->backend->wait(w->subject->device, w->lane, &err))
        return false;
    if (t->quantized.nonfinite > 0)
        return counts.nonfinite == t->quantized.nonfinite &&
               counts.nonfinite_row == t->quantized.nonfinite_row &&
               counts.nonfinite_col == t->quantized.nonfinite_col;
    return memcmp(&counts, &t->quantized, sizeof counts) == 0 &&
           memcmp(w->codes, t->quantize.codes, job.rows * job.cols) == 0 &&
           memcmp(w->scales, t->quantize.scales, t->n_blocks * sizeof(float)) == 0;
}

static bool dequantize_is_right(const worker *w, const task *t) {
    fq_dequantize_job job = t->dequantize;
    fq_dequantize_counts counts;
    fq_error err = {0};
    job.target = w->target;
    job.counts = &counts;
    return w->subject->backend->dequantize(w->subject->device, w->lane, &job, &err) == FQ_OK &&
           w->subject->backend->wait(w->subject->device, w->lane, &err) == FQ_OK &&
           memcmp(&counts, &t->dequantized, sizeof counts) == 0 &&
           memcmp(w->target, t->dequantize.target, job.rows * job.cols * sizeof(uint16_t)) == 0;
}

static void *work(void *argument) {
    worker *w = argument;
    for (uint32_t i = 0; i < w->n_rounds * N_JOBS; i++) {
        const task *t = &w->tasks[(i * (w->lane + 1) + w->lane) % N_JOBS];
        w->n_wrong += !quantize_is_right(w, t);
        w->n_wrong += t->quantized.nonfinite == 0 && !dequantize_is_right(w, t);
        w->n_done++;
    }
    return NULL;
}

static void test_subject(const subject *s, const task *tasks, uint32_t n_rounds) {
    worker workers[N_LANES];
    for (uint32_t i = 0; i < N_LANES; i++) {
        worker *w = &workers[i];
        *w = (worker){.subject = s,
                      .lane = i,
                      .n_rounds = n_rounds,
                      .tasks = tasks,
                      .codes = alloc(MAX_ELEMENTS),
                      .scales = alloc(MAX_ELEMENTS * sizeof(float)),
                      .target = alloc(MAX_ELEMENTS * sizeof(float))};
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            fprintf(stderr, "no thread\n");
            exit(1);
        }
    }
    for (uint32_t i = 0; i < N_LANES; i++) {
        worker *w = &workers[i];
        pthread_join(w->thread, NULL);
        CHECK_U64(w->n_done, n_rounds * N_JOBS);
        if (!CHECK(w->n_wrong == 0))
            CHECK_NOTE("%s: lane %d: %d jobs wrong\n", s->name, (int)i, (int)w->n_wrong);
        free(w->codes);
        free(w->scales);
        free(w->target);
    }
}

// n_rounds: how often each lane does all jobs.
int main(int argc, char **argv) {
    const uint32_t n_rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 4;
    const fq_device_options options = {
        .n_lanes = N_LANES, .max_elements = MAX_ELEMENTS, .max_blocks = MAX_ELEMENTS};
    static task tasks[N_JOBS];
    uint64_t state = 5;
    subjects them;
    subjects_open(&them, &options);
    for (size_t i = 0; i < N_JOBS; i++)
        make_task(&tasks[i], &state);
    for (size_t k = 0; k < them.n; k++)
        test_subject(&them.all[k], tasks, n_rounds);
    subjects_close(&them);
    for (size_t i = 0; i < N_JOBS; i++) {
        free((void *)tasks[i].quantize.source);
        free(tasks[i].quantize.codes);
        free(tasks[i].quantize.scales);
        free(tasks[i].dequantize.target);
    }
    return check_result();
}
