// What a checkpoint holds, for inspect: the role of every tensor, and sums.
#ifndef FQ_CMD_SURVEY_H
#define FQ_CMD_SURVEY_H

#include "formats/input.h"
#include "lib/pairing.h"
#include "lib/stats.h"

typedef enum fq_role {
    FQ_ROLE_OTHER,
    FQ_ROLE_WEIGHT, // FP8
    FQ_ROLE_SCALE,
} fq_role;

typedef struct fq_survey_row {
    const fq_tensor *tensor;
    fq_role role;
    const fq_pair *pair;      // of a weight or scale; NULL where it is not paired
    const char *scale_format; // of the pair: "f32", "pow2", "e8m0", "packed", "bf16", "f16", "u8"
    bool has_stats;
    fq_stats stats;
    bool has_scale_stats; // weights
    fq_scale_stats scale_stats;
} fq_survey_row;

// --sort; the order is that of the option's argument.
typedef enum fq_survey_order { FQ_SORT_NAME, FQ_SORT_SIZE, FQ_SORT_DTYPE } fq_survey_order;

typedef struct fq_survey {
    fq_survey_row *rows; // [n]: the tensors chosen, in the order asked for
    size_t n;
    uint64_t nbytes;
    uint64_t dtype_n[FQ_DTYPE_COUNT], dtype_nbytes[FQ_DTYPE_COUNT];
    uint64_t n_quantized, quantized_nbytes; // weights
    const char *scale_format;               // of all weights; "mixed"; NULL without weights
    fq_block block;                         // of all weights; rows 0 where they differ or are none
    const char *config;                     // quantization_config: JSON text, or NULL
    size_t config_nbytes;
    fq_pairing pairing;
    fq_arena arena; // owns the above, but for config
} fq_survey;

// Surveys the tensors of input whose names match one of globs[n_globs] (none: all). What is wrong
// with scales is a warning, as is a glob that matches nothing. Zeroed *out before; fq_survey_free
// it after any outcome. input is borrowed.
fq_status fq_survey_make(fq_survey *out, const fq_input *input, const char *const *globs,
                         size_t n_globs, fq_survey_order order, fq_messages *warnings,
                         fq_error *err);

// Reads the values of all rows into their stats. *bytes_read is added to atomically.
fq_status fq_survey_read_stats(fq_survey *survey, const fq_input *input, uint64_t *bytes_read,
                               const int *cancelled, fq_messages *warnings, fq_error *err);

// Bytes that fq_survey_read_stats will read, scales of weights aside.
uint64_t fq_survey_stats_nbytes(const fq_survey *survey);

void fq_survey_free(fq_survey *survey);

#endif
