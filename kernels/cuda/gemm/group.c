// The places of strips, and their launch: see group.h.
#include "kernels/cuda/gemm/group.h"

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_exact.h"
#include "lib/scale.h"

#include <cuda_runtime_api.h>

#include <assert.h>
#include <stdlib.h>

enum {
    SHARE = 4,                // of the free memory, for groups; and of that, for one
    SUMS_NBYTES = 1 << 20,    // of host memory, through which a launch hands its sums over
    MAX_ROWS = INT32_MAX,     // of D and of B in one product: TMA's coordinates
    ROUNDING_NBYTES = 8 << 8, // that rounding up the sizes of 8 arrays takes at most
};

typedef enum place_state { FREE, TAKEN, ENDED } place_state;

typedef struct place {
    place_state state;
    bool has_reference;
    fq_cuda_strip *strip; // that has taken it
    uint64_t rows;
    void *taker;
} place;

// On one GPU. Arrays of all places lie in its memory, those of one place together.
struct fq_cuda_places {
    fq_gemm_group *group;
    fq_cuda_gpu *gpu;
    const unsigned char *x; // the activations
    place *all;             // [n]
    uint32_t n;
    bool is_at_work;      // on a launch
    uint32_t *group_rows; // [n], of the launch
    fq_gemm_sums *sums;   // [stage_places, rows] in host memory
    uint32_t stage_places;

    struct CUstream_st *stream; // of launches
    unsigned char *memory;      // holds what follows
    size_t nbytes;
    uint8_t *codes;            // [n, rows, codes_stride]
    float *scales;             // [n, ceil(rows/128), ceil(cols/128)]
    uint32_t *packed;          // [n, ceil(cols/512), fq_packed_stride(rows)]
    double *exact, *reference; // [n, tokens, rows]
    float *product;            // [n, tokens, rows]
    fq_gemm_sums *gpu_sums;    // [n, rows]
    uint32_t *gpu_group_rows;  // [n]
};

struct fq_gemm_group {
    fq_gemm_group_options options;
    uint64_t n_col_blocks, n_words; // of a row, and of a row's blocks of 512
    pthread_mutex_t lock;           // of all places, and held while they are launched
    uint32_t n_gpus;
    fq_cuda_places gpus[]; // [n_gpus]
};

// ---- Memory

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

fq_status fq_cuda_groups_find_room(fq_cuda_gpu *gpu, fq_error *err) {
    size_t free_nbytes = 0, all = 0;
    const unsigned code = cudaMemGetInfo(&free_nbytes, &all);
    gpu->groups_max_nbytes = free_nbytes / SHARE;
    return fq_gpu_check(gpu->ordinal, "cudaMemGetInfo", code, err);
}

// Elements of a place's arrays.
typedef struct place_size {
    uint64_t codes, scales, packed, results, sums;
} place_size;

static place_size size_of_place(const fq_gemm_group *group) {
    const fq_gemm_group_options *o = &group->options;
    const uint64_t n_words = o->has_words ? group->n_words : 0;
    return (place_size){
        .codes = o->rows * o->activations->codes_stride,
        .scales = fq_ceil_div(o->rows, FQ_BLOCK_SIZE) * group->n_col_blocks,
        .packed = n_words * fq_packed_stride(o->rows),
        .results = o->rows * o->activations->tokens,
        .sums = o->rows,
    };
}

// As many places as there is room for, up to all strips; 0 where a lane might find none that is
// free or has ended.
static uint32_t count_places(const fq_gemm_group *group, const fq_cuda_gpu *gpu) {
    const place_size of = size_of_place(group);
    const uint64_t tokens = group->options.activations->tokens, rows = group->options.rows;
    const size_t free_nbytes = gpu->groups_max_nbytes - gpu->groups_nbytes;
    const size_t room = least(gpu->groups_max_nbytes / SHARE, free_nbytes);
    const size_t nbytes = of.codes + of.scales * sizeof(float) + of.packed * sizeof(uint32_t) +
                          of.results * (2 * sizeof(double) + sizeof(float)) +
                          of.sums * sizeof(fq_gemm_sums) + sizeof(uint32_t);
    const uint64_t n_strips = group->options.n_strips;
    uint64_t n = room < ROUNDING_NBYTES ? 0 : (room - ROUNDING_NBYTES) / nbytes;
    n = least(least(n, n_strips), MAX_ROWS / (rows > tokens ? rows : tokens));
    return n < n_strips && n <= gpu->n_lanes ? 0 : (uint32_t)n;
}

static fq_status make_memory(fq_cuda_places *places, fq_error *err) {
    const place_size of = size_of_place(places->group);
    const uint32_t gpu = places->gpu->ordinal;
    const uint64_t n = places->n;
    size_t codes, scales, packed, exact, reference, product, sums, group_rows, all = 0;
    if (!fq_cuda_place(&codes, &all, n * of.codes, sizeof *places->codes) ||
        !fq_cuda_place(&scales, &all, n * of.scales, sizeof *places->scales) ||
        !fq_cuda_place(&packed, &all, n * of.packed, sizeof *places->packed) ||
        !fq_cuda_place(&exact, &all, n * of.results, sizeof *places->exact) ||
        !fq_cuda_place(&reference, &all, n * of.results, sizeof *places->reference) ||
        !fq_cuda_place(&product, &all, n * of.results, sizeof *places->product) ||
        !fq_cuda_place(&sums, &all, n * of.sums, sizeof *places->gpu_sums) ||
        !fq_cuda_place(&group_rows, &all, n, sizeof *places->gpu_group_rows))
        return fq_fail_memory(err);
    const unsigned code = cudaMalloc((void **)&places->memory, all);
    if (code == cudaErrorMemoryAllocation) { // others took it meanwhile
        places->memory = NULL;
        (void)cudaGetLastError(); // or a later call would tell of it
        return FQ_OK;
    }
    const fq_status status = fq_gpu_check(gpu, "cudaMalloc", code, err);
    if (status)
        return status;
    places->nbytes = all;
    places->gpu->groups_nbytes += all;
    places->codes = places->memory + codes;
    places->scales = (void *)(places->memory + scales);
    places->packed = (void *)(places->memory + packed);
    places->exact = (void *)(places->memory + exact);
    places->reference = (void *)(places->memory + reference);
    places->product = (void *)(places->memory + product);
    places->gpu_sums = (void *)(places->memory + sums);
    places->gpu_group_rows = (void *)(places->memory + group_rows);
    return FQ_OK;
}

// ---- Opening and closing

// Places on one GPU; memory stays NULL where there is too little.
static fq_status open_places(fq_cuda_places *places, fq_error *err) {
    const fq_gemm_group_options *options = &places->group->options;
    const size_t sums_nbytes = options->rows * sizeof *places->sums;
    places->n = count_places(places->group, places->gpu);
    if (places->n == 0)
        return FQ_OK;
    places->stage_places = (uint32_t)least(places->n, SUMS_NBYTES / sums_nbytes);
    places->stage_places += places->stage_places == 0;
    places->all = calloc(places->n, sizeof *places->all);
    places->group_rows = calloc(places->n, sizeof *places->group_rows);
    places->sums = malloc(places->stage_places * sums_nbytes);
    if (!places->all || !places->group_rows || !places->sums)
        return fq_fail_memory(err);
    const uint32_t gpu = places->gpu->ordinal;
    fq_status status = fq_gpu_use(gpu, err);
    if (!status)
        status =
            fq_gpu_check(gpu, "cudaStreamCreate",
                         cudaStreamCreateWithFlags(&places->stream, cudaStreamNonBlocking), err);
    return status ? status : make_memory(places, err);
}

fq_status fq_cuda_group_open(fq_gemm_group **out, fq_device *device,
                             const fq_gemm_group_options *options, fq_error *err) {
    const uint64_t cols = options->activations->cols;
    fq_gemm_group *group = calloc(1, sizeof *group + device->n_gpus * sizeof group->gpus[0]);
    assert(options->rows > 0 && options->n_strips > 0);
    *out = NULL;
    if (!group)
        return fq_fail_memory(err);
    group->options = *options;
    group->n_col_blocks = fq_ceil_div(cols, FQ_BLOCK_SIZE);
    group->n_words = fq_ceil_div(cols, FQ_PACKED_COLS);
    pthread_mutex_init(&group->lock, NULL);
    fq_status status = FQ_OK;
    bool has_room = true;
    for (; group->n_gpus < device->n_gpus && !status && has_room; group->n_gpus++) {
        fq_cuda_places *places = &group->gpus[group->n_gpus];
        places->group = group;
        places->gpu = &device->gpus[group->n_gpus];
        places->x = options->activations->memory[group->n_gpus];
        status = open_places(places, err);
        has_room = places->memory != NULL;
    }
    if (status || !has_room)
        fq_cuda_group_close(device, group);
    else
        *out = group;
    return status;
}

// Errors do not matter any more: what cannot be freed goes with the process.
static void close_places(fq_cuda_places *places) {
    for (uint32_t i = 0; places->all && i < places->n; i++) {
        if (places->all[i].state == TAKEN) // when an error came
            places->all[i].strip->places = NULL;
    }
    if (places->stream)
        (void)cudaStreamDestroy(places->stream);
    (void)cudaFree(places->memory);
    places->gpu->groups_nbytes -= places->nbytes;
    free(places->all);
    free(places->group_rows);
    free(places->sums);
}

void fq_cuda_group_close(fq_device *device, fq_gemm_group *group) {
    (void)device;
    for (uint32_t i = 0; group && i < group->n_gpus; i++)
        close_places(&group->gpus[i]);
    if (group)
        pthread_mutex_destroy(&group->lock);
    (void)cudaGetLastError(); // or a later call would tell of it
    free(group);
}

// ---- Launching

// The rows of each place that are to be multiplied. False if there are none.
static bool choose_places(fq_cuda_places *places) {
    bool any = false;
    for (uint32_t i = 0; i < places->n; i++) {
        const bool has_ended = places->all[i].state == ENDED;
        const uint64_t tokens = places->group->options.activations->tokens;
        places->group_rows[i] = has_ended ? (uint32_t)tokens : 0;
        any |= has_ended;
    }
    return any;
}

static fq_cuda_gemm product_of(const fq_cuda_places *places) {
    const fq_gemm_group_options *options = &places->group->options;
    const fq_gemm_operand *x = options->activations;
    return (fq_cuda_gemm){
        .m = places->n * x->tokens,
        .n = options->rows,
        .k = x->cols,
        .a = places->x,
        .b = places->codes,
        .d = places->product,
        .a_stride = x->codes_stride,
        .b_stride = x->codes_stride,
        .d_stride = options->rows,
        .d_is_f32 = true,
        .b_scales_packed = options->has_words,
        .a_scales = (const float *)(const void *)(places->x + x->scales_at),
        .a_scales_stride = x->scales_stride,
        .b_scales = options->has_words ? (const void *)places->packed : places->scales,
        .grouping = FQ_CUDA_GEMM_MASKED,
        .n_groups = places->n,
        .slot_rows = x->tokens,
        .a_is_shared = true,
        .group_rows = places->gpu_group_rows,
    };
}

// The GEMM of all places that have ended, and their sums.
static fq_status start_launch(const fq_cuda_places *places, fq_error *err) {
    const fq_cuda_gemm gemm = product_of(places);
    const uint32_t gpu = places->gpu->ordinal;
    const fq_cuda_products products = {
        .tokens = gemm.slot_rows,
        .rows = gemm.n,
        .n_strips = places->n,
        .group_rows = places->gpu_group_rows,
        .product = places->product,
        .exact = places->exact,
        .reference = places->reference,
    };
    fq_status status = fq_gpu_use(gpu, err);
    if (!status)
        status = fq_gpu_check(gpu, "cudaMemcpyAsync",
                              cudaMemcpyAsync(places->gpu_group_rows, places->group_rows,
                                              places->n * sizeof *places->group_rows,
                                              cudaMemcpyDefault, places->stream),
                              err);
    if (!status) {
        status = fq_cuda_gemm_enqueue(&gemm, FQ_CUDA_GEMM_AUTO, places->stream, err);
        if (status)
            (void)cudaGetLastError(); // or a later call would tell of it
    }
    if (!status && gemm.b_scales_packed)
        status = fq_gpu_check(gpu, "gemm", fq_cuda_product_mend(&gemm, places->stream), err);
    if (!status)
        status = fq_gpu_check(
            gpu, "gemm", fq_cuda_products_sum_up(&products, places->gpu_sums, places->stream), err);
    return status;
}

static void hand_over(const fq_cuda_places *places, place *p, fq_gemm_sums *sums) {
    for (uint64_t row = 0; row < p->rows && !p->has_reference; row++)
        sums[row].error2 = 0.0;
    places->group->options.take(p->taker, sums, p->rows);
    p->state = FREE;
}

// Waits for the launch, and hands over the sums of some places after the other.
static fq_status end_launch(fq_cuda_places *places, fq_error *err) {
    const uint64_t rows = places->group->options.rows;
    const uint32_t gpu = places->gpu->ordinal;
    fq_status status = fq_gpu_use(gpu, err);
    for (uint32_t first = 0, n = 0; first < places->n && !status; first += n) {
        n = (uint32_t)least(places->stage_places, places->n - first);
        status = fq_gpu_check(gpu, "cudaMemcpyAsync",
                              cudaMemcpyAsync(places->sums, places->gpu_sums + first * rows,
                                              n * rows * sizeof *places->sums, cudaMemcpyDefault,
                                              places->stream),
                              err);
        if (!status)
            status = fq_gpu_check(gpu, "cudaStreamSynchronize",
                                  cudaStreamSynchronize(places->stream), err);
        for (uint32_t i = 0; i < n && !status; i++) {
            if (places->group_rows[first + i] > 0)
                hand_over(places, &places->all[first + i], places->sums + i * rows);
        }
    }
    return status;
}

// Nothing of a launch that failed is under way any more, nor does a later call tell of it.
static void drain(const fq_cuda_places *places) {
    (void)cudaStreamSynchronize(places->stream);
    (void)cudaGetLastError();
}

// With the lock held. All GPUs are at work before one is waited for.
static fq_status launch(fq_cuda_places *gpus, uint32_t n_gpus, fq_error *err) {
    fq_status status = FQ_OK;
    for (uint32_t i = 0; i < n_gpus; i++) {
        gpus[i].is_at_work = !status && choose_places(&gpus[i]);
        if (gpus[i].is_at_work)
            status = start_launch(&gpus[i], err);
    }
    for (uint32_t i = 0; i < n_gpus; i++) {
        if (gpus[i].is_at_work && !status)
            status = end_launch(&gpus[i], err);
        if (gpus[i].is_at_work && status)
            drain(&gpus[i]);
    }
    return status;
}

fq_status fq_cuda_group_launch(fq_device *device, fq_gemm_group *group, fq_error *err) {
    (void)device;
    if (!group)
        return FQ_OK;
    pthread_mutex_lock(&group->lock);
    const fq_status status = launch(group->gpus, group->n_gpus, err);
    pthread_mutex_unlock(&group->lock);
    return status;
}

// ---- Places

// The first free place; n if there is none.
static uint32_t find_free(const fq_cuda_places *places) {
    uint32_t i = 0;
    while (i < places->n && places->all[i].state != FREE)
        i++;
    return i;
}

fq_status fq_cuda_places_enter(fq_cuda_strip *strip, const fq_gemm_strip *what, uint32_t lane,
                               fq_error *err) {
    fq_gemm_group *group = what->group;
    fq_cuda_places *places = &group->gpus[lane % group->n_gpus];
    const place_size of = size_of_place(group);
    assert(what->rows <= group->options.rows && what->activations == group->options.activations);
    fq_status status = FQ_OK;
    pthread_mutex_lock(&group->lock);
    uint32_t i = find_free(places);
    if (i == places->n) {
        status = launch(places, 1, err);
        i = find_free(places);
    }
    if (!status) {
        assert(i < places->n); // there are more than lanes
        places->all[i] =
            (place){.state = TAKEN, .strip = strip, .rows = what->rows, .taker = what->taker};
        strip->places = places;
        strip->place = i;
        strip->exact = places->exact + i * of.results;
        strip->reference = places->reference + i * of.results;
        strip->sums_stride = group->options.rows;
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

void fq_cuda_places_find_piece(fq_cuda_strip *strip, uint64_t col0) {
    const fq_cuda_places *places = strip->places;
    const fq_gemm_group *group = places->group;
    const place_size of = size_of_place(group);
    strip->codes = places->codes + strip->place * of.codes + col0;
    strip->codes_stride = group->options.activations->codes_stride;
    strip->scales = places->scales + strip->place * of.scales + col0 / FQ_BLOCK_SIZE;
    strip->scales_stride = group->n_col_blocks;
    strip->packed_stride = fq_packed_stride(group->options.rows);
    strip->packed =
        places->packed + strip->place * of.packed + col0 / FQ_PACKED_COLS * strip->packed_stride;
}

void fq_cuda_places_leave(fq_cuda_strip *strip, bool has_ended) {
    if (!strip->places)
        return;
    fq_gemm_group *group = strip->places->group;
    pthread_mutex_lock(&group->lock);
    place *p = &strip->places->all[strip->place];
    p->state = has_ended ? ENDED : FREE;
    p->has_reference = strip->has_reference;
    pthread_mutex_unlock(&group->lock);
    strip->places = NULL;
}
