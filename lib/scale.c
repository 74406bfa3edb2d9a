// Formats of scales: their names, and the shape of the tensor that holds them.
#include "scale.h"

#include <assert.h>

// Scales and weights are stored little-endian and moved as they lie in memory.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors are little-endian");

static const char *const format_names[] = {
    [FQ_SCALE_F32] = "f32",
    [FQ_SCALE_POW2] = "pow2",
    [FQ_SCALE_E8M0] = "e8m0",
    [FQ_SCALE_PACKED] = "packed",
};
static_assert(sizeof format_names / sizeof format_names[0] == FQ_SCALE_FORMAT_COUNT,
              "one name per format");

const char *fq_scale_format_name(fq_scale_format format) { return format_names[format]; }

bool fq_scale_format_is_ue8m0(fq_scale_format format) { return format != FQ_SCALE_F32; }

void fq_scale_tensor_shape(fq_scale_format format, uint64_t rows, uint64_t cols, fq_dtype *dtype,
                           uint64_t shape[2]) {
    if (format == FQ_SCALE_PACKED) {
        *dtype = FQ_I32;
        shape[0] = fq_ceil_div(cols, FQ_PACKED_COLS);
        shape[1] = fq_packed_stride(rows);
        return;
    }
    *dtype = format == FQ_SCALE_E8M0 ? FQ_F8_E8M0 : FQ_F32;
    shape[0] = fq_ceil_div(rows, FQ_BLOCK_SIZE);
    shape[1] = fq_ceil_div(cols, FQ_BLOCK_SIZE);
}
