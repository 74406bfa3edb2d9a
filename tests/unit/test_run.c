// The run against plain loops: any number of lanes and any band size give the bytes that fp8.h
// defines, every byte is written once, and any failure leaves no open shard.
#include "kernels/cpu/backend.h"
#include "lib/fp8.h"
#include "lib/run.h"
#include "lib/scale_check.h"
#include "tests/check.h"
#include "tests/memory_checkpoint.h"
#include "tests/memory_sink.h"

#include <math.h>

static uint64_t random_state = 1;

static uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static void fill_bf16(void *to, uint64_t n) {
    uint16_t *bits = to;
    for (uint64_t i = 0; i < n; i++)
        bits[i] = (uint16_t)((random_u32() & 0x8000u) | ((110 + random_u32() % 16) << 7) |
                             (random_u32() & 0x7F));
}

static const uint64_t gate_up_shape[] = {3, 512, 256};   // [E, 2I, H]
static const uint64_t down_shape[] = {3, 256, 256};      // [E, H, I]
static const uint64_t turned_gate_up[] = {2, 640, 2048}; // bands of several pieces
static const uint64_t turned_down[] = {2, 1024, 640};

// Three shards: ragged and wide weights, fused experts of both layouts, copies, an empty tensor.
static void make_model(memory_checkpoint *memory) {
    fill_bf16(memory_checkpoint_add_2d(memory, 0, "l.0.mlp.up.weight", FQ_BF16, 700, 1100),
              700 * 1100);
    fill_bf16(memory_checkpoint_add_2d(memory, 0, "l.0.norm.weight", FQ_BF16, 1, 77), 77);
    fill_bf16(memory_checkpoint_add_2d(memory, 0, "l.0.mlp.down.weight", FQ_BF16, 129, 9000),
              129 * 9000);
    memory_checkpoint_add_2d(memory, 1, "empty", FQ_F32, 0, 5);
    fill_bf16(
        memory_checkpoint_add(memory, 1, "l.1.experts.gate_up_proj", FQ_BF16, 3, gate_up_shape),
        3 * 512 * 256);
    fill_bf16(memory_checkpoint_add(memory, 2, "l.1.experts.down_proj", FQ_BF16, 3, down_shape),
              3 * 256 * 256);
    fill_bf16(
        memory_checkpoint_add(memory, 2, "l.2.experts.gate_up_proj", FQ_BF16, 3, turned_gate_up),
        2 * 640 * 2048);
    fill_bf16(memory_checkpoint_add(memory, 2, "l.2.experts.down_proj", FQ_BF16, 3, turned_down),
              2 * 1024 * 640);
    memory_checkpoint_finish(memory, 3);
}

static fq_status plan_model(fq_plan *plan, const memory_checkpoint *memory,
                            fq_scale_format format) {
    const fq_quantize_options options = {.scale_format = format,
                                         .amax_floor = FQ_DEFAULT_AMAX_FLOOR,
                                         .arch = "sm90",
                                         .version = "test"};
    const fq_model model = {.model_type = "", .quant = {.method = ""}};
    fq_messages faults = {0}, warnings = {0};
    fq_error err = {0};
    const fq_status status =
        fq_plan_quantize(plan, &memory->checkpoint, &model, &options, &faults, &warnings, &err);
    CHECK_U64(faults.n, 0);
    fq_messages_free(&faults);
    fq_messages_free(&warnings);
    return status;
}

typedef struct setting {
    uint32_t n_lanes;
    size_t band_elements;
    bool keep_nonfinite;
    const int *cancelled;
} run_setting;

// What the run told of committed shards, since run_plan was last called.
typedef struct heard_shard {
    size_t n; // times
    fq_sink_digest digest;
    const fq_step_counts *counts;
} heard_shard;

static heard_shard heard[MEMORY_MAX_SHARDS];

static void hear(void *context, size_t shard, const fq_sink_digest *digest,
                 const fq_step_counts *counts) {
    heard_shard *item = &((heard_shard *)context)[shard];
    item->n++;
    item->digest = *digest;
    item->counts = counts;
}

static fq_status run_plan(fq_run_result *result, const fq_plan *plan, memory_sink *sink,
                          const run_setting *setting, fq_error *err) {
    const fq_backend *backend = &fq_cpu_backend;
    fq_device *device;
    const fq_device_options device_options = {
        .n_lanes = setting->n_lanes,
        .max_elements = setting->band_elements,
        .max_blocks = fq_band_max_blocks(setting->band_elements),
    };
    if (backend->open(&device, &device_options, err) != FQ_OK)
        return err->status;
    const fq_run_options options = {
        .backend = backend,
        .device = device,
        .n_lanes = setting->n_lanes,
        .band_elements = setting->band_elements,
        .keep_nonfinite = setting->keep_nonfinite,
        .cancelled = setting->cancelled,
        .committed = hear,
        .committed_context = heard,
    };
    memset(heard, 0, sizeof heard);
    const fq_status status = fq_run(result, plan, &sink->sink, &options, err);
    backend->close(device);
    return status;
}

static float source_element(const fq_step *step, const memory_checkpoint *memory, uint64_t r,
                            uint64_t c) {
    const fq_matrix *m = &step->source_matrix;
    const uint64_t element = m->element0 + (m->transposed ? c * m->stride + r : r * m->cols + c);
    uint16_t bits;
    memcpy(&bits, memory->bytes[step->source->shard] + step->source->offset + 2 * element, 2);
    return fq_f32_of_bf16(bits);
}

// One block of a quantize step, recomputed by the scalar definition; the number of wrong codes.
static uint64_t wrong_codes(const fq_step *step, const memory_checkpoint *memory,
                            const unsigned char *data, uint64_t row0, uint64_t col0, float scale) {
    const fq_matrix *m = &step->source_matrix;
    uint64_t n_wrong = 0;
    for (uint64_t r = row0; r < row0 + 128 && r < m->rows; r++) {
        for (uint64_t c = col0; c < col0 + 128 && c < m->cols; c++)
            n_wrong += data[step->target->offset + r * m->cols + c] !=
                       fq_e4m3_of_f32_sat(source_element(step, memory, r, c) / scale);
    }
    return n_wrong;
}

static float block_scale(const fq_step *step, const memory_checkpoint *memory, uint64_t row0,
                         uint64_t col0) {
    const fq_matrix *m = &step->source_matrix;
    float amax = 0;
    for (uint64_t r = row0; r < row0 + 128 && r < m->rows; r++) {
        for (uint64_t c = col0; c < col0 + 128 && c < m->cols; c++)
            amax = fmaxf(amax, fabsf(source_element(step, memory, r, c)));
    }
    return fq_scale_of_amax(amax, FQ_DEFAULT_AMAX_FLOOR, false);
}

static void check_step(const fq_step *step, const memory_checkpoint *memory,
                       const unsigned char *data) {
    if (step->action == FQ_COPY) {
        CHECK(memcmp(data + step->target->offset,
                     memory->bytes[step->source->shard] + step->source->offset,
                     step->source->nbytes) == 0);
        return;
    }
    const fq_matrix *m = &step->source_matrix;
    uint64_t n_wrong_scales = 0, n_wrong_codes = 0, block = 0;
    for (uint64_t r = 0; r < m->rows; r += 128) {
        for (uint64_t c = 0; c < m->cols; c += 128, block++) {
            const float scale = block_scale(step, memory, r, c);
            n_wrong_scales += memcmp(&scale, data + step->target_scale->offset + 4 * block, 4) != 0;
            n_wrong_codes += wrong_codes(step, memory, data, r, c, scale);
        }
    }
    CHECK_U64(n_wrong_scales, 0);
    CHECK_U64(n_wrong_codes, 0);
}

static void test_bytes_are_defined(void) {
    memory_checkpoint memory = {0};
    make_model(&memory);
    fq_plan plan = {0};
    CHECK(plan_model(&plan, &memory, FQ_SCALE_F32) == FQ_OK);
    fq_run_result result = {0};
    memory_sink sink;
    memory_sink_init(&sink, -1);
    fq_error err = {0};
    CHECK(run_plan(&result, &plan, &sink, &(run_setting){.n_lanes = 2, .band_elements = 1 << 18},
                   &err) == FQ_OK);
    uint64_t n_quantized = 0;
    for (size_t s = 0; s < plan.n_shards; s++) {
        const fq_sink_file *file = memory_sink_find(&sink, plan.shards[s].layout.name);
        if (!CHECK(file) || !CHECK(result.done[s]) || !CHECK(memory_sink_is_complete(file)))
            continue;
        for (size_t i = 0; i < plan.shards[s].n_steps; i++) {
            check_step(&plan.shards[s].steps[i], &memory, file->bytes);
            n_quantized += plan.shards[s].steps[i].action == FQ_QUANTIZE;
        }
    }
    CHECK_U64(n_quantized, 2 + 3 * 2 + 3 + 2 * 2 + 2);
    fq_run_result_free(&result);
    memory_sink_finish(&sink);
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
}

// Runs the model in every format with other lanes and bands, and compares with one lane.
static void test_same_bytes_for_any_cut(fq_scale_format format) {
    memory_checkpoint memory = {0};
    make_model(&memory);
    fq_plan plan = {0};
    CHECK(plan_model(&plan, &memory, format) == FQ_OK);
    memory_sink reference;
    static const run_setting settings[] = {{1, 1 << 22, false, NULL},
                                           {1, FQ_MIN_BAND_ELEMENTS, false, NULL},
                                           {3, 1 << 20, false, NULL},
                                           {8, FQ_MIN_BAND_ELEMENTS, false, NULL},
                                           {5, 300000, false, NULL}};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        fq_run_result result = {0};
        memory_sink sink;
        memory_sink *to = i == 0 ? &reference : &sink;
        memory_sink_init(to, -1);
        fq_error err = {0};
        CHECK(run_plan(&result, &plan, to, &settings[i], &err) == FQ_OK);
        for (size_t s = 0; s < plan.n_shards; s++) {
            const fq_sink_file *file = memory_sink_find(to, plan.shards[s].layout.name);
            const fq_sink_file *same = memory_sink_find(&reference, plan.shards[s].layout.name);
            if (CHECK(file && same) && CHECK(memory_sink_is_complete(file)))
                CHECK(memcmp(file->bytes, same->bytes, file->layout->data_nbytes) == 0);
        }
        fq_run_result_free(&result);
        if (i > 0)
            memory_sink_finish(to);
    }
    memory_sink_finish(&reference);
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
}

// A sink that fails at its k-th call, for every k until a run gets through.
static void test_sink_fails(uint32_t n_lanes) {
    memory_checkpoint memory = {0};
    make_model(&memory);
    fq_plan plan = {0};
    CHECK(plan_model(&plan, &memory, FQ_SCALE_PACKED) == FQ_OK);
    bool failed = true;
    long n_failures = 0;
    for (long k = 0; failed; k += 1 + k / 20) {
        fq_run_result result = {0};
        memory_sink sink;
        memory_sink_init(&sink, k);
        fq_error err = {0};
        failed = run_plan(&result, &plan, &sink,
                          &(run_setting){.n_lanes = n_lanes, .band_elements = FQ_MIN_BAND_ELEMENTS},
                          &err) != FQ_OK;
        n_failures += failed;
        if (failed && !CHECK(strstr(err.text, "no space left")))
            failed = false;
        for (size_t i = 0; i < sink.n_files; i++)
            CHECK(!sink.files[i].open);
        fq_run_result_free(&result);
        memory_sink_finish(&sink);
    }
    CHECK(n_failures > 20);
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
}

// Two NaNs, far apart: the first in the plan's order is reported, whoever meets one first. With
// keep_nonfinite both tensors are listed, their shard is not committed, and the others are.
static void test_nonfinite(uint32_t n_lanes) {
    memory_checkpoint memory = {0};
    make_model(&memory);
    uint16_t *experts = (uint16_t *)(void *)memory.bytes[2];
    experts[(1 * 256 + 200) * 256 + 3] = 0x7F80; // of l.1.experts.down_proj [3, 256, 256]
    experts[3 * 256 * 256 + 5] = 0xFFC0;         // of l.2.experts.gate_up_proj
    fq_plan plan = {0};
    CHECK(plan_model(&plan, &memory, FQ_SCALE_F32) == FQ_OK);
    for (int keep = 0; keep < 2; keep++) {
        fq_run_result result = {0};
        memory_sink sink;
        memory_sink_init(&sink, -1);
        fq_error err = {0};
        const run_setting setting = {n_lanes, FQ_MIN_BAND_ELEMENTS, keep, NULL};
        const fq_status status = run_plan(&result, &plan, &sink, &setting, &err);
        CHECK(status == (keep ? FQ_OK : FQ_BAD_INPUT));
        if (!keep)
            CHECK_HAS(err.text, "c.safetensors: l.1.experts.down_proj: expert 1, row 200, column 3 "
                                "is infinite");
        if (keep && CHECK(result.n_nonfinite == 2)) {
            CHECK_STR(result.nonfinite[0]->name, "l.1.experts.down_proj");
            CHECK_STR(result.nonfinite[1]->name, "l.2.experts.gate_up_proj");
            CHECK(result.done[0] && result.done[1] && !result.done[2]);
            CHECK(heard[0].n == 1 && heard[1].n == 1 && heard[2].n == 0);
            const fq_sink_file *b = memory_sink_find(&sink, "b.safetensors");
            CHECK_U64(heard[1].digest.nbytes, plan.shards[1].layout.data_nbytes);
            CHECK_U64(heard[1].digest.crc32, b - sink.files);
            CHECK(heard[1].counts == result.counts[1]);
        }
        CHECK(!memory_sink_find(&sink, "c.safetensors"));
        fq_run_result_free(&result);
        memory_sink_finish(&sink);
    }
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
}

// In a transposed matrix, which is looked at piece by piece: the first one is that of the first
// row, which is in the last piece. Its place is told as it is stored.
static void test_nonfinite_in_pieces(void) {
    memory_checkpoint memory = {0};
    make_model(&memory);
    uint16_t *gate_up = (uint16_t *)(void *)memory.bytes[2] + 3 * 256 * 256;
    gate_up[5 * 2048 + 9] = 0x7FC0;
    gate_up[600 * 2048 + 3] = 0xFF80;
    fq_plan plan = {0};
    CHECK(plan_model(&plan, &memory, FQ_SCALE_F32) == FQ_OK);
    fq_run_result result = {0};
    memory_sink sink;
    memory_sink_init(&sink, -1);
    fq_error err = {0};
    const run_setting setting = {2, FQ_MIN_BAND_ELEMENTS, false, NULL};
    CHECK(run_plan(&result, &plan, &sink, &setting, &err) == FQ_BAD_INPUT);
    CHECK_HAS(err.text, "l.2.experts.gate_up_proj: expert 0, row 5, column 9 is NaN");
    fq_run_result_free(&result);
    memory_sink_finish(&sink);
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
}

// More shards and lanes than are written side by side: every shard is written whole, and of two
// faults that of the first shard is reported.
static void test_many_shards(uint32_t n_lanes) {
    enum { ROWS = 512, COLS = 512 };
    memory_checkpoint memory = {0};
    for (uint32_t s = 0; s < MEMORY_MAX_SHARDS; s++) {
        const char *name = fq_arena_printf(&memory.arena, "l.%u.mlp.up.weight", (unsigned)s);
        fill_bf16(memory_checkpoint_add_2d(&memory, s, name, FQ_BF16, ROWS, COLS), ROWS * COLS);
    }
    memory_checkpoint_finish(&memory, MEMORY_MAX_SHARDS);
    fq_plan plan = {0};
    CHECK(plan_model(&plan, &memory, FQ_SCALE_F32) == FQ_OK);
    const run_setting setting = {n_lanes, FQ_MIN_BAND_ELEMENTS, false, NULL};
    const uint16_t infinity = 0x7F80;
    for (int is_bad = 0; is_bad < 2; is_bad++) {
        for (int s = 7; s < MEMORY_MAX_SHARDS && is_bad; s += 10)
            memcpy(memory.bytes[s], &infinity, sizeof infinity);
        fq_run_result result = {0};
        memory_sink sink;
        memory_sink_init(&sink, -1);
        fq_error err = {0};
        const fq_status status = run_plan(&result, &plan, &sink, &setting, &err);
        CHECK(status == (is_bad ? FQ_BAD_INPUT : FQ_OK));
        CHECK(!is_bad || strstr(err.text, "l.7.mlp.up.weight"));
        for (size_t s = 0; s < plan.n_shards && (!is_bad || s < 7); s++) {
            const fq_sink_file *file = memory_sink_find(&sink, plan.shards[s].layout.name);
            if (!CHECK(file && memory_sink_is_complete(file) && heard[s].n == 1))
                continue;
            for (size_t i = 0; i < plan.shards[s].n_steps; i++)
                check_step(&plan.shards[s].steps[i], &memory, file->bytes);
        }
        fq_run_result_free(&result);
        memory_sink_finish(&sink);
    }
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
}

static void test_cancelled(void) {
    memory_checkpoint memory = {0};
    make_model(&memory);
    fq_plan plan = {0};
    CHECK(plan_model(&plan, &memory, FQ_SCALE_F32) == FQ_OK);
    fq_run_result result = {0};
    memory_sink sink;
    memory_sink_init(&sink, -1);
    fq_error err = {0};
    const int cancelled = 1;
    CHECK(run_plan(&result, &plan, &sink,
                   &(run_setting){2, FQ_MIN_BAND_ELEMENTS, false, &cancelled},
                   &err) == FQ_CANCELLED);
    CHECK_U64(sink.n_files, 0);
    fq_run_result_free(&result);
    memory_sink_finish(&sink);
    fq_plan_free(&plan);
    memory_checkpoint_free(&memory);
}

int main(void) {
    test_bytes_are_defined();
    for (int format = 0; format < FQ_SCALE_FORMAT_COUNT; format++)
        test_same_bytes_for_any_cut((fq_scale_format)format);
    for (uint32_t n_lanes = 1; n_lanes <= 4; n_lanes += 3) {
        test_sink_fails(n_lanes);
        test_nonfinite(n_lanes);
    }
    test_nonfinite_in_pieces();
    for (uint32_t n_lanes = 1; n_lanes <= 25; n_lanes += 6)
        test_many_shards(n_lanes);
    test_cancelled();
    return check_result();
}
