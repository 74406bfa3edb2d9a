// What a checkpoint holds: dtypes, tensors, shards, and the names that find them. Immutable once
// made.
#ifndef FQ_TENSOR_H
#define FQ_TENSOR_H

#include "arena.h"
#include "source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// All dtypes of the safetensors format, in the reference implementation's order.
typedef enum fq_dtype {
    FQ_BOOL,
    FQ_F4,
    FQ_F6_E2M3,
    FQ_F6_E3M2,
    FQ_U8,
    FQ_I8,
    FQ_F8_E5M2,
    FQ_F8_E4M3,
    FQ_F8_E8M0,
    FQ_F8_E4M3FNUZ,
    FQ_F8_E5M2FNUZ,
    FQ_I16,
    FQ_U16,
    FQ_F16,
    FQ_BF16,
    FQ_I32,
    FQ_U32,
    FQ_F32,
    FQ_C64,
    FQ_F64,
    FQ_I64,
    FQ_U64,
    FQ_DTYPE_COUNT
} fq_dtype;

enum { FQ_MAX_RANK = 64 };

// safetensors' own string for a dtype ("F8_E4M3"); static.
const char *fq_dtype_name(fq_dtype dtype);

// Finds the dtype of a name of n bytes, case-sensitive and exact. False if there is none.
bool fq_dtype_from_name(fq_dtype *out, const char *name, size_t n);

// Bits of one element: 4, 6, 8, 16, 32 or 64.
uint32_t fq_dtype_bits(fq_dtype dtype);

// Bytes of one element: 1, 2, 4 or 8. Not for the types under 8 bits.
uint32_t fq_dtype_size(fq_dtype dtype);

// Bytes that an element's address is aligned to: 1, 2, 4 or 8 (1 for the types under 8 bits).
uint32_t fq_dtype_alignment(fq_dtype dtype);

// True for BF16, F16 and F32: what can be quantized, and what can be cast back to.
bool fq_dtype_is_source(fq_dtype dtype);

// One tensor of a file: a view, it owns nothing.
typedef struct fq_tensor {
    const char *name; // NUL-terminated, any other bytes that UTF-8 allows
    fq_dtype dtype;
    uint32_t rank;
    const uint64_t *shape; // [rank]
    uint64_t nbytes;
    uint64_t offset; // of the first byte, from the start of the shard's data (after the header)
    uint32_t shard;  // index into the checkpoint's shards
} fq_tensor;

// Multiplies the dimensions. False if the product overflows 64 bits.
bool fq_shape_volume(uint64_t *out, const uint64_t *shape, uint32_t rank);

// Room for the text of the largest shape: a number of 20 digits, ", " behind it or "[]", and NUL.
enum { FQ_SHAPE_TEXT = FQ_MAX_RANK * (20 + 2) + 1 };

// "[7168, 2048]"; cut to size bytes, NUL included, where it is longer. Returns out.
const char *fq_shape_format(char *out, size_t size, const uint64_t *shape, uint32_t rank);

// Bytes of a tensor of that dtype and shape: the product is checked in order, as the reference
// implementation does. False on overflow, or if the bits are no whole number of bytes.
bool fq_tensor_nbytes(uint64_t *out, fq_dtype dtype, const uint64_t *shape, uint32_t rank);

// One key and value of a file's __metadata__.
typedef struct fq_metadata {
    const char *key;
    const char *value;
} fq_metadata;

// The value under key, or NULL.
const char *fq_metadata_find(const fq_metadata *entries, size_t n, const char *key);

// Copies entries to out ([n] at most), those of fp8q itself aside (keys "fp8q.…" and
// "quantization_config"); returns how many were copied.
size_t fq_metadata_without_fp8q(fq_metadata *out, const fq_metadata *entries, size_t n);

// Sorts entries by key (bytes).
void fq_metadata_sort(fq_metadata *entries, size_t n);

// One safetensors file: read from, or to be written.
typedef struct fq_shard {
    const char
        *name; // its file name relative to the model folder; the file's own for a single file
    fq_source *source;   // where its bytes are read; NULL for a layout to be written
    uint64_t data_start; // offset of the data in source
    uint64_t data_nbytes;
    fq_metadata *metadata; // [n_metadata], sorted by key
    size_t n_metadata;
    fq_tensor *tensors; // [n_tensors], sorted by offset
    size_t n_tensors;
} fq_shard;

// Every tensor of every shard.
typedef struct fq_checkpoint {
    const char *path; // as the user named it, resolved; for messages
    bool is_folder;   // a model folder, with index and config.json, not a lone file
    fq_shard *shards; // [n_shards], in order of their names
    size_t n_shards;
    const fq_tensor **by_name; // [n_tensors], sorted by name (bytes)
    size_t n_tensors;
} fq_checkpoint;

// Fills by_name and n_tensors from the shards; memory from arena. A name that two tensors bear is
// returned in *duplicate (NULL otherwise): the caller decides what to say. FQ_DEVICE when out of
// memory.
fq_status fq_checkpoint_index(fq_checkpoint *checkpoint, fq_arena *arena,
                              const fq_tensor **duplicate, fq_error *err);

// The place of that name in by_name, or SIZE_MAX. O(log n).
size_t fq_checkpoint_position(const fq_checkpoint *checkpoint, const char *name);

// Like fq_checkpoint_position, for the name that is the first n_prefix bytes of prefix and then
// suffix: how siblings are found. prefix has at least so many bytes.
size_t fq_checkpoint_position_of(const fq_checkpoint *checkpoint, const char *prefix,
                                 size_t n_prefix, const char *suffix);

// The tensor of that name, or NULL. O(log n).
const fq_tensor *fq_checkpoint_find(const fq_checkpoint *checkpoint, const char *name);

// The file name of the shard that holds a tensor; for messages.
const char *fq_tensor_file(const fq_checkpoint *checkpoint, const fq_tensor *tensor);

#endif
