// The one loop: lanes take bands shard by shard; a shard's first band begins its file, its last one
// ends it.
#include "run.h"

#include "lane.h"
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// File systems let one thread at a time write to a file: lanes that work on different shards do not
// wait for each other. Measured in memory: sixteen threads on as many files write 21 GB/s, on four
// files 8. Each shard that is open takes two descriptors, and is lost where a run is interrupted.
enum { MAX_STREAMS = 16 };

typedef struct shard_state {
    fq_sink_file *file; // while open
    uint64_t n_in_flight;
    bool all_taken; // no more bands of it will be taken
    bool doomed;    // holds a non-finite tensor: only looked at from here on
    bool failed;
} shard_state;

typedef struct run_state {
    const fq_plan *plan;
    fq_sink *sink;
    const fq_run_options *options;
    fq_run_result *result;
    fq_band_cursor streams[MAX_STREAMS]; // used by one worker at a time: see pool.h
    size_t n_streams;
    size_t n_begun;       // shards given to a stream, or skipped
    fq_lane *lanes;       // [n_lanes]
    pthread_mutex_t lock; // the states and the result
    shard_state *shards;  // [plan->n_shards]
} run_state;

fq_progress fq_progress_load(const fq_progress *progress) {
    return (fq_progress){
        .bytes_read = __atomic_load_n(&progress->bytes_read, __ATOMIC_RELAXED),
        .bytes_written = __atomic_load_n(&progress->bytes_written, __ATOMIC_RELAXED),
        .tensor = __atomic_load_n(&progress->tensor, __ATOMIC_RELAXED),
    };
}

// Moves a stream whose shard has ended to the next one.
static void refill(run_state *run, fq_band_cursor *stream) {
    const bool *skip = run->options->skip;
    while (run->n_begun < run->plan->n_shards && skip && skip[run->n_begun])
        run->n_begun++;
    if (run->n_begun < run->plan->n_shards)
        *stream = fq_band_first(run->plan, run->n_begun++, run->options->band_elements);
}

// The stream with bands left whose shard has the fewest of them at work, so that lanes spread out
// evenly; of several the one that comes first in the plan.
static fq_band_cursor *choose_stream(run_state *run, uint64_t limit) {
    fq_band_cursor *best = NULL;
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < run->n_streams; i++) {
        fq_band_cursor *stream = &run->streams[i];
        if (stream->ended)
            refill(run, stream);
        if (stream->ended || fq_band_next_order(stream) >= limit)
            continue;
        const uint64_t n = run->shards[stream->shard].n_in_flight;
        const uint64_t n_best = best ? run->shards[best->shard].n_in_flight : UINT64_MAX;
        if (n < n_best || (n == n_best && stream->shard < best->shard))
            best = stream;
    }
    pthread_mutex_unlock(&run->lock);
    return best;
}

static bool take_band(void *context, uint32_t worker, uint64_t limit, uint64_t *order,
                      fq_error *err) {
    run_state *run = context;
    fq_band *band = &run->lanes[worker].band;
    fq_band_cursor *stream = choose_stream(run, limit);
    if (!stream || !fq_band_next(stream, band))
        return false;
    *order = band->order;
    fq_sink_file *file = NULL;
    if (band->begins_shard &&
        run->sink->begin(run->sink, &file, &run->plan->shards[band->shard].layout, err) != FQ_OK)
        return false;
    shard_state *shard = &run->shards[band->shard];
    pthread_mutex_lock(&run->lock);
    if (file)
        shard->file = file;
    shard->n_in_flight++;
    shard->all_taken = band->ends_shard;
    pthread_mutex_unlock(&run->lock);
    return true;
}

// Books the band. Returns the shard's file if this was the last thing that it waited for, so that
// the caller ends it; *doomed then says how.
static fq_sink_file *finish_band(run_state *run, const fq_lane *lane, bool failed, bool *doomed) {
    const fq_band *band = &lane->band;
    shard_state *shard = &run->shards[band->shard];
    fq_sink_file *ended = NULL;
    pthread_mutex_lock(&run->lock);
    if (band->step)
        fq_step_counts_add(
            &run->result->counts[band->shard][band->step - run->plan->shards[band->shard].steps],
            &lane->counts);
    shard->failed |= failed;
    shard->doomed |= lane->counts.quantize.nonfinite > 0;
    shard->n_in_flight--;
    if (shard->all_taken && shard->n_in_flight == 0 && !shard->failed) {
        ended = shard->file;
        shard->file = NULL;
    }
    *doomed = shard->doomed;
    pthread_mutex_unlock(&run->lock);
    return ended;
}

static fq_status end_shard(run_state *run, fq_sink_file *file, size_t index, bool doomed,
                           fq_error *err) {
    if (doomed) {
        run->sink->abort(file);
        return FQ_OK;
    }
    fq_sink_digest digest;
    const fq_status status = run->sink->commit(file, &digest, err);
    if (status)
        return status;
    pthread_mutex_lock(&run->lock);
    run->result->done[index] = true;
    pthread_mutex_unlock(&run->lock);
    const fq_run_options *options = run->options;
    if (options->committed)
        options->committed(options->committed_context, index, &digest, run->result->counts[index]);
    return FQ_OK;
}

static fq_status carry_out_band(void *context, uint32_t worker, fq_error *err) {
    run_state *run = context;
    fq_lane *lane = &run->lanes[worker];
    shard_state *shard = &run->shards[lane->band.shard];
    pthread_mutex_lock(&run->lock);
    fq_sink_file *file = shard->doomed ? NULL : shard->file;
    pthread_mutex_unlock(&run->lock);
    fq_status status = fq_lane_carry_out(lane, run->sink, file, err);
    if (!status && lane->counts.quantize.nonfinite > 0 && !run->options->keep_nonfinite)
        status = fq_lane_fail_nonfinite(lane, err);
    bool doomed;
    fq_sink_file *ended = finish_band(run, lane, status != FQ_OK, &doomed);
    if (ended)
        status = end_shard(run, ended, lane->band.shard, doomed, err);
    return status;
}

static fq_status prepare_result(fq_run_result *result, const fq_plan *plan, const bool *skip,
                                fq_error *err) {
    size_t n_steps = 0;
    result->counts = fq_arena_array(&result->arena, plan->n_shards, sizeof *result->counts);
    result->done = fq_arena_array(&result->arena, plan->n_shards, sizeof *result->done);
    for (size_t s = 0; s < plan->n_shards && result->counts && result->done; s++) {
        n_steps += plan->shards[s].n_steps;
        result->done[s] = skip && skip[s];
        result->counts[s] =
            fq_arena_array(&result->arena, plan->shards[s].n_steps, sizeof **result->counts);
        if (!result->counts[s])
            return fq_fail_memory(err);
    }
    result->nonfinite = fq_arena_array(&result->arena, n_steps, sizeof *result->nonfinite);
    return result->counts && result->done && result->nonfinite ? FQ_OK : fq_fail_memory(err);
}

// The sources of the steps that met NaN or Inf, each once: the steps of one source are neighbours.
static void list_nonfinite(fq_run_result *result, const fq_plan *plan) {
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_tensor *source = plan->shards[s].steps[i].source;
            const size_t n = result->n_nonfinite;
            if (result->counts[s][i].quantize.nonfinite > 0 &&
                (n == 0 || result->nonfinite[n - 1] != source))
                result->nonfinite[result->n_nonfinite++] = source;
        }
    }
}

static fq_status open_lanes(run_state *run, fq_error *err) {
    run->shards = calloc(run->plan->n_shards + 1, sizeof *run->shards);
    run->lanes = calloc(run->options->n_lanes, sizeof *run->lanes);
    if (!run->shards || !run->lanes)
        return fq_fail_memory(err);
    fq_status status = FQ_OK;
    for (uint32_t i = 0; i < run->options->n_lanes && !status; i++)
        status = fq_lane_open(&run->lanes[i], run->plan, run->options, i, err);
    return status;
}

static void close_lanes(run_state *run) {
    for (uint32_t i = 0; i < run->options->n_lanes && run->lanes; i++)
        fq_lane_close(&run->lanes[i]);
    for (size_t s = 0; s < run->plan->n_shards && run->shards; s++) {
        if (run->shards[s].file)
            run->sink->abort(run->shards[s].file);
    }
    free(run->lanes);
    free(run->shards);
}

fq_status fq_run(fq_run_result *out, const fq_plan *plan, fq_sink *sink,
                 const fq_run_options *options, fq_error *err) {
    static const fq_pool_work work = {.take = take_band, .carry_out = carry_out_band};
    run_state run = {
        .plan = plan,
        .sink = sink,
        .options = options,
        .result = out,
        .n_streams = options->n_lanes < MAX_STREAMS ? options->n_lanes : MAX_STREAMS,
    };
    for (size_t i = 0; i < run.n_streams; i++)
        run.streams[i].ended = true;
    pthread_mutex_init(&run.lock, NULL);
    fq_status status = prepare_result(out, plan, options->skip, err);
    if (!status)
        status = open_lanes(&run, err);
    if (!status)
        status = fq_pool_run(&work, &run, options->n_lanes, options->cancelled, err);
    if (!status)
        list_nonfinite(out, plan);
    close_lanes(&run);
    pthread_mutex_destroy(&run.lock);
    return status;
}

void fq_run_result_free(fq_run_result *result) {
    fq_arena_free(&result->arena);
    memset(result, 0, sizeof *result);
}
