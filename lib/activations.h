// The activations that verify multiplies: made up, or captured from a model; quantized in 1×128
// blocks, as engines do it.
#ifndef FQ_ACTIVATIONS_H
#define FQ_ACTIVATIONS_H

#include "gemm.h"
#include "tensor.h"

typedef enum fq_activations_kind {
    FQ_ACTIVATIONS_NORMAL,   // element [token, column] is fq_normal(seed, token, column)
    FQ_ACTIVATIONS_OUTLIER,  // likewise; but in some columns times magnitude
    FQ_ACTIVATIONS_CAPTURED, // the first rows of tensors of a file
} fq_activations_kind;

enum {
    // Column 0 and every 896th from there on is an outlier channel: 8 of 7168, in blocks of their
    // own.
    FQ_ACTIVATIONS_OUTLIER_STEP = 896,
};

typedef struct fq_activations_options {
    fq_activations_kind kind;
    uint64_t tokens; // at least 1, and memory grows with them; captured ones may be fewer
    uint64_t seed;
    double magnitude;              // of outlier channels, positive
    const fq_checkpoint *captured; // the file; fq_activations_check'ed
} fq_activations_options;

// What is multiplied with a weight.
typedef struct fq_activations_key {
    uint64_t cols;           // of the weight
    const fq_tensor *tensor; // captured, [tokens, cols]; NULL for made up ones
    bool pow2_scales;        // as engines do where the weight's scales are UE8M0
} fq_activations_key;

// Where they are quantized: a lane that nobody else uses meanwhile.
typedef struct fq_activations_place {
    const fq_backend *backend;
    fq_device *device; // opened for FQ_MIN_BAND_ELEMENTS elements at least
    uint32_t lane;
} fq_activations_place;

// Owns all that it points to.
typedef struct fq_activations {
    uint64_t tokens, cols;
    uint16_t *values;
    uint8_t *codes;
    float *scales;
} fq_activations;

// True for tensors that can be multiplied: [tokens, columns] of BF16, F16 or F32, neither empty.
bool fq_activations_is_captured(const fq_tensor *tensor);

// FQ_USAGE if a file has no tensor that can be multiplied.
fq_status fq_activations_check(const fq_checkpoint *captured, fq_error *err);

// Fills in cols and tensor for a weight [rows, cols]. Of a file that is the first of these that
// can be multiplied and has as many columns as the weight: the tensor of the weight's name; of its
// module's ("model.layers.0.mlp.down_proj"); the only one of that many columns. False if there is
// none: *why is the reason, static.
bool fq_activations_find(fq_activations_key *out, const fq_activations_options *options,
                         const char *weight_name, uint64_t cols, const char **why);

// Makes the activations and quantizes them, by A1 with the default floor. Captured ones are rounded
// to BF16, saturating. Outlier channels take part in the scales, and are then taken out, values and
// codes, so that what they do to the others shows: a few channels would outweigh all else. NaN or
// Inf in captured ones is FQ_BAD_INPUT. After any outcome fq_activations_free it.
fq_status fq_activations_make(fq_activations *out, const fq_activations_options *options,
                              const fq_activations_key *key, const fq_activations_place *place,
                              fq_error *err);

// As the GEMM takes them.
fq_gemm_activations fq_activations_view(const fq_activations *activations);

void fq_activations_free(fq_activations *activations);

#endif
