// Goes through both checkpoints once, in strips: rows of a matrix over all of its columns, which
// one lane does piece by piece. See verify.h.
#include "verify.h"

#include "band_read.h"
#include "fp8.h"
#include "pool.h"
#include "verify_work.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SOURCE_SIZE = 4 }; // bytes of an element of the reference

// A lane's buffers, and the strip that it has taken.
typedef struct verify_lane {
    uint32_t index;
    unsigned char *codes;   // of a band; or bytes
    unsigned char *source;  // the same of the reference
    unsigned char *staging; // for scales, and for turning what is stored transposed
    float *scales;
    fq_block_errors *blocks;
    fq_band_cursor cursor; // at the strip's first band
    uint64_t n_bands;      // of the strip
    const fq_step *step;   // NULL: of a shard without steps
    fq_verify_step *beside;
} verify_lane;

typedef struct verify_run {
    fq_verify *verify;
    fq_verify_work *work;
    const fq_verify_run_options *options;
    fq_verify_gemms *gemms; // NULL: no GEMM check
    fq_band_cursor cursor;  // used by one lane at a time: see pool.h
    verify_lane *lanes;     // [n_lanes]
    pthread_mutex_t lock;   // of all that follows, and of the results
    fq_verify_open **open;  // [n_tensors]: NULL before and after its strips
    fq_verify_maps maps;
} verify_run;

static size_t source_nbytes(const fq_verify_run_options *options) {
    return options->band_elements * MAX_SOURCE_SIZE;
}

// ---- Tensors begun and ended

static fq_status begin_tensor(verify_run *run, size_t number, fq_error *err) {
    const fq_pair *pair = run->verify->tensors[number].pair;
    fq_verify_open *open = run->open[number] = calloc(1, sizeof *open);
    if (!open)
        return fq_fail_memory(err);
    open->all_pow2 = true;
    fq_verify_map_begin(&open->map, pair);
    return FQ_OK;
}

// With the lock held.
static void end_tensor(verify_run *run, size_t number) {
    fq_verify_tensor *tensor = &run->verify->tensors[number];
    fq_verify_open *open = run->open[number];
    fq_verify_finish_tensor(tensor, open);
    fq_verify_finish_gemm(run->gemms, tensor, &open->products);
    fq_verify_judge(run->verify, tensor);
    if (tensor->weight.has_errors)
        fq_verify_maps_keep(&run->maps, tensor, &open->map);
    free(open);
    run->open[number] = NULL;
}

// ---- Taking strips

static bool is_last_of_tensor(const verify_run *run, const fq_band_cursor *next, size_t number) {
    const size_t n_steps = run->work->plan.shards[next->shard].n_steps;
    return next->step >= n_steps || run->work->steps[next->shard][next->step].tensor != number;
}

// The bands from the cursor on that are a strip: those of the same rows, or one of bytes.
static void take_bands(verify_run *run, verify_lane *lane) {
    fq_band band;
    lane->cursor = run->cursor;
    lane->n_bands = 0;
    do {
        fq_band_next(&run->cursor, &band);
        lane->n_bands++;
    } while (band.step && band.step->action != FQ_COPY &&
             band.col0 + band.cols < band.step->source_matrix.cols);
    lane->step = band.step;
    if (band.step) {
        const size_t i = (size_t)(band.step - run->work->plan.shards[band.shard].steps);
        lane->beside = &run->work->steps[band.shard][i];
    }
}

static bool take_strip(void *context, uint32_t worker, uint64_t limit, uint64_t *order,
                       fq_error *err) {
    verify_run *run = context;
    verify_lane *lane = &run->lanes[worker];
    const fq_plan *plan = &run->work->plan;
    while (run->cursor.ended && run->cursor.shard + 1 < plan->n_shards)
        run->cursor = fq_band_first(plan, run->cursor.shard + 1, run->options->band_elements);
    if (run->cursor.ended || fq_band_next_order(&run->cursor) >= limit)
        return false;
    *order = fq_band_next_order(&run->cursor);
    take_bands(run, lane);
    if (!lane->step || lane->step->action == FQ_COPY)
        return true;
    const size_t number = lane->beside->tensor;
    fq_status status = FQ_OK;
    pthread_mutex_lock(&run->lock);
    if (!run->open[number])
        status = begin_tensor(run, number, err);
    if (!status) {
        run->open[number]->n_in_flight++;
        run->open[number]->all_taken = is_last_of_tensor(run, &run->cursor, number);
    }
    pthread_mutex_unlock(&run->lock);
    return status == FQ_OK;
}

// ---- Carrying strips out

static void count_bytes(const verify_run *run, uint64_t nbytes) {
    if (run->options->progress)
        __atomic_fetch_add(&run->options->progress->bytes_read, nbytes, __ATOMIC_RELAXED);
}

static fq_band band_of_reference(const fq_band *band, const verify_lane *lane) {
    fq_band reference = *band;
    reference.step = &lane->beside->reference;
    return reference;
}

static fq_status read_band(const verify_run *run, const verify_lane *lane, const fq_band *band,
                           fq_error *err) {
    const fq_verify *verify = run->verify;
    const size_t staging_nbytes = run->options->band_elements;
    const bool is_copy = band->step->action == FQ_COPY;
    const uint64_t n = is_copy ? band->nbytes : band->rows * band->cols;
    fq_status status =
        fq_band_read(lane->codes, verify->checkpoint, band, lane->staging, staging_nbytes, err);
    count_bytes(run, n);
    if (status || !lane->beside->reference.source)
        return status;
    const fq_band reference = band_of_reference(band, lane);
    status = fq_band_read(lane->source, verify->reference, &reference, lane->staging,
                          staging_nbytes, err);
    count_bytes(run, is_copy ? n : n * fq_dtype_size(reference.step->source->dtype));
    return status;
}

static void compare_bytes(verify_run *run, const verify_lane *lane, const fq_band *band) {
    if (!lane->beside->reference.source || memcmp(lane->codes, lane->source, band->nbytes) == 0)
        return;
    uint64_t n = 0, first = 0;
    for (uint64_t i = 0; i < band->nbytes; i++) {
        if (lane->codes[i] != lane->source[i] && n++ == 0)
            first = band->byte0 + i;
    }
    pthread_mutex_lock(&run->lock);
    fq_verify_step *beside = lane->beside;
    if (beside->n_bytes_differ == 0 || first < beside->first_byte_differs)
        beside->first_byte_differs = first;
    beside->n_bytes_differ += n;
    pthread_mutex_unlock(&run->lock);
}

static bool is_nan_code(uint8_t code) { return (code & 0x7Fu) == FQ_E4M3_NAN_CODE; }

static fq_finding find_nan_codes(const verify_lane *lane, const fq_band *band) {
    const uint64_t n = band->rows * band->cols;
    fq_finding found = {0};
    for (uint64_t i = 0; i < n; i++)
        found.n += is_nan_code(lane->codes[i]);
    for (uint64_t i = 0; i < n && found.n > 0; i++) {
        if (is_nan_code(lane->codes[i])) {
            found.first = (fq_place){i / band->cols, i % band->cols};
            break;
        }
    }
    return found;
}

static fq_scale_flaw flaw_of(const verify_lane *lane, const fq_band *band, uint64_t i, uint64_t j,
                             float scale, bool must_be_pow2) {
    if (scale == 0.0f)
        return fq_band_block_is_zero(band, lane->codes, i, j) ? FQ_SCALE_SOUND : FQ_SCALE_ZERO;
    const bool is_pow2 = (fq_bits_of_f32(scale) & 0x7FFFFFu) == 0 || scale == 0x1p-127f;
    return must_be_pow2 && !is_pow2 ? FQ_SCALE_UNROUNDED : FQ_SCALE_SOUND;
}

// Finds the flaws that reading does not see, and makes 0 of NaN.
static void examine_scales(const verify_lane *lane, const fq_band *band, bool must_be_pow2,
                           fq_scale_flaws *flaws) {
    const fq_block block = band->step->block;
    const uint64_t grid_cols = fq_ceil_div(band->cols, block.cols);
    const uint64_t n = fq_ceil_div(band->rows, block.rows) * grid_cols;
    for (uint64_t k = 0; k < n; k++) {
        float *scale = &lane->scales[k];
        const fq_place place = {band->row0 / block.rows + k / grid_cols,
                                band->col0 / block.cols + k % grid_cols};
        const fq_scale_flaw flaw =
            isnan(*scale) ? FQ_SCALE_SOUND
                          : flaw_of(lane, band, k / grid_cols, k % grid_cols, *scale, must_be_pow2);
        *scale = isnan(*scale) ? 0.0f : *scale;
        if (flaw != FQ_SCALE_SOUND)
            fq_scale_flaws_add(flaws, flaw, place.row, place.col);
    }
}

// The share of a weight that a code may be off by beyond half a step: what rounding twice takes
// where scales are stored in 8 or 11 bits.
static float slack_of(const fq_pair *pair) {
    const bool is_short = pair->scale->dtype == FQ_BF16 || pair->scale->dtype == FQ_F16;
    return is_short ? 0x1p-7f : 0x1p-9f;
}

static fq_status compare_band(const verify_run *run, const verify_lane *lane, const fq_band *band,
                              const fq_pair *pair, fq_compare_counts *counts, fq_error *err) {
    const fq_verify_run_options *options = run->options;
    const fq_compare_job job = {
        .codes = lane->codes,
        .source = lane->source,
        .source_dtype = lane->beside->reference.source->dtype,
        .rows = band->rows,
        .cols = band->cols,
        .block = band->step->block,
        .scales = lane->scales,
        .slack = slack_of(pair),
        .blocks = lane->blocks,
        .counts = counts,
    };
    fq_status status = options->checker->compare(options->device, lane->index, &job, err);
    if (!status)
        status = options->backend->wait(options->device, lane->index, err);
    return status;
}

static fq_status check_band(verify_run *run, const verify_lane *lane, const fq_band *band,
                            fq_error *err) {
    fq_verify *verify = run->verify;
    fq_verify_tensor *tensor = &verify->tensors[lane->beside->tensor];
    const fq_scale_window window = fq_band_window(band);
    const bool has_reference = lane->beside->reference.source != NULL;
    fq_compare_counts counts;
    fq_verify_band found = {.band = band, .scales = lane->scales};
    fq_status status = fq_scale_examine(lane->scales, &found.flaws, verify->checkpoint,
                                        band->step->source_scale, band->step->scale_storage,
                                        &window, lane->staging, run->options->band_elements, err);
    if (status)
        return status;
    examine_scales(lane, band, tensor->must_be_pow2, &found.flaws);
    if (has_reference) {
        status = compare_band(run, lane, band, tensor->pair, &counts, err);
        found.blocks = lane->blocks;
        found.counts = &counts;
        found.nan_codes = counts.nan_codes;
    } else {
        found.nan_codes = find_nan_codes(lane, band);
    }
    if (status)
        return status;
    pthread_mutex_lock(&run->lock);
    fq_verify_add_band(verify, tensor, run->open[lane->beside->tensor], &found);
    pthread_mutex_unlock(&run->lock);
    return FQ_OK;
}

static fq_status multiply_band(verify_run *run, const verify_lane *lane, const fq_band *band,
                               fq_error *err) {
    const size_t number = lane->beside->tensor;
    const fq_tensor *reference = lane->beside->reference.source;
    const fq_verify_operands operands = {
        .band = band,
        .codes = lane->codes,
        .scales = lane->scales,
        .source = reference ? lane->source : NULL,
        .source_dtype = reference ? reference->dtype : FQ_BF16,
    };
    return fq_verify_gemms_multiply(run->gemms, lane->index, number, &operands,
                                    &run->open[number]->products, err);
}

static void end_strip(verify_run *run, size_t number) {
    pthread_mutex_lock(&run->lock);
    fq_verify_open *open = run->open[number];
    open->n_in_flight--;
    if (open->all_taken && open->n_in_flight == 0) {
        const fq_verify_numbers done = fq_verify_gemms_done(run->gemms, &number);
        for (size_t i = 0; i < done.n; i++)
            end_tensor(run, done.all[i]);
    }
    pthread_mutex_unlock(&run->lock);
}

static fq_status carry_out_strip(void *context, uint32_t worker, fq_error *err) {
    verify_run *run = context;
    verify_lane *lane = &run->lanes[worker];
    if (!lane->step)
        return FQ_OK;
    if (run->options->progress)
        __atomic_store_n(&run->options->progress->tensor, lane->step->source->name,
                         __ATOMIC_RELAXED);
    fq_status status = FQ_OK;
    for (uint64_t i = 0; i < lane->n_bands && !status; i++) {
        fq_band band;
        fq_band_next(&lane->cursor, &band);
        status = read_band(run, lane, &band, err);
        if (!status && band.step->action == FQ_COPY)
            compare_bytes(run, lane, &band);
        else if (!status)
            status = check_band(run, lane, &band, err);
        if (!status && band.step->action != FQ_COPY)
            status = multiply_band(run, lane, &band, err);
    }
    if (!status && lane->step->action != FQ_COPY)
        end_strip(run, lane->beside->tensor);
    return status;
}

// ---- The whole

static fq_status open_lanes(verify_run *run, fq_error *err) {
    const fq_verify_run_options *options = run->options;
    const size_t max_blocks = fq_band_max_blocks(options->band_elements);
    run->lanes = calloc(options->n_lanes, sizeof *run->lanes);
    run->open = calloc(run->verify->n_tensors + 1, sizeof *run->open);
    if (!run->lanes || !run->open)
        return fq_fail_memory(err);
    for (uint32_t i = 0; i < options->n_lanes; i++) {
        verify_lane *lane = &run->lanes[i];
        lane->index = i;
        lane->codes = options->backend->host_alloc(options->device, options->band_elements);
        lane->source = options->backend->host_alloc(options->device, source_nbytes(options));
        lane->staging = malloc(options->band_elements);
        lane->scales = malloc(max_blocks * sizeof *lane->scales);
        lane->blocks = malloc(max_blocks * sizeof *lane->blocks);
        if (!lane->codes || !lane->source || !lane->staging || !lane->scales || !lane->blocks)
            return fq_fail_memory(err);
    }
    return fq_verify_maps_open(&run->maps, &run->verify->arena, err);
}

static void close_lanes(verify_run *run) {
    const fq_verify_run_options *options = run->options;
    for (uint32_t i = 0; i < options->n_lanes && run->lanes; i++) {
        verify_lane *lane = &run->lanes[i];
        options->backend->host_free(options->device, lane->codes, options->band_elements);
        options->backend->host_free(options->device, lane->source, source_nbytes(options));
        free(lane->staging);
        free(lane->scales);
        free(lane->blocks);
    }
    for (size_t i = 0; i < run->verify->n_tensors && run->open; i++)
        free(run->open[i]);
    free(run->lanes);
    free(run->open);
}

fq_status fq_verify_run(fq_verify *verify, const fq_verify_run_options *options, fq_error *err) {
    static const fq_pool_work work = {.take = take_strip, .carry_out = carry_out_strip};
    verify_run run = {.verify = verify, .work = verify->work, .options = options};
    run.cursor = fq_band_first(&verify->work->plan, 0, options->band_elements);
    run.cursor.ended = verify->work->plan.n_shards == 0;
    pthread_mutex_init(&run.lock, NULL);
    fq_status status = open_lanes(&run, err);
    if (!status)
        status = fq_verify_gemms_open(&run.gemms, verify, options, err);
    if (!status)
        status = fq_pool_run(&work, &run, options->n_lanes, options->cancelled, err);
    if (!status)
        fq_verify_sum_up(verify);
    fq_verify_gemms_close(run.gemms);
    close_lanes(&run);
    pthread_mutex_destroy(&run.lock);
    return status;
}
