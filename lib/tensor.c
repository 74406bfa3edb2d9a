// Dtypes, sizes of tensors, and the sorted index of a checkpoint's names.
#include "tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[] = {
    [FQ_BOOL] = {"BOOL", 8},
    [FQ_F4] = {"F4", 4},
    [FQ_F6_E2M3] = {"F6_E2M3", 6},
    [FQ_F6_E3M2] = {"F6_E3M2", 6},
    [FQ_U8] = {"U8", 8},
    [FQ_I8] = {"I8", 8},
    [FQ_F8_E5M2] = {"F8_E5M2", 8},
    [FQ_F8_E4M3] = {"F8_E4M3", 8},
    [FQ_F8_E8M0] = {"F8_E8M0", 8},
    [FQ_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [FQ_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [FQ_I16] = {"I16", 16},
    [FQ_U16] = {"U16", 16},
    [FQ_F16] = {"F16", 16},
    [FQ_BF16] = {"BF16", 16},
    [FQ_I32] = {"I32", 32},
    [FQ_U32] = {"U32", 32},
    [FQ_F32] = {"F32", 32},
    [FQ_C64] = {"C64", 64},
    [FQ_F64] = {"F64", 64},
    [FQ_I64] = {"I64", 64},
    [FQ_U64] = {"U64", 64},
};
static_assert(sizeof dtypes / sizeof dtypes[0] == FQ_DTYPE_COUNT, "one row per dtype");

const char *fq_dtype_name(fq_dtype dtype) { return dtypes[dtype].name; }

bool fq_dtype_from_name(fq_dtype *out, const char *name, size_t n) {
    for (int i = 0; i < FQ_DTYPE_COUNT; i++) {
        if (strlen(dtypes[i].name) == n && memcmp(dtypes[i].name, name, n) == 0) {
            *out = (fq_dtype)i;
            return true;
        }
    }
    return false;
}

uint32_t fq_dtype_bits(fq_dtype dtype) { return dtypes[dtype].bits; }

uint32_t fq_dtype_size(fq_dtype dtype) {
    assert(dtypes[dtype].bits % 8 == 0);
    return dtypes[dtype].bits / 8;
}

uint32_t fq_dtype_alignment(fq_dtype dtype) {
    return dtypes[dtype].bits < 8 ? 1 : dtypes[dtype].bits / 8;
}

bool fq_dtype_is_source(fq_dtype dtype) {
    return dtype == FQ_BF16 || dtype == FQ_F16 || dtype == FQ_F32;
}

bool fq_shape_volume(uint64_t *out, const uint64_t *shape, uint32_t rank) {
    uint64_t volume = 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (__builtin_mul_overflow(volume, shape[i], &volume))
            return false;
    }
    *out = volume;
    return true;
}

const char *fq_shape_format(char *out, size_t size, const uint64_t *shape, uint32_t rank) {
    size_t n = (size_t)snprintf(out, size, "[");
    for (uint32_t i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRIu64, i ? ", " : "", shape[i]);
    if (n < size)
        snprintf(out + n, size - n, "]");
    return out;
}

bool fq_tensor_nbytes(uint64_t *out, fq_dtype dtype, const uint64_t *shape, uint32_t rank) {
    uint64_t bits;
    if (!fq_shape_volume(&bits, shape, rank) ||
        __builtin_mul_overflow(bits, (uint64_t)dtypes[dtype].bits, &bits) || bits % 8 != 0)
        return false;
    *out = bits / 8;
    return true;
}

const char *fq_metadata_find(const fq_metadata *entries, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(entries[i].key, key) == 0)
            return entries[i].value;
    }
    return NULL;
}

size_t fq_metadata_without_fp8q(fq_metadata *out, const fq_metadata *entries, size_t n) {
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(entries[i].key, "fp8q.", 5) != 0 &&
            strcmp(entries[i].key, "quantization_config") != 0)
            out[n_kept++] = entries[i];
    }
    return n_kept;
}

static int compare_keys(const void *a, const void *b) {
    const fq_metadata *x = a, *y = b;
    return strcmp(x->key, y->key);
}

void fq_metadata_sort(fq_metadata *entries, size_t n) {
    qsort(entries, n, sizeof *entries, compare_keys);
}

static int compare_names(const void *a, const void *b) {
    const fq_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

fq_status fq_checkpoint_index(fq_checkpoint *checkpoint, fq_arena *arena,
                              const fq_tensor **duplicate, fq_error *err) {
    *duplicate = NULL;
    size_t n = 0;
    for (size_t s = 0; s < checkpoint->n_shards; s++)
        n += checkpoint->shards[s].n_tensors;
    const fq_tensor **by_name = fq_arena_array(arena, n, sizeof(fq_tensor *));
    if (!by_name)
        return fq_fail_memory(err);
    size_t i = 0;
    for (size_t s = 0; s < checkpoint->n_shards; s++) {
        for (size_t t = 0; t < checkpoint->shards[s].n_tensors; t++)
            by_name[i++] = &checkpoint->shards[s].tensors[t];
    }
    qsort(by_name, n, sizeof *by_name, compare_names);
    for (i = 1; i < n && !*duplicate; i++) {
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            *duplicate = by_name[i];
    }
    checkpoint->by_name = by_name;
    checkpoint->n_tensors = n;
    return FQ_OK;
}

// A name in two parts, as bsearch's key.
typedef struct name_parts {
    const char *prefix;
    size_t n_prefix;
    const char *suffix;
} name_parts;

static int compare_parts_to_tensor(const void *key, const void *element) {
    const name_parts *parts = key;
    const char *name = (*(const fq_tensor *const *)element)->name;
    const int order = strncmp(parts->prefix, name, parts->n_prefix);
    return order ? order : strcmp(parts->suffix, name + parts->n_prefix);
}

size_t fq_checkpoint_position_of(const fq_checkpoint *checkpoint, const char *prefix,
                                 size_t n_prefix, const char *suffix) {
    assert(strnlen(prefix, n_prefix) == n_prefix);
    if (checkpoint->n_tensors == 0)
        return SIZE_MAX;
    const name_parts parts = {prefix, n_prefix, suffix};
    const fq_tensor **found = bsearch(&parts, checkpoint->by_name, checkpoint->n_tensors,
                                      sizeof *checkpoint->by_name, compare_parts_to_tensor);
    return found ? (size_t)(found - checkpoint->by_name) : SIZE_MAX;
}

size_t fq_checkpoint_position(const fq_checkpoint *checkpoint, const char *name) {
    return fq_checkpoint_position_of(checkpoint, "", 0, name);
}

const fq_tensor *fq_checkpoint_find(const fq_checkpoint *checkpoint, const char *name) {
    const size_t position = fq_checkpoint_position(checkpoint, name);
    return position == SIZE_MAX ? NULL : checkpoint->by_name[position];
}

const char *fq_tensor_file(const fq_checkpoint *checkpoint, const fq_tensor *tensor) {
    return checkpoint->shards[tensor->shard].name;
}
