// What a converted checkpoint must have in common with its source, found out without the plan.
#ifndef FQ_TESTS_CONVERTED_H
#define FQ_TESTS_CONVERTED_H

#include "lib/fp8.h"
#include "lib/pairing.h"

#include "fuzz.h"

#include <math.h>

// All bytes of a tensor; owned (free).
static inline uint8_t *tensor_bytes(const fq_checkpoint *checkpoint, const fq_tensor *tensor) {
    const fq_shard *shard = &checkpoint->shards[tensor->shard];
    fq_error err = {0};
    uint8_t *bytes = malloc((size_t)tensor->nbytes + 1);
    DEMAND(bytes);
    DEMAND(shard->source->read(shard->source, shard->data_start + tensor->offset, bytes,
                               (size_t)tensor->nbytes, &err) == FQ_OK);
    return bytes;
}

// An element of BF16, F16 or F32.
UNTRACED static inline double tensor_element(const fq_tensor *tensor, const uint8_t *bytes,
                                             uint64_t index) {
    uint16_t half;
    float single;
    if (tensor->dtype == FQ_F32) {
        memcpy(&single, bytes + 4 * index, 4);
        return single;
    }
    memcpy(&half, bytes + 2 * index, 2);
    return tensor->dtype == FQ_BF16 ? fq_f32_of_bf16(half) : fq_f32_of_f16(half);
}

static inline bool is_same_shape(const fq_tensor *a, const fq_tensor *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

static inline void check_copied(const fq_checkpoint *in, const fq_tensor *a,
                                const fq_checkpoint *out, const fq_tensor *b) {
    DEMAND(b && a->dtype == b->dtype && is_same_shape(a, b) && a->nbytes == b->nbytes);
    uint8_t *a_bytes = tensor_bytes(in, a), *b_bytes = tensor_bytes(out, b);
    DEMAND(memcmp(a_bytes, b_bytes, (size_t)a->nbytes) == 0);
    free(a_bytes);
    free(b_bytes);
}

// Whether a tensor is the scale of a weight of the checkpoint that convert wrote.
static inline const fq_tensor *find_scale_of(const fq_checkpoint *checkpoint,
                                             const fq_tensor *weight) {
    const size_t position =
        fq_checkpoint_position_of(checkpoint, weight->name, strlen(weight->name), "_scale_inv");
    return position == SIZE_MAX ? NULL : checkpoint->by_name[position];
}

// The name of a projection of an expert: "P.experts", 3, "up_proj". Valid until the next call.
static inline const fq_tensor *find_expert(const fq_checkpoint *checkpoint, const fq_tensor *fused,
                                           uint64_t expert, const char *projection) {
    static char name[70000];
    const size_t n_module = (size_t)(strrchr(fused->name, '.') - fused->name);
    snprintf(name, sizeof name, "%.*s.%llu.%s.weight", (int)n_module, fused->name,
             (unsigned long long)expert, projection);
    return fq_checkpoint_find(checkpoint, name);
}

// The matrices that a fused tensor of experts is cut into, by the end of its name.
static inline size_t split_parts(const char *parts[2], const fq_tensor *fused) {
    const char *dot = strrchr(fused->name, '.');
    DEMAND(fused->rank == 3 && dot);
    const bool is_down = strcmp(dot, ".down_proj") == 0;
    DEMAND(is_down || strcmp(dot, ".gate_up_proj") == 0);
    parts[0] = is_down ? "down_proj" : "gate_proj";
    parts[1] = "up_proj";
    return is_down ? 1 : 2;
}

// Every source tensor is there: as it was, or as codes and scales, or cut into experts of such; and
// nothing else is.
static inline void check_converted(const fq_checkpoint *in, const fq_checkpoint *out) {
    uint64_t n_expected = 0;
    for (size_t i = 0; i < in->n_tensors; i++) {
        const fq_tensor *source = in->by_name[i];
        const fq_tensor *target = fq_checkpoint_find(out, source->name);
        n_expected++;
        if (target && target->dtype == source->dtype) {
            check_copied(in, source, out, target);
        } else if (target) {
            DEMAND(fq_dtype_is_source(source->dtype) && target->dtype == FQ_F8_E4M3);
            DEMAND(is_same_shape(source, target) && find_scale_of(out, target));
            n_expected++;
        } else {
            const char *parts[2];
            const size_t n_parts = split_parts(parts, source);
            n_expected += source->shape[0] * n_parts * 2 - 1;
            for (uint64_t e = 0; e < source->shape[0]; e++) {
                for (size_t p = 0; p < n_parts; p++) {
                    const fq_tensor *expert = find_expert(out, source, e, parts[p]);
                    DEMAND(expert && expert->dtype == FQ_F8_E4M3 && find_scale_of(out, expert));
                }
            }
        }
    }
    DEMAND(out->n_tensors == n_expected);
}

// A matrix that was quantized and cast back, [rows, cols], beside the elements it was made of:
// number first + r·row_stride + c·col_stride of source.
typedef struct cast_back {
    const fq_tensor *source, *back;
    const uint8_t *source_bytes;
    uint64_t first, row_stride, col_stride;
} cast_back;

UNTRACED static inline void check_values(const fq_checkpoint *checkpoint, const cast_back *cast) {
    const uint64_t rows = cast->back->shape[0], cols = cast->back->shape[1];
    uint8_t *bytes = tensor_bytes(checkpoint, cast->back);
    double amax = FQ_DEFAULT_AMAX_FLOOR;
    for (int pass = 0; pass < 2; pass++) {
        // Half a step of E4M3 is 2^-4 of a normal value; of a subnormal one it is 2^-10 scales,
        // which are up to twice amax / 448. BF16 rounds once more; least scales are coarse.
        const double step = 2 * amax / FQ_E4M3_MAX * 0x1p-10 + 1e-40;
        for (uint64_t i = 0; i < rows * cols; i++) {
            const double was = tensor_element(cast->source, cast->source_bytes,
                                              cast->first + i / cols * cast->row_stride +
                                                  i % cols * cast->col_stride);
            if (pass == 0)
                amax = fabs(was) > amax ? fabs(was) : amax;
            else
                DEMAND(fabs(tensor_element(cast->back, bytes, i) - was) <= 0.07 * fabs(was) + step);
        }
    }
    free(bytes);
}

// The experts of a fused tensor, cast back. Its layout shows in the shapes, square ones aside.
static inline void check_experts(const fq_checkpoint *back, const fq_tensor *source,
                                 const uint8_t *bytes) {
    const char *parts[2];
    const size_t n_parts = split_parts(parts, source);
    const uint64_t *shape = source->shape;
    for (uint64_t e = 0; e < shape[0]; e++) {
        for (size_t p = 0; p < n_parts; p++) {
            const fq_tensor *expert = find_expert(back, source, e, parts[p]);
            DEMAND(expert && expert->dtype == FQ_BF16 && expert->rank == 2);
            const uint64_t rows = expert->shape[0], cols = expert->shape[1];
            const bool plain = shape[1] == n_parts * rows && shape[2] == cols;
            const bool transposed = shape[2] == n_parts * rows && shape[1] == cols;
            DEMAND(plain || transposed);
            if (plain && transposed)
                continue;
            const cast_back cast = {
                .source = source,
                .back = expert,
                .source_bytes = bytes,
                .first = e * shape[1] * shape[2] + p * rows * (plain ? cols : 1),
                .row_stride = plain ? cols : 1,
                .col_stride = plain ? 1 : shape[2],
            };
            check_values(back, &cast);
        }
    }
}

// What convert made of `in` as `out`, cast back to BF16 as `back`.
static inline void check_round_trip(const fq_checkpoint *in, const fq_checkpoint *out,
                                    const fq_checkpoint *back) {
    for (size_t i = 0; i < in->n_tensors; i++) {
        const fq_tensor *source = in->by_name[i];
        const fq_tensor *target = fq_checkpoint_find(out, source->name);
        const fq_tensor *there = fq_checkpoint_find(back, source->name);
        uint8_t *bytes = tensor_bytes(in, source);
        if (!target) {
            check_experts(back, source, bytes);
        } else if (target->dtype != source->dtype) {
            DEMAND(there && there->dtype == FQ_BF16 && is_same_shape(source, there));
            const cast_back cast = {source, there, bytes, 0, source->shape[1], 1};
            check_values(back, &cast);
        } else if (fq_is_runtime_scale(source->name)) {
            DEMAND(!there);
        } else {
            check_copied(in, source, back, there);
        }
        free(bytes);
    }
}

// What dequant made of `in`: weights cast back, no scales, all else as it was.
static inline void check_dequantized(const fq_checkpoint *in, const fq_checkpoint *out,
                                     bool is_choice) {
    size_t n_met = 0;
    for (size_t i = 0; i < in->n_tensors; i++) {
        const fq_tensor *source = in->by_name[i];
        const fq_tensor *target = fq_checkpoint_find(out, source->name);
        n_met += target != NULL;
        if (target && source->dtype == FQ_F8_E4M3)
            DEMAND(fq_dtype_is_source(target->dtype) && is_same_shape(source, target));
        else if (target)
            check_copied(in, source, out, target);
        else
            DEMAND(is_choice || strstr(source->name, "scale"));
    }
    DEMAND(out->n_tensors == n_met && n_met > 0);
}

#endif
