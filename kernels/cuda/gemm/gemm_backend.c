// The GEMM of verify on GPUs: see lib/gemm.h. A piece goes over the bus as it is stored, and is
// multiplied three times: by the GEMM, and in FP64 with the codes and with the reference.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_exact.h"
#include "kernels/cuda/gemm/group.h"
#include "lib/scale.h"

#include <cuda_runtime_api.h>

#include <assert.h>
#include <stdlib.h>

enum { ROW_ALIGNMENT = 16 }; // bytes, of the rows that TMA loads

static uint64_t align_up(uint64_t n, uint64_t step) { return fq_ceil_div(n, step) * step; }

// ---- Activations

static void unload(fq_device *device, fq_gemm_operand *activations) {
    (void)device;
    for (uint32_t i = 0; activations && i < activations->n_gpus; i++)
        (void)cudaFree(activations->memory[i]);
    (void)cudaGetLastError(); // or a later call would tell of it
    free(activations);
}

// scales: as the GEMM wants them.
static fq_status load_onto(fq_gemm_operand *out, uint32_t i, uint32_t gpu, size_t nbytes,
                           const fq_gemm_activations *from, const float *scales, fq_error *err) {
    const uint64_t n_scales = fq_ceil_div(from->cols, FQ_BLOCK_SIZE) * out->scales_stride;
    fq_status status = fq_gpu_use(gpu, err);
    if (!status)
        status = fq_gpu_check(gpu, "cudaMalloc", cudaMalloc((void **)&out->memory[i], nbytes), err);
    if (status)
        return status;
    unsigned char *to = out->memory[i];
    unsigned code = cudaMemcpy2D(to, out->codes_stride, from->codes, from->cols, from->cols,
                                 from->tokens, cudaMemcpyDefault);
    if (!code)
        code = cudaMemcpy(to + out->values_at, from->values,
                          from->tokens * from->cols * sizeof *from->values, cudaMemcpyDefault);
    if (!code)
        code =
            cudaMemcpy(to + out->scales_at, scales, n_scales * sizeof *scales, cudaMemcpyDefault);
    status = fq_gpu_check(gpu, "cudaMemcpy", code, err);
    return status ? status : fq_gpu_finish(gpu, err);
}

// The scales of one block of columns side by side.
static float *transpose_scales(const fq_gemm_activations *from, uint64_t stride) {
    const uint64_t n_blocks = fq_ceil_div(from->cols, FQ_BLOCK_SIZE);
    float *scales = calloc(n_blocks * stride, sizeof *scales);
    for (uint64_t token = 0; scales && token < from->tokens; token++) {
        for (uint64_t block = 0; block < n_blocks; block++)
            scales[block * stride + token] = from->scales[token * n_blocks + block];
    }
    return scales;
}

static fq_status load(fq_gemm_operand **out, fq_device *device,
                      const fq_gemm_activations *activations, fq_error *err) {
    const uint64_t tokens = activations->tokens, cols = activations->cols;
    const uint64_t scales_stride = align_up(tokens, ROW_ALIGNMENT / sizeof(float));
    const uint64_t codes_stride = align_up(cols, ROW_ALIGNMENT);
    fq_gemm_operand *loaded = calloc(1, sizeof *loaded + device->n_gpus * sizeof loaded->memory[0]);
    float *scales = transpose_scales(activations, scales_stride);
    size_t codes_at, nbytes = 0;
    fq_status status = loaded && scales ? FQ_OK : fq_fail_memory(err);
    if (!status) {
        loaded->tokens = tokens;
        loaded->cols = cols;
        loaded->codes_stride = codes_stride;
        loaded->scales_stride = scales_stride;
        loaded->n_gpus = device->n_gpus;
        const bool fits =
            fq_cuda_place(&codes_at, &nbytes, tokens, codes_stride) &&
            fq_cuda_place(&loaded->values_at, &nbytes, tokens * cols,
                          sizeof *activations->values) &&
            fq_cuda_place(&loaded->scales_at, &nbytes,
                          fq_ceil_div(cols, FQ_BLOCK_SIZE) * scales_stride, sizeof *scales);
        status = fits ? FQ_OK : fq_fail_memory(err);
    }
    for (uint32_t i = 0; i < device->n_gpus && !status; i++)
        status = load_onto(loaded, i, device->gpus[i].ordinal, nbytes, activations, scales, err);
    free(scales);
    if (status)
        unload(device, loaded);
    else
        *out = loaded;
    return status;
}

// ---- Strips

static fq_status clear(const fq_cuda_lane *lane, void *sums, size_t nbytes, fq_error *err) {
    return fq_gpu_check(lane->gpu, "cudaMemsetAsync",
                        cudaMemsetAsync(sums, 0, nbytes, lane->stream), err);
}

// Of a strip that is multiplied by itself.
static fq_status begin_alone(const fq_cuda_lane *lane, fq_error *err) {
    size_t nbytes = 0;
    fq_status status = fq_cuda_strip_make_results(lane->strip, &nbytes, lane->gpu, err);
    if (!status)
        status = clear(lane, lane->strip->exact, nbytes, err);
    return status;
}

static fq_status begin_in_group(const fq_cuda_lane *lane, const fq_gemm_strip *strip,
                                uint32_t index, fq_error *err) {
    fq_cuda_strip *s = lane->strip;
    fq_status status = fq_cuda_places_enter(s, strip, index, err);
    const size_t nbytes = s->tokens * s->sums_stride * sizeof(double);
    if (!status)
        status = clear(lane, s->exact, nbytes, err);
    if (!status)
        status = clear(lane, s->reference, nbytes, err);
    return status;
}

static fq_status begin(fq_device *device, uint32_t index, const fq_gemm_strip *strip,
                       fq_error *err) {
    assert(index < device->n_lanes && strip->rows > 0);
    fq_cuda_lane *lane = &device->lanes[index];
    if (!lane->strip)
        lane->strip = calloc(1, sizeof *lane->strip);
    fq_cuda_strip *s = lane->strip;
    if (!s)
        return fq_fail_memory(err);
    fq_cuda_places_leave(s, false); // of a strip that an error ended
    s->activations = strip->activations;
    s->x = strip->activations->memory[index % device->n_gpus];
    s->tokens = strip->activations->tokens;
    s->rows = strip->rows;
    s->next_col = 0;
    s->has_reference = false;
    const fq_status status = fq_gpu_use(lane->gpu, err);
    if (status)
        return status;
    return strip->group ? begin_in_group(lane, strip, index, err) : begin_alone(lane, err);
}

// ---- Pieces

// A matrix to the GPU: strides and the width of a row in bytes.
static fq_status copy_rows(const fq_cuda_lane *lane, void *to, size_t to_stride, const void *from,
                           size_t from_stride, size_t width, size_t n_rows, fq_error *err) {
    if (to_stride == width && from_stride == width)
        return fq_cuda_copy(lane, to, from, n_rows * width, err);
    return fq_gpu_check(lane->gpu, "cudaMemcpy2DAsync",
                        cudaMemcpy2DAsync(to, to_stride, from, from_stride, width, n_rows,
                                          cudaMemcpyDefault, lane->stream),
                        err);
}

static fq_status copy_piece(const fq_cuda_lane *lane, const fq_gemm_piece *piece, fq_error *err) {
    const fq_cuda_strip *s = lane->strip;
    const size_t scale_size = sizeof *s->scales, word_size = sizeof *s->packed;
    const size_t scales_width = fq_ceil_div(piece->cols, FQ_BLOCK_SIZE) * scale_size;
    fq_status status = copy_rows(lane, s->codes, s->codes_stride, piece->codes, piece->cols,
                                 piece->cols, piece->rows, err);
    if (!status)
        status =
            copy_rows(lane, s->scales, s->scales_stride * scale_size, piece->scales, scales_width,
                      scales_width, fq_ceil_div(piece->rows, FQ_BLOCK_SIZE), err);
    if (!status && piece->source)
        status = fq_cuda_copy(lane, s->source, piece->source,
                              piece->rows * piece->cols * fq_dtype_size(piece->source_dtype), err);
    if (!status && piece->packed)
        status = copy_rows(lane, s->packed, s->packed_stride * word_size, piece->packed,
                           piece->packed_stride * word_size, piece->rows * word_size,
                           fq_ceil_div(piece->cols, FQ_PACKED_COLS), err);
    return status;
}

// Y: by the GEMM for one piece, then added to what came before.
static fq_status multiply(const fq_cuda_lane *lane, const fq_gemm_piece *piece, fq_error *err) {
    const fq_cuda_strip *s = lane->strip;
    const fq_gemm_operand *x = s->activations;
    const uint64_t block = piece->col0 / FQ_BLOCK_SIZE;
    const fq_cuda_gemm gemm = {
        .m = x->tokens,
        .n = piece->rows,
        .k = piece->cols,
        .a = s->x + piece->col0,
        .b = s->codes,
        .d = s->part,
        .a_stride = x->codes_stride,
        .b_stride = s->codes_stride,
        .d_stride = piece->rows,
        .d_is_f32 = true,
        .b_scales_packed = piece->packed != NULL,
        .a_scales = (const float *)(const void *)(s->x + x->scales_at) + block * x->scales_stride,
        .a_scales_stride = x->scales_stride,
        .b_scales = piece->packed ? (const void *)s->packed : s->scales,
        .grouping = FQ_CUDA_GEMM_DENSE,
        .n_groups = 1,
    };
    fq_status status = fq_cuda_gemm_enqueue(&gemm, FQ_CUDA_GEMM_AUTO, lane->stream, err);
    if (status)
        (void)cudaGetLastError(); // or a later call would tell of it
    if (!status && piece->packed)
        status = fq_gpu_check(lane->gpu, "gemm", fq_cuda_product_mend(&gemm, lane->stream), err);
    if (!status)
        status = fq_gpu_check(
            lane->gpu, "gemm",
            fq_cuda_product_add(s->product, s->part, x->tokens * s->rows, lane->stream), err);
    return status;
}

static fq_status multiply_exactly(const fq_cuda_lane *lane, const fq_gemm_piece *piece,
                                  fq_error *err) {
    const fq_cuda_strip *s = lane->strip;
    const fq_gemm_operand *x = s->activations;
    const unsigned char *values = s->x + x->values_at;
    const fq_cuda_exact exact = {
        .tokens = x->tokens,
        .rows = piece->rows,
        .cols = piece->cols,
        .x = s->x + piece->col0,
        .x_stride = x->codes_stride,
        .x_scales = (const float *)(const void *)(s->x + x->scales_at) +
                    piece->col0 / FQ_BLOCK_SIZE * x->scales_stride,
        .x_scales_stride = x->scales_stride,
        .w = s->codes,
        .w_stride = s->codes_stride,
        .w_dtype = FQ_F8_E4M3,
        .w_scales = s->scales,
        .w_scales_stride = s->scales_stride,
        .blocks = (void *)s->blocks.memory,
        .n_blocks = s->n_blocks,
        .sums = s->exact,
        .sums_stride = s->sums_stride,
    };
    unsigned code = fq_cuda_exact_add(&exact, lane->stream);
    if (!code && piece->source) {
        fq_cuda_exact reference = exact;
        reference.x = values + piece->col0 * sizeof(uint16_t);
        reference.x_stride = x->cols;
        reference.x_scales = NULL;
        reference.w = s->source;
        reference.w_stride = piece->cols;
        reference.w_dtype = piece->source_dtype;
        reference.sums = s->reference;
        code = fq_cuda_exact_add(&reference, lane->stream);
    }
    return fq_gpu_check(lane->gpu, "gemm in FP64", code, err);
}

static fq_status add(fq_device *device, uint32_t index, const fq_gemm_piece *piece, fq_error *err) {
    assert(index < device->n_lanes);
    const fq_cuda_lane *lane = &device->lanes[index];
    fq_cuda_strip *s = lane->strip;
    assert(piece->rows == s->rows && piece->col0 == s->next_col);
    assert(piece->col0 % (piece->packed ? FQ_PACKED_COLS : FQ_BLOCK_SIZE) == 0);
    fq_status status = fq_gpu_use(lane->gpu, err);
    if (!status)
        status = fq_cuda_strip_make_piece(s, piece, lane->gpu, err);
    if (!status && s->places)
        fq_cuda_places_find_piece(s, piece->col0);
    if (!status)
        status = copy_piece(lane, piece, err);
    if (!status && !s->places)
        status = multiply(lane, piece, err);
    if (!status)
        status = multiply_exactly(lane, piece, err);
    s->has_reference = piece->source != NULL;
    s->next_col += piece->cols;
    return status;
}

static fq_status end_alone(const fq_cuda_lane *lane, const fq_gemm_result *result, fq_error *err) {
    const fq_cuda_strip *s = lane->strip;
    const fq_cuda_products products = {
        .tokens = s->tokens,
        .rows = s->rows,
        .n_strips = 1,
        .product = s->product,
        .exact = s->exact,
        .reference = s->has_reference ? s->reference : NULL,
    };
    fq_status status = fq_gpu_use(lane->gpu, err);
    if (!status)
        status = fq_gpu_check(lane->gpu, "gemm",
                              fq_cuda_products_sum_up(&products, s->sums, lane->stream), err);
    if (!status)
        status = fq_cuda_copy(lane, result->sums, s->sums, s->rows * sizeof *s->sums, err);
    if (!status && result->product)
        status = fq_cuda_copy(lane, result->product, s->product,
                              s->tokens * s->rows * sizeof *s->product, err);
    return status;
}

static fq_status end(fq_device *device, uint32_t index, const fq_gemm_result *result,
                     fq_error *err) {
    assert(index < device->n_lanes);
    const fq_cuda_lane *lane = &device->lanes[index];
    fq_cuda_strip *s = lane->strip;
    assert(s->next_col == s->activations->cols && !result == (s->places != NULL));
    if (!s->places)
        return end_alone(lane, result, err);
    const fq_status status = fq_cuda_drain(lane, err); // the group is launched by another stream
    fq_cuda_places_leave(s, status == FQ_OK);
    return status;
}

const fq_gemm *fq_cuda_verify_gemm(void) {
    static const fq_gemm gemm = {
        .max_error = 5e-3,
        .load = load,
        .unload = unload,
        .begin = begin,
        .add = add,
        .end = end,
        .open_group = fq_cuda_group_open,
        .launch = fq_cuda_group_launch,
        .close_group = fq_cuda_group_close,
    };
    return &gemm;
}
