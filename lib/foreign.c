// Neighbours of block-scaled FP8, told by dtypes and by the names of the tensors beside them.
#include "foreign.h"

#include "names.h"

#include <string.h>

// The position of the tensor whose name is that of `tensor` with suffix in the place of its last
// n_cut bytes, or SIZE_MAX.
static size_t find_beside(const fq_checkpoint *checkpoint, const fq_tensor *tensor, size_t n_cut,
                          const char *suffix) {
    return fq_checkpoint_position_of(checkpoint, tensor->name, strlen(tensor->name) - n_cut,
                                     suffix);
}

static const char *format_of_scale(const fq_tensor *scale) {
    switch (scale->dtype) {
    case FQ_F8_E4M3:
        return "NVFP4";
    case FQ_F8_E8M0:
    case FQ_U8:
        return "MXFP4";
    default:
        return "an integer format";
    }
}

static bool is_integer(fq_dtype dtype) {
    return dtype == FQ_I8 || dtype == FQ_U8 || dtype == FQ_I32;
}

const char *fq_foreign_format(const fq_checkpoint *checkpoint, const fq_tensor *tensor) {
    switch (tensor->dtype) {
    case FQ_F8_E5M2:
    case FQ_F8_E4M3FNUZ:
    case FQ_F8_E5M2FNUZ:
    case FQ_F4:
    case FQ_F6_E2M3:
    case FQ_F6_E3M2:
        return fq_dtype_name(tensor->dtype);
    default:
        break;
    }
    if (fq_has_suffix(tensor->name, ".comfy_quant"))
        return "ComfyUI's format, whose block scales are swizzled";
    if (!is_integer(tensor->dtype))
        return NULL;
    if (fq_has_suffix(tensor->name, "_blocks") &&
        find_beside(checkpoint, tensor, strlen("_blocks"), "_scales") != SIZE_MAX)
        return "MXFP4";
    static const struct {
        const char *weight, *scale;
    } siblings[] = {
        {".weight", ".weight_scale"},
        {".weight", ".scale"},
        {".weight", ".weight_scale_inv"},
        {".weight_packed", ".weight_scale"},
    };
    for (size_t i = 0; i < sizeof siblings / sizeof siblings[0]; i++) {
        if (!fq_has_suffix(tensor->name, siblings[i].weight))
            continue;
        const size_t scale =
            find_beside(checkpoint, tensor, strlen(siblings[i].weight), siblings[i].scale);
        if (scale != SIZE_MAX)
            return format_of_scale(checkpoint->by_name[scale]);
    }
    return NULL;
}
