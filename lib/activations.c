// The activations that verify multiplies: see activations.h.
#include "activations.h"

#include "band.h"
#include "fp8.h"
#include "normal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- Which tensor of a file

bool fq_activations_is_captured(const fq_tensor *tensor) {
    return tensor->rank == 2 && fq_dtype_is_source(tensor->dtype) && tensor->nbytes > 0;
}

fq_status fq_activations_check(const fq_checkpoint *captured, fq_error *err) {
    for (size_t i = 0; i < captured->n_tensors; i++) {
        if (fq_activations_is_captured(captured->by_name[i]))
            return FQ_OK;
    }
    return fq_fail(
        err, FQ_USAGE,
        "%s: no tensor [tokens, columns] of BF16, F16 or F32; --activations takes a file "
        "of inputs to linear layers",
        captured->path);
}

static bool fits(const fq_tensor *tensor, uint64_t cols) {
    return fq_activations_is_captured(tensor) && tensor->shape[1] == cols;
}

// The tensor whose name is the first n bytes of name, if it fits.
static const fq_tensor *find_by_name(const fq_checkpoint *captured, const char *name, size_t n,
                                     uint64_t cols) {
    const size_t i = fq_checkpoint_position_of(captured, name, n, "");
    if (i == SIZE_MAX || !fits(captured->by_name[i], cols))
        return NULL;
    return captured->by_name[i];
}

bool fq_activations_find(fq_activations_key *out, const fq_activations_options *options,
                         const char *weight_name, uint64_t cols, const char **why) {
    out->cols = cols;
    out->tensor = NULL;
    if (options->kind != FQ_ACTIVATIONS_CAPTURED)
        return true;
    static const char suffix[] = ".weight";
    const fq_checkpoint *captured = options->captured;
    const size_t n = strlen(weight_name), n_suffix = sizeof suffix - 1;
    out->tensor = find_by_name(captured, weight_name, n, cols);
    if (!out->tensor && n > n_suffix && strcmp(weight_name + n - n_suffix, suffix) == 0)
        out->tensor = find_by_name(captured, weight_name, n - n_suffix, cols);
    size_t n_fitting = 0;
    for (size_t i = 0; i < captured->n_tensors && !out->tensor; i++)
        n_fitting += fits(captured->by_name[i], cols);
    for (size_t i = 0; i < captured->n_tensors && n_fitting == 1 && !out->tensor; i++) {
        if (fits(captured->by_name[i], cols))
            out->tensor = captured->by_name[i];
    }
    *why = n_fitting == 0 ? "no activations of that width" : "several activations of that width";
    return out->tensor != NULL;
}

// ---- Their values

static void make_up(const fq_activations *a, const fq_activations_options *options) {
    const bool has_outliers = options->kind == FQ_ACTIVATIONS_OUTLIER;
    for (uint64_t row = 0; row < a->tokens; row++) {
        for (uint64_t col = 0; col < a->cols; col++) {
            const bool is_outlier = has_outliers && col % FQ_ACTIVATIONS_OUTLIER_STEP == 0;
            const double factor = is_outlier ? options->magnitude : 1.0;
            const float value = (float)(fq_normal(options->seed, row, col) * factor);
            bool saturated = false;
            a->values[row * a->cols + col] = fq_bf16_of_f32_sat(value, &saturated);
        }
    }
}

static float captured_value(const unsigned char *bytes, fq_dtype dtype) {
    uint16_t half;
    float single;
    if (dtype == FQ_F32) {
        memcpy(&single, bytes, sizeof single);
        return single;
    }
    memcpy(&half, bytes, sizeof half);
    return dtype == FQ_BF16 ? fq_f32_of_bf16(half) : fq_f32_of_f16(half);
}

static bool is_finite(float value) { return (fq_bits_of_f32(value) & 0x7F800000u) != 0x7F800000u; }

static fq_status read_captured(const fq_activations *a, const fq_checkpoint *captured,
                               const fq_tensor *tensor, fq_error *err) {
    enum { PART = 4096 }; // elements
    unsigned char bytes[PART * sizeof(float)];
    const fq_shard *shard = &captured->shards[tensor->shard];
    const size_t size = fq_dtype_size(tensor->dtype);
    const uint64_t start = shard->data_start + tensor->offset, n = a->tokens * a->cols;
    for (uint64_t first = 0; first < n; first += PART) {
        const size_t part = n - first < PART ? (size_t)(n - first) : PART;
        const fq_status status =
            shard->source->read(shard->source, start + first * size, bytes, part * size, err);
        if (status)
            return status;
        for (size_t i = 0; i < part; i++) {
            const float value = captured_value(bytes + i * size, tensor->dtype);
            bool saturated = false;
            if (!is_finite(value))
                return fq_fail(err, FQ_BAD_INPUT,
                               "%s: %s: row %" PRIu64 ", column %" PRIu64
                               " is not finite; capture activations that are",
                               captured->path, tensor->name, (first + i) / a->cols,
                               (first + i) % a->cols);
            a->values[first + i] = fq_bf16_of_f32_sat(value, &saturated);
        }
    }
    return FQ_OK;
}

// ---- Quantizing

// Host memory of the device for one part of the activations.
typedef struct staging {
    uint16_t *source;
    uint8_t *codes;
} staging;

static fq_status quantize_part(const fq_activations *a, const fq_activations_key *key,
                               const fq_activations_place *place, const staging *stage,
                               uint64_t first, uint64_t rows, uint64_t cols, fq_error *err) {
    fq_quantize_counts counts;
    const uint64_t n_blocks = fq_ceil_div(a->cols, FQ_BLOCK_SIZE);
    const fq_quantize_job job = {
        .source = stage->source,
        .source_dtype = FQ_BF16,
        .rows = rows,
        .cols = cols,
        .block = {1, FQ_BLOCK_SIZE},
        .pow2_scales = key->pow2_scales,
        .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
        .codes = stage->codes,
        .scales = &a->scales[first / a->cols * n_blocks + first % a->cols / FQ_BLOCK_SIZE],
        .counts = &counts,
    };
    memcpy(stage->source, a->values + first, rows * cols * sizeof *stage->source);
    fq_status status = place->backend->quantize(place->device, place->lane, &job, err);
    if (!status)
        status = place->backend->wait(place->device, place->lane, err);
    if (!status)
        memcpy(a->codes + first, stage->codes, rows * cols);
    return status;
}

// Part by part: as many whole rows as fit, or a piece of one row.
static fq_status quantize(const fq_activations *a, const fq_activations_key *key,
                          const fq_activations_place *place, fq_error *err) {
    const uint64_t most = FQ_MIN_BAND_ELEMENTS;
    const size_t source_nbytes = most * sizeof(uint16_t), codes_nbytes = most;
    const uint64_t part_cols = a->cols < most ? a->cols : most;
    const uint64_t by_elements = most / part_cols;
    const uint64_t by_blocks = fq_band_max_blocks(most) / fq_ceil_div(part_cols, FQ_BLOCK_SIZE);
    const uint64_t part_rows = by_elements < by_blocks ? by_elements : by_blocks;
    const staging stage = {
        .source = place->backend->host_alloc(place->device, source_nbytes),
        .codes = place->backend->host_alloc(place->device, codes_nbytes),
    };
    fq_status status = stage.source && stage.codes ? FQ_OK : fq_fail_memory(err);
    for (uint64_t row = 0; row < a->tokens && !status; row += part_rows) {
        const uint64_t rows = a->tokens - row < part_rows ? a->tokens - row : part_rows;
        for (uint64_t col = 0; col < a->cols && !status; col += part_cols) {
            const uint64_t cols = a->cols - col < part_cols ? a->cols - col : part_cols;
            status = quantize_part(a, key, place, &stage, row * a->cols + col, rows, cols, err);
        }
    }
    place->backend->host_free(place->device, stage.source, source_nbytes);
    place->backend->host_free(place->device, stage.codes, codes_nbytes);
    return status;
}

static void take_outliers_out(const fq_activations *a) {
    for (uint64_t row = 0; row < a->tokens; row++) {
        for (uint64_t col = 0; col < a->cols; col += FQ_ACTIVATIONS_OUTLIER_STEP) {
            a->values[row * a->cols + col] = 0;
            a->codes[row * a->cols + col] = 0;
        }
    }
}

static fq_status allocate(fq_activations *a, fq_error *err) {
    if (a->cols > SIZE_MAX / sizeof(float) / a->tokens)
        return fq_fail_memory(err);
    const size_t n = a->tokens * a->cols;
    const size_t n_blocks = a->tokens * fq_ceil_div(a->cols, FQ_BLOCK_SIZE);
    a->values = malloc(n * sizeof *a->values);
    a->codes = malloc(n);
    a->scales = malloc(n_blocks * sizeof *a->scales);
    return a->values && a->codes && a->scales ? FQ_OK : fq_fail_memory(err);
}

fq_status fq_activations_make(fq_activations *out, const fq_activations_options *options,
                              const fq_activations_key *key, const fq_activations_place *place,
                              fq_error *err) {
    assert(options->tokens > 0 && key->cols > 0);
    const uint64_t captured = key->tensor ? key->tensor->shape[0] : UINT64_MAX;
    *out = (fq_activations){.tokens = captured < options->tokens ? captured : options->tokens,
                            .cols = key->cols};
    fq_status status = allocate(out, err);
    if (status)
        return status;
    if (key->tensor)
        status = read_captured(out, options->captured, key->tensor, err);
    else
        make_up(out, options);
    if (!status)
        status = quantize(out, key, place, err);
    if (!status && options->kind == FQ_ACTIVATIONS_OUTLIER)
        take_outliers_out(out);
    return status;
}

fq_gemm_activations fq_activations_view(const fq_activations *activations) {
    return (fq_gemm_activations){
        .tokens = activations->tokens,
        .cols = activations->cols,
        .values = activations->values,
        .codes = activations->codes,
        .scales = activations->scales,
    };
}

void fq_activations_free(fq_activations *activations) {
    free(activations->values);
    free(activations->codes);
    free(activations->scales);
    *activations = (fq_activations){.values = NULL};
}
