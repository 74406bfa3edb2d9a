// Any scales beside any FP8 weights, from the plan to the last element cast back: a bad scale is
// found before the run, and a good one gives what its bytes say, wherever it is read.
//
// Words of the first line: f16, f32, two (lanes).
//
// Under test: lib/pairing.c lib/grid.c lib/scale_check.c lib/scale_read.c lib/plan_dequantize.c
#include "kernels/cpu/backend.h"
#include "lib/fp8.h"
#include "lib/pairing.h"
#include "lib/run.h"
#include "lib/scale_check.h"
#include "lib/stats.h"

#include "fuzz.h"
#include "model_checkpoint.h"
#include "tests/memory_sink.h"

#include <math.h>

// More than the elements of a band, so that there can be two.
enum { MAX_SHARD_NBYTES = 300 * 1024 };

// ---- What the bytes say, element by element

static const uint8_t *bytes_of(const fq_checkpoint *checkpoint, const fq_tensor *tensor) {
    const fq_shard *shard = &checkpoint->shards[tensor->shard];
    const memory_source *source = (const memory_source *)shard->source;
    return (const uint8_t *)source->bytes + shard->data_start + tensor->offset;
}

// The grid of a step's matrix.
typedef struct grid {
    const fq_step *step;
    const uint8_t *bytes; // of the scale tensor
    uint64_t rows, cols;  // blocks
} grid;

static grid grid_of(const fq_checkpoint *checkpoint, const fq_step *step) {
    return (grid){
        .step = step,
        .bytes = bytes_of(checkpoint, step->source_scale),
        .rows = fq_ceil_div(step->source_matrix.rows, step->block.rows),
        .cols = fq_ceil_div(step->source_matrix.cols, step->block.cols),
    };
}

// The exponent of a packed scale as row n of the weight has it.
static uint8_t packed_exponent(const grid *grid, uint64_t n, uint64_t col) {
    const uint64_t stride = fq_packed_stride(grid->step->source_matrix.rows);
    return grid->bytes[(col / 4 * stride + n) * 4 + col % 4];
}

UNTRACED static float scale_at(const grid *grid, uint64_t row, uint64_t col) {
    const uint64_t index = (grid->step->matrix * grid->rows + row) * grid->cols + col;
    uint16_t half;
    float single;
    switch (grid->step->source_scale->dtype) {
    case FQ_F32:
        memcpy(&single, grid->bytes + 4 * index, 4);
        return single;
    case FQ_BF16:
        memcpy(&half, grid->bytes + 2 * index, 2);
        return fq_f32_of_bf16(half);
    case FQ_F16:
        memcpy(&half, grid->bytes + 2 * index, 2);
        return fq_f32_of_f16(half);
    case FQ_I32:
        return fq_f32_of_e8m0(packed_exponent(grid, row * grid->step->block.rows, col));
    default:
        return fq_f32_of_e8m0(grid->bytes[index]);
    }
}

static bool rows_agree(const grid *grid, uint64_t row, uint64_t col) {
    const uint64_t first = row * grid->step->block.rows;
    for (uint64_t n = first; n < first + grid->step->block.rows; n++) {
        if (n < grid->step->source_matrix.rows &&
            packed_exponent(grid, n, col) != packed_exponent(grid, first, col))
            return false;
    }
    return true;
}

static bool grid_is_sound(const grid *grid) {
    for (uint64_t row = 0; row < grid->rows; row++) {
        for (uint64_t col = 0; col < grid->cols; col++) {
            const float scale = scale_at(grid, row, col);
            if (!isfinite(scale) || signbit(scale))
                return false;
            if (grid->step->source_scale->dtype == FQ_I32 && !rows_agree(grid, row, col))
                return false;
        }
    }
    return true;
}

// True if some block that is not all zeros has a scale of zero.
UNTRACED static bool loses_a_block(const fq_checkpoint *checkpoint, const grid *grid) {
    const fq_matrix *matrix = &grid->step->source_matrix;
    const fq_block block = grid->step->block;
    const uint8_t *codes = bytes_of(checkpoint, grid->step->source) + matrix->element0;
    for (uint64_t i = 0; i < matrix->rows * matrix->cols; i++) {
        const uint64_t row = i / matrix->cols, col = i % matrix->cols;
        if ((codes[i] & 0x7F) && scale_at(grid, row / block.rows, col / block.cols) == 0.0f)
            return true;
    }
    return false;
}

UNTRACED static uint32_t expected_bits(uint8_t code, float scale, fq_dtype dtype) {
    const float value = fq_f32_of_e4m3(code) * scale;
    bool saturated = false;
    if ((code & 0x7F) == FQ_E4M3_NAN_CODE)
        return (uint32_t)(code & 0x80) << (dtype == FQ_F32 ? 24 : 8) |
               (dtype == FQ_F32    ? 0x7FC00000u
                : dtype == FQ_BF16 ? 0x7FC0u
                                   : 0x7E00u);
    if (dtype == FQ_BF16)
        return fq_bf16_of_f32_sat(value, &saturated);
    if (dtype == FQ_F16)
        return fq_f16_of_f32_sat(value, &saturated);
    return isinf(value) ? fq_bits_of_f32(copysignf(0x1.fffffep127f, value)) : fq_bits_of_f32(value);
}

UNTRACED static void check_elements(const fq_checkpoint *checkpoint, const grid *grid,
                                    const uint8_t *data) {
    const fq_step *step = grid->step;
    const fq_matrix *matrix = &step->source_matrix;
    const uint8_t *codes = bytes_of(checkpoint, step->source) + matrix->element0;
    const size_t size = fq_dtype_size(step->target->dtype);
    const uint8_t *at = data + step->target->offset + step->target_element0 * size;
    for (uint64_t i = 0; i < matrix->rows * matrix->cols; i++, at += size) {
        const uint64_t row = i / matrix->cols, col = i % matrix->cols;
        const float scale = scale_at(grid, row / step->block.rows, col / step->block.cols);
        uint32_t bits = 0;
        memcpy(&bits, at, size);
        DEMAND(bits == expected_bits(codes[i], scale, step->target->dtype));
    }
}

// ---- What the library makes of them

// One row of blocks at a time, the least scratch memory.
static void check_read(const fq_checkpoint *checkpoint, const grid *grid) {
    const fq_step *step = grid->step;
    _Alignas(16) unsigned char scratch[FQ_SCALE_MIN_SCRATCH];
    float *scales = malloc(grid->cols * sizeof *scales);
    fq_error err = {0};
    DEMAND(scales);
    for (uint64_t row = 0; row < grid->rows; row++) {
        const uint64_t row0 = row * step->block.rows, left = step->source_matrix.rows - row0;
        const fq_scale_window window = {
            .matrix = step->matrix,
            .weight_rows = step->source_matrix.rows,
            .weight_cols = step->source_matrix.cols,
            .block = step->block,
            .row0 = row0,
            .rows = left < step->block.rows ? left : step->block.rows,
            .cols = step->source_matrix.cols,
        };
        DEMAND(fq_scale_read(scales, checkpoint, step->source_scale, step->scale_storage, &window,
                             scratch, sizeof scratch, &err) == FQ_OK);
        for (uint64_t col = 0; col < grid->cols; col++)
            DEMAND(scales[col] == scale_at(grid, row, col));
    }
    free(scales);
}

static void check_stats(const model_checkpoint *memory, bool all_sound) {
    fq_pairing pairing;
    fq_arena arena = {0};
    fq_messages faults = {0};
    fq_error err = {0};
    bool all_read = true;
    DEMAND(fq_pair_scales(&pairing, &arena, &memory->checkpoint, &memory->model.quant, &faults,
                          &err) == FQ_OK);
    for (size_t i = 0; i < pairing.n; i++) {
        fq_scale_stats stats;
        const fq_status status =
            fq_stats_read_scales(&stats, &memory->checkpoint, &pairing.pairs[i], &err);
        DEMAND(status == FQ_OK || status == FQ_BAD_INPUT);
        DEMAND(status || (stats.min >= 0 && stats.min <= stats.max && isfinite(stats.max)));
        all_read = all_read && status == FQ_OK;
    }
    DEMAND(all_read == all_sound);
    fq_messages_free(&faults);
    fq_arena_free(&arena);
}

// The plan's run into memory: refused for what is unsound or lost, else every byte as expected.
static void check_run(const fq_plan *plan, uint32_t n_lanes, bool is_refused) {
    const fq_device_options device_options = {.n_lanes = n_lanes,
                                              .max_elements = FQ_MIN_BAND_ELEMENTS,
                                              .max_blocks =
                                                  fq_band_max_blocks(FQ_MIN_BAND_ELEMENTS)};
    fq_run_options options = {
        .backend = &fq_cpu_backend, .n_lanes = n_lanes, .band_elements = FQ_MIN_BAND_ELEMENTS};
    fq_run_result result = {0};
    fq_error err = {0};
    memory_sink sink;
    memory_sink_init(&sink, -1);
    DEMAND(options.backend->open(&options.device, &device_options, &err) == FQ_OK);
    const fq_status status = fq_run(&result, plan, &sink.sink, &options, &err);
    DEMAND(status == (is_refused ? FQ_BAD_INPUT : FQ_OK));
    for (size_t s = 0; s < plan->n_shards && !is_refused; s++) {
        const fq_plan_shard *shard = &plan->shards[s];
        const fq_sink_file *file = memory_sink_find(&sink, shard->layout.name);
        DEMAND(file && memory_sink_is_complete(file));
        for (size_t i = 0; i < shard->n_steps; i++) {
            const fq_step *step = &shard->steps[i];
            if (step->action == FQ_DEQUANTIZE) {
                const grid grid = grid_of(plan->checkpoint, step);
                check_elements(plan->checkpoint, &grid, file->bytes);
            } else {
                DEMAND(memcmp(file->bytes + step->target->offset,
                              bytes_of(plan->checkpoint, step->source),
                              (size_t)step->source->nbytes) == 0);
            }
        }
    }
    fq_run_result_free(&result);
    options.backend->close(options.device);
    memory_sink_finish(&sink);
}

static void check_plan(const model_checkpoint *memory, const fq_plan *plan, uint32_t n_lanes) {
    const fq_checkpoint *checkpoint = &memory->checkpoint;
    fq_messages faults = {0};
    fq_error err = {0};
    bool all_sound = true, any_lost = false;
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            if (step->action != FQ_DEQUANTIZE)
                continue;
            const grid grid = grid_of(checkpoint, step);
            const bool is_sound = grid_is_sound(&grid);
            all_sound = all_sound && is_sound;
            any_lost = any_lost || loses_a_block(checkpoint, &grid);
            if (is_sound)
                check_read(checkpoint, &grid);
        }
    }
    DEMAND(fq_scale_check(plan, n_lanes, NULL, &faults, &err) == FQ_OK);
    DEMAND((faults.n == 0) == all_sound);
    check_messages(&faults);
    fq_messages_free(&faults);
    check_stats(memory, all_sound);
    check_run(plan, n_lanes, !all_sound || any_lost);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    model_text model;
    model_checkpoint memory;
    model_text_read(&model, data, size);
    if (model_checkpoint_make(&memory, &model, MAX_SHARD_NBYTES, true)) {
        const fq_dequantize_options options = {.dtype = model_says(&model, "f16")   ? FQ_F16
                                                        : model_says(&model, "f32") ? FQ_F32
                                                                                    : FQ_BF16};
        fq_plan plan = {0};
        fq_messages faults = {0}, warnings = {0};
        fq_error err = {0};
        DEMAND(fq_plan_dequantize(&plan, &memory.checkpoint, &memory.model, &options, &faults,
                                  &warnings, &err) == FQ_OK);
        check_messages(&faults);
        check_messages(&warnings);
        if (faults.n == 0)
            check_plan(&memory, &plan, model_says(&model, "two") ? 2 : 1);
        fq_messages_free(&faults);
        fq_messages_free(&warnings);
        fq_plan_free(&plan);
    }
    model_checkpoint_free(&memory);
    fq_arena_free(&model.arena);
    return 0;
}
