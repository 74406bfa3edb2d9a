// What config.json says that the arithmetic and the policy need to know.
#ifndef FQ_MODEL_H
#define FQ_MODEL_H

#include "block.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// config.json's quantization_config: of the top level, else of text_config, else the first there
// is. Of a lone file the one in its metadata.
typedef struct fq_quant_config {
    bool present;
    const char *method;            // quant_method, "" if absent
    const char *fmt;               // "e4m3", "" if absent
    bool has_block;                // weight_block_size is there
    fq_block block;                // its values, each 1..2^31
    bool ue8m0;                    // scale_fmt is "ue8m0"
    const char *scale_format;      // fp8q.scale_format, "" if absent
    const char *activation_scheme; // "dynamic", "" if absent
    bool has_linear_targets;       // compressed-tensors: every linear module is to be quantized
    // Modules that are not quantized: the strings of the first list that is there, and its key:
    // modules_to_not_convert, ignored_layers or ignore; "" without one.
    const char *list_key;
    const char *const *unconverted; // [n_unconverted]
    size_t n_unconverted;
} fq_quant_config;

typedef struct fq_model {
    bool has_config;
    const char *model_type;         // "" if absent
    uint64_t hidden_size;           // 0 if absent; text_config's where the text model nests
    uint64_t moe_intermediate_size; // 0 if absent
    uint64_t num_key_value_heads;   // 0 if absent
    bool tie_word_embeddings;
    fq_quant_config quant;
} fq_model;

// What is known of a model without a config.json, but for quant of a lone file.
static inline fq_model fq_model_unknown(void) {
    fq_model model;
    memset(&model, 0, sizeof model);
    model.model_type = "";
    model.quant.method = "";
    model.quant.fmt = "";
    model.quant.scale_format = "";
    model.quant.activation_scheme = "";
    model.quant.list_key = "";
    return model;
}

#endif
