// Multiplies weights with activations: see verify_gemm.h.
#include "verify_gemm.h"

#include "activation_sets.h"
#include "fold.h"
#include "verify_experts.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

// Elements of Y that a lane works on at once: 512 rows of 128 tokens, which take 1.3 MB in the
// three products.
enum { MAX_RESULTS = 512 * 128 };

// Activations that are kept at hand: 6 bytes for each element, 14 MB for 128 tokens of 18432.
enum { MAX_SETS_NBYTES = 64 << 20 };

// Of a weight, for the sums that a group of strips gives: where they go to.
typedef struct gemm_taker {
    fq_verify_gemms *gemms; // read without its lock: never changed
    fq_verify_products *products;
    uint64_t tokens;
} gemm_taker;

// A lane's strip and buffers.
typedef struct gemm_lane {
    const fq_activation_set *set; // between the first and the last band of a row,
    fq_gemm_group *group;         // likewise; NULL for one that is multiplied by itself
    fq_gemm_sums *sums;           // [n_sums]
    uint32_t *words;              // [n_words]
    size_t n_sums, n_words;
} gemm_lane;

struct fq_verify_gemms {
    const fq_verify *verify;
    const fq_verify_run_options *options;
    fq_activation_sets *sets;
    fq_activations_key *keys; // [verify->n_tensors]; cols 0: not multiplied
    gemm_taker *takers;       // [verify->n_tensors]
    fq_verify_experts *experts;
    gemm_lane *lanes;     // [options->n_lanes]
    pthread_mutex_t lock; // of takers and all products
};

// ---- What is multiplied with what

// Engines round the scales of activations to powers of two where those of weights are.
static bool has_pow2_scales(const fq_verify_tensor *tensor) {
    const fq_dtype dtype = tensor->pair->scale->dtype;
    return tensor->must_be_pow2 || !fq_dtype_is_source(dtype);
}

// Of one set of activations: 300 MB while it is made. 128 tokens of 262144 columns.
static const uint64_t max_activations = UINT64_C(1) << 25;

// The reason why a weight is not multiplied; NULL if it is.
static const char *choose(fq_activations_key *out, const fq_verify_tensor *tensor,
                          const fq_activations_options *activations) {
    const fq_tensor *weight = tensor->tensor;
    const fq_block block = tensor->pair->block;
    const uint64_t cols = weight->shape[weight->rank - 1];
    const char *why = NULL;
    if (block.rows != FQ_BLOCK_SIZE || block.cols != FQ_BLOCK_SIZE)
        return "blocks that are not 128 x 128";
    if (cols > max_activations / activations->tokens)
        return "too wide for so many tokens";
    if (!fq_activations_find(out, activations, weight->name, cols, &why))
        return why;
    out->pow2_scales = has_pow2_scales(tensor);
    return NULL;
}

// Notes the weights that are not multiplied, and why: items[n].
static fq_status note(fq_verify *verify, const fq_fold_item *items, size_t n, fq_error *err) {
    fq_arena arena = {0};
    fq_fold_line *lines = NULL;
    size_t n_lines = 0;
    const fq_status status = fq_fold(&lines, &n_lines, &arena, items, n, err);
    for (size_t i = 0; i < n_lines && !status; i++)
        fq_messages_add(&verify->notes, "%s: not multiplied: %s", lines[i].pattern, lines[i].rest);
    fq_arena_free(&arena);
    return status;
}

static fq_status choose_all(fq_verify_gemms *gemms, fq_verify *verify, fq_error *err) {
    gemms->keys = calloc(verify->n_tensors + 1, sizeof *gemms->keys);
    gemms->takers = calloc(verify->n_tensors + 1, sizeof *gemms->takers);
    fq_fold_item *items = calloc(verify->n_tensors + 1, sizeof *items);
    size_t n = 0;
    fq_status status = gemms->keys && gemms->takers && items ? FQ_OK : fq_fail_memory(err);
    for (size_t i = 0; i < verify->n_tensors && !status; i++) {
        const fq_verify_tensor *tensor = &verify->tensors[i];
        if (!tensor->has_weight)
            continue;
        gemms->takers[i].gemms = gemms;
        fq_activations_key key = {.cols = 0};
        const char *why = choose(&key, tensor, gemms->options->activations);
        if (why)
            items[n++] = (fq_fold_item){.name = tensor->tensor->name, .rest = why};
        else
            gemms->keys[i] = key;
    }
    if (!status)
        status = note(verify, items, n, err);
    free(items);
    return status;
}

// ---- Sums

// NaN is as bad as infinite.
static void add_error(fq_sum *sum, double error2) {
    fq_sum_add(sum, isnan(error2) ? (double)INFINITY : error2);
}

// With the lock held.
static void add_sums(fq_verify_products *products, const fq_gemm_sums *of_rows, uint64_t rows,
                     uint64_t tokens) {
    for (uint64_t row = 0; row < rows; row++) {
        const fq_gemm_sums *sums = &of_rows[row];
        products->n += sums->n;
        products->n_rows_left_out += sums->n == 0;
        add_error(&products->kernel_error2, sums->kernel_error2);
        add_error(&products->error2, sums->error2);
        fq_sum_add(&products->exact2, sums->exact2);
        fq_sum_add(&products->reference2, sums->reference2);
    }
    products->tokens = tokens;
}

static void take_sums(void *of_weight, const fq_gemm_sums *sums, uint64_t rows) {
    const gemm_taker *taker = of_weight;
    pthread_mutex_lock(&taker->gemms->lock);
    add_sums(taker->products, sums, rows, taker->tokens);
    pthread_mutex_unlock(&taker->gemms->lock);
}

// ---- Opening and closing

static fq_status open_experts(fq_verify_gemms *gemms, fq_error *err) {
    const fq_verify_experts_options options = {
        .verify = gemms->verify,
        .run = gemms->options,
        .keys = gemms->keys,
        .sets = gemms->sets,
        .max_results = MAX_RESULTS,
        .take = take_sums,
    };
    return fq_verify_experts_open(&gemms->experts, &options, err);
}

fq_status fq_verify_gemms_open(fq_verify_gemms **out, fq_verify *verify,
                               const fq_verify_run_options *options, fq_error *err) {
    if (!options->gemm)
        return FQ_OK;
    fq_verify_gemms *gemms = calloc(1, sizeof *gemms);
    if (!gemms)
        return fq_fail_memory(err);
    *out = gemms;
    gemms->verify = verify;
    gemms->options = options;
    pthread_mutex_init(&gemms->lock, NULL);
    gemms->lanes = calloc(options->n_lanes, sizeof *gemms->lanes);
    fq_status status = gemms->lanes ? FQ_OK : fq_fail_memory(err);
    if (!status)
        status = fq_activation_sets_open(&gemms->sets, options->gemm, options->activations,
                                         MAX_SETS_NBYTES, err);
    if (!status)
        status = choose_all(gemms, verify, err);
    if (!status)
        status = open_experts(gemms, err);
    return status;
}

void fq_verify_gemms_close(fq_verify_gemms *gemms) {
    if (!gemms)
        return;
    for (uint32_t i = 0; i < gemms->options->n_lanes && gemms->lanes; i++) {
        free(gemms->lanes[i].sums);
        free(gemms->lanes[i].words);
    }
    fq_verify_experts_close(gemms->experts);
    fq_activation_sets_close(gemms->sets, gemms->options->device);
    pthread_mutex_destroy(&gemms->lock);
    free(gemms->lanes);
    free(gemms->takers);
    free(gemms->keys);
    free(gemms);
}

// ---- Multiplying

// Some rows of a band, in a lane.
typedef struct gemm_strip {
    fq_verify_gemms *gemms;
    gemm_lane *lane;
    uint32_t lane_index;
    size_t tensor;
    const fq_verify_operands *operands;
    uint64_t row0, rows; // of the band
    fq_verify_products *products;
} gemm_strip;

// An array of n elements of that size at least, in the place of another, whose elements are lost.
// NULL when out of memory.
static void *make_room(void *array, size_t *capacity, size_t n, size_t size) {
    if (n <= *capacity)
        return array;
    free(array);
    void *larger = calloc(n, size);
    *capacity = larger ? n : 0;
    return larger;
}

// Reads the packed words of all rows of a band, as they are stored.
static fq_status read_words(const gemm_strip *strip, fq_error *err) {
    const fq_band *band = strip->operands->band;
    const fq_checkpoint *checkpoint = strip->gemms->verify->checkpoint;
    const fq_tensor *scale = band->step->source_scale;
    const fq_shard *shard = &checkpoint->shards[scale->shard];
    const uint64_t n_words = fq_ceil_div(band->cols, FQ_PACKED_COLS);
    const uint64_t stride = fq_packed_stride(band->step->source_matrix.rows);
    gemm_lane *lane = strip->lane;
    lane->words = make_room(lane->words, &lane->n_words, n_words * band->rows, sizeof *lane->words);
    fq_status status = lane->words ? FQ_OK : fq_fail_memory(err);
    for (uint64_t i = 0; i < n_words && !status; i++) {
        const uint64_t word = (band->col0 / FQ_PACKED_COLS + i) * stride + band->row0;
        status = shard->source->read(
            shard->source, shard->data_start + scale->offset + word * sizeof *lane->words,
            lane->words + i * band->rows, band->rows * sizeof *lane->words, err);
    }
    return status;
}

static fq_status add_piece(const gemm_strip *strip, fq_error *err) {
    const fq_verify_operands *operands = strip->operands;
    const fq_verify_run_options *options = strip->gemms->options;
    const fq_band *band = operands->band;
    const uint64_t first = strip->row0 * band->cols;
    const size_t size = operands->source ? fq_dtype_size(operands->source_dtype) : 1;
    const bool is_packed = band->step->scale_storage == FQ_STORED_PACKED;
    const fq_gemm_piece piece = {
        .rows = strip->rows,
        .cols = band->cols,
        .col0 = band->col0,
        .codes = operands->codes + first,
        .scales =
            operands->scales + strip->row0 / FQ_BLOCK_SIZE * fq_ceil_div(band->cols, FQ_BLOCK_SIZE),
        .packed = is_packed ? strip->lane->words + strip->row0 : NULL,
        .packed_stride = band->rows,
        .source = operands->source ? (const char *)operands->source + first * size : NULL,
        .source_dtype = operands->source_dtype,
    };
    fq_status status = options->gemm->add(options->device, strip->lane_index, &piece, err);
    if (!status)
        status = options->backend->wait(options->device, strip->lane_index, err);
    return status;
}

// A strip of a group gives its sums to take_sums, when the group is launched.
static fq_status begin_strip(const gemm_strip *strip, fq_error *err) {
    const fq_verify_run_options *options = strip->gemms->options;
    const gemm_lane *lane = strip->lane;
    gemm_taker *taker = &strip->gemms->takers[strip->tensor];
    const fq_gemm_strip of_gemm = {.activations = lane->set->operand,
                                   .rows = strip->rows,
                                   .group = lane->group,
                                   .taker = taker};
    if (lane->group) {
        pthread_mutex_lock(&strip->gemms->lock);
        taker->products = strip->products;
        taker->tokens = lane->set->tokens;
        pthread_mutex_unlock(&strip->gemms->lock);
    }
    return options->gemm->begin(options->device, strip->lane_index, &of_gemm, err);
}

static fq_status end_strip(const gemm_strip *strip, fq_error *err) {
    const fq_verify_run_options *options = strip->gemms->options;
    gemm_lane *lane = strip->lane;
    if (lane->group)
        return options->gemm->end(options->device, strip->lane_index, NULL, err);
    lane->sums = make_room(lane->sums, &lane->n_sums, strip->rows, sizeof *lane->sums);
    const fq_gemm_result result = {.sums = lane->sums};
    fq_status status = lane->sums ? FQ_OK : fq_fail_memory(err);
    if (!status)
        status = options->gemm->end(options->device, strip->lane_index, &result, err);
    if (!status)
        status = options->backend->wait(options->device, strip->lane_index, err);
    if (status)
        return status;
    pthread_mutex_lock(&strip->gemms->lock);
    add_sums(strip->products, lane->sums, strip->rows, lane->set->tokens);
    pthread_mutex_unlock(&strip->gemms->lock);
    return FQ_OK;
}

static bool is_first(const fq_band *band) { return band->col0 == 0; }

static bool is_last(const fq_band *band) {
    return band->col0 + band->cols == band->step->source_matrix.cols;
}

static fq_status multiply_strip(const gemm_strip *strip, fq_error *err) {
    const fq_band *band = strip->operands->band;
    fq_status status = is_first(band) ? begin_strip(strip, err) : FQ_OK;
    if (!status)
        status = add_piece(strip, err);
    if (!status && is_last(band))
        status = end_strip(strip, err);
    return status;
}

// Before the first band of some rows: what they are multiplied with, and the group that they join.
static fq_status enter(const gemm_strip *strip, fq_error *err) {
    fq_verify_gemms *gemms = strip->gemms;
    const fq_verify_run_options *options = gemms->options;
    const fq_activations_place place = {options->backend, options->device, strip->lane_index};
    fq_status status = fq_activation_sets_take(&strip->lane->set, gemms->sets,
                                               &gemms->keys[strip->tensor], &place, err);
    if (!status)
        status = fq_verify_experts_enter(&strip->lane->group, gemms->experts, strip->tensor, &place,
                                         err);
    return status;
}

// After the last one.
static fq_status leave(const gemm_strip *strip, fq_error *err) {
    fq_verify_gemms *gemms = strip->gemms;
    fq_activation_sets_give_back(gemms->sets, strip->lane->set);
    return fq_verify_experts_leave(gemms->experts, strip->tensor, strip->operands->band->rows, err);
}

fq_status fq_verify_gemms_multiply(fq_verify_gemms *gemms, uint32_t lane_index, size_t tensor,
                                   const fq_verify_operands *operands, fq_verify_products *products,
                                   fq_error *err) {
    const fq_band *band = operands->band;
    if (!gemms || gemms->keys[tensor].cols == 0 || band->rows == 0)
        return FQ_OK;
    gemm_strip strip = {
        .gemms = gemms,
        .lane = &gemms->lanes[lane_index],
        .lane_index = lane_index,
        .tensor = tensor,
        .operands = operands,
        .products = products,
    };
    fq_status status = is_first(band) ? enter(&strip, err) : FQ_OK;
    if (!status && band->step->scale_storage == FQ_STORED_PACKED)
        status = read_words(&strip, err);
    while (strip.row0 < band->rows && !status) {
        const uint64_t most = fq_verify_strip_rows(band->rows, is_first(band) && is_last(band),
                                                   strip.lane->set->tokens, MAX_RESULTS);
        strip.rows = band->rows - strip.row0 < most ? band->rows - strip.row0 : most;
        status = multiply_strip(&strip, err);
        strip.row0 += strip.rows;
    }
    if (!status && is_last(band))
        status = leave(&strip, err);
    return status;
}

fq_verify_numbers fq_verify_gemms_done(fq_verify_gemms *gemms, const size_t *tensor) {
    if (!gemms)
        return (fq_verify_numbers){.all = tensor, .n = 1};
    return fq_verify_experts_done(gemms->experts, tensor);
}

// ---- Figures

static double relative(const fq_sum *error2, const fq_sum *reference2) {
    const double error = fq_sum_value(error2);
    return error == 0.0 ? 0.0 : sqrt(error / fq_sum_value(reference2));
}

// What the default limit was derived for. Few tokens are left to chance where the rows of a weight
// are alike. A row that is left out as too great sets the scale of those beside it.
static bool is_default_limited(const fq_activations_options *activations,
                               const fq_verify_tensor *tensor, const fq_verify_products *products) {
    enum { MIN_TOKENS = 32 };
    return activations->kind == FQ_ACTIVATIONS_NORMAL && products->tokens >= MIN_TOKENS &&
           products->n_rows_left_out == 0 && tensor->weight.floored_blocks == 0;
}

void fq_verify_finish_gemm(const fq_verify_gemms *gemms, fq_verify_tensor *tensor,
                           const fq_verify_products *products) {
    if (products->tokens == 0)
        return;
    const bool any = products->n > 0, has_reference = tensor->weight.has_errors;
    const fq_activations_options *activations = gemms->options->activations;
    const double kernel_limit = gemms->verify->options.limits.kernel_rel_l2;
    tensor->has_gemm = true;
    tensor->gemm = (fq_verify_gemm){
        .tokens = products->tokens,
        .rel_l2 =
            any && has_reference ? relative(&products->error2, &products->reference2) : (double)NAN,
        .kernel_rel_l2 = any ? relative(&products->kernel_error2, &products->exact2) : (double)NAN,
        .max_kernel_rel_l2 = kernel_limit < 0 ? gemms->options->gemm->max_error : kernel_limit,
        .is_default_limited = is_default_limited(activations, tensor, products),
    };
}

void fq_verify_judge_gemm(const fq_verify *verify, fq_verify_tensor *tensor) {
    const fq_verify_limits *limits = &verify->options.limits;
    const fq_verify_gemm *gemm = &tensor->gemm;
    const double limit = limits->gemm_rel_l2 < 0 ? FQ_VERIFY_MAX_GEMM_ERROR : limits->gemm_rel_l2;
    if (!tensor->has_gemm)
        return;
    if (gemm->kernel_rel_l2 > gemm->max_kernel_rel_l2)
        fq_messages_add(&tensor->reasons,
                        "the FP8 GEMM is %.4g off the product of its own operands, over %.4g: the "
                        "layout of the scales, or the kernel, is wrong",
                        gemm->kernel_rel_l2, gemm->max_kernel_rel_l2);
    if (gemm->rel_l2 > limit && (limits->gemm_rel_l2 >= 0 || gemm->is_default_limited))
        fq_messages_add(&tensor->reasons,
                        "relative error %.4g of the product is over %.4g (--max-gemm-error)",
                        gemm->rel_l2, limit);
}
