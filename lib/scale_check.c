// Looks at every scale of a dequant plan before anything is written: see scale_check.h.
#include "scale_check.h"

#include "band.h"
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_worker {
    size_t shard, step; // to look at
    float *grid;
    unsigned char *scratch;
} check_worker;

typedef struct check_state {
    const fq_plan *plan;
    size_t shard, step; // to be taken next
    uint64_t n_taken;
    check_worker *workers;
    pthread_mutex_t lock; // of faults
    fq_messages *faults;
} check_state;

// Bands are larger than a run's: only the scales are held.
enum { CHECK_BAND_ELEMENTS = 8 * 1024 * 1024, SCRATCH_NBYTES = 64 * 1024 };

static bool take_step(void *context, uint32_t worker, uint64_t limit, uint64_t *order,
                      fq_error *err) {
    (void)err;
    check_state *state = context;
    if (state->n_taken >= limit)
        return false;
    *order = state->n_taken++;
    while (state->shard < state->plan->n_shards) {
        const fq_plan_shard *shard = &state->plan->shards[state->shard];
        if (state->step == shard->n_steps) {
            state->shard++;
            state->step = 0;
            continue;
        }
        state->workers[worker].shard = state->shard;
        state->workers[worker].step = state->step;
        if (shard->steps[state->step++].action == FQ_DEQUANTIZE)
            return true;
    }
    return false;
}

// All scales of the step, up to the first bad one.
static fq_status read_scales(const check_state *state, const check_worker *worker, fq_error *err) {
    fq_band_cursor cursor = fq_band_first(state->plan, worker->shard, CHECK_BAND_ELEMENTS);
    cursor.step = worker->step;
    const fq_step *step = &state->plan->shards[worker->shard].steps[worker->step];
    fq_band band;
    fq_status status = FQ_OK;
    while (!status && fq_band_next(&cursor, &band) && band.step == step && band.rows > 0) {
        const fq_scale_window window = fq_band_window(&band);
        status = fq_scale_read(worker->grid, state->plan->checkpoint, step->source_scale,
                               step->scale_storage, &window, worker->scratch, SCRATCH_NBYTES, err);
    }
    return status;
}

static fq_status check_step(void *context, uint32_t worker, fq_error *err) {
    check_state *state = context;
    const fq_status status = read_scales(state, &state->workers[worker], err);
    if (status != FQ_BAD_INPUT)
        return status;
    pthread_mutex_lock(&state->lock);
    fq_messages_add(state->faults, "%s", err->text);
    pthread_mutex_unlock(&state->lock);
    err->status = FQ_OK;
    return FQ_OK;
}

static fq_status open_workers(check_state *state, uint32_t n_workers, fq_error *err) {
    state->workers = calloc(n_workers, sizeof *state->workers);
    if (!state->workers)
        return fq_fail_memory(err);
    for (uint32_t i = 0; i < n_workers; i++) {
        check_worker *worker = &state->workers[i];
        worker->grid = malloc(fq_band_max_blocks(CHECK_BAND_ELEMENTS) * sizeof(float));
        worker->scratch = malloc(SCRATCH_NBYTES);
        if (!worker->grid || !worker->scratch)
            return fq_fail_memory(err);
    }
    return FQ_OK;
}

static void close_workers(check_state *state, uint32_t n_workers) {
    for (uint32_t i = 0; i < n_workers && state->workers; i++) {
        free(state->workers[i].grid);
        free(state->workers[i].scratch);
    }
    free(state->workers);
}

static int compare_lines(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

fq_status fq_scale_check(const fq_plan *plan, uint32_t n_workers, const int *cancelled,
                         fq_messages *faults, fq_error *err) {
    static const fq_pool_work work = {.take = take_step, .carry_out = check_step};
    check_state state = {.plan = plan, .faults = faults};
    const size_t n_before = faults->n;
    pthread_mutex_init(&state.lock, NULL);
    fq_status status = open_workers(&state, n_workers, err);
    if (!status)
        status = fq_pool_run(&work, &state, n_workers, cancelled, err);
    // Workers finish in any order; users read them in one.
    if (faults->n > n_before)
        qsort(faults->lines + n_before, faults->n - n_before, sizeof *faults->lines, compare_lines);
    close_workers(&state, n_workers);
    pthread_mutex_destroy(&state.lock);
    return status;
}
