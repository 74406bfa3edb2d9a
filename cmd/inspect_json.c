// What inspect tells programs.
#include "emit.h"
#include "inspect.h"

#include <math.h>

static void emit_stats(fq_emit *emit, const fq_survey_row *row) {
    const fq_stats *stats = &row->stats;
    if (!row->has_stats)
        return;
    fq_emit_begin(emit, "stats", '{');
    fq_emit_double(emit, "min", stats->n_finite ? stats->min : (double)NAN);
    fq_emit_double(emit, "max", stats->n_finite ? stats->max : (double)NAN);
    fq_emit_double(emit, "amax",
                   stats->n_finite ? fmax(fabs(stats->min), fabs(stats->max)) : (double)NAN);
    fq_emit_u64(emit, "zeros", stats->n_zeros);
    fq_emit_u64(emit, "nan", stats->n_nans);
    fq_emit_u64(emit, "inf", stats->n_infs);
    if (stats->n_codes)
        fq_emit_u64(emit, "codes", stats->n_codes);
    if (row->has_scale_stats) {
        fq_emit_double(emit, "scale_min", (double)row->scale_stats.min);
        fq_emit_double(emit, "scale_max", (double)row->scale_stats.max);
    }
    fq_emit_end(emit, '}');
}

static void emit_block(fq_emit *emit, const char *key, fq_block block) {
    fq_emit_u64s(emit, key, (const uint64_t[]){block.rows, block.cols}, 2);
}

static void emit_row(fq_emit *emit, const fq_survey_row *row, const fq_input *input) {
    static const char *const roles[] = {
        [FQ_ROLE_OTHER] = "other", [FQ_ROLE_WEIGHT] = "weight", [FQ_ROLE_SCALE] = "scale"};
    const fq_tensor *tensor = row->tensor;
    const bool is_paired_weight = row->role == FQ_ROLE_WEIGHT && row->pair;
    fq_emit_begin(emit, NULL, '{');
    fq_emit_string(emit, "name", tensor->name);
    fq_emit_string(emit, "dtype", fq_dtype_name(tensor->dtype));
    fq_emit_u64s(emit, "shape", tensor->shape, tensor->rank);
    fq_emit_u64(emit, "nbytes", tensor->nbytes);
    fq_emit_string(emit, "file", fq_tensor_file(&input->checkpoint, tensor));
    fq_emit_string(emit, "role", roles[row->role]);
    fq_emit_string(emit, "scale", is_paired_weight ? row->pair->scale->name : NULL);
    fq_emit_string(emit, "scale_format", row->scale_format);
    if (is_paired_weight)
        emit_block(emit, "block_size", row->pair->block);
    emit_stats(emit, row);
    fq_emit_end(emit, '}');
}

static void emit_summary(fq_emit *emit, const fq_survey *survey, const fq_input *input) {
    fq_emit_begin(emit, "summary", '{');
    fq_emit_u64(emit, "n_tensors", survey->n);
    fq_emit_u64(emit, "nbytes", survey->nbytes);
    fq_emit_u64(emit, "n_files", input->checkpoint.n_shards);
    fq_emit_u64(emit, "n_quantized", survey->n_quantized);
    if (survey->block.rows)
        emit_block(emit, "block_size", survey->block);
    else
        fq_emit_null(emit, "block_size");
    fq_emit_string(emit, "scale_format", survey->scale_format);
    fq_emit_string(emit, "model_type", *input->model.model_type ? input->model.model_type : NULL);
    if (survey->config)
        fq_emit_json(emit, "quantization_config", survey->config, survey->config_nbytes);
    else
        fq_emit_null(emit, "quantization_config");
    fq_emit_begin(emit, "dtypes", '{');
    for (int dtype = 0; dtype < FQ_DTYPE_COUNT; dtype++) {
        if (survey->dtype_n[dtype] == 0)
            continue;
        fq_emit_begin(emit, fq_dtype_name((fq_dtype)dtype), '{');
        fq_emit_u64(emit, "n_tensors", survey->dtype_n[dtype]);
        fq_emit_u64(emit, "nbytes", survey->dtype_nbytes[dtype]);
        fq_emit_end(emit, '}');
    }
    fq_emit_end(emit, '}');
    fq_emit_end(emit, '}');
}

fq_status fq_inspect_json(const fq_survey *survey, const fq_input *input,
                          const fq_messages *warnings, fq_error *err) {
    fq_emit emit = {.file = stdout};
    fq_emit_begin(&emit, NULL, '{');
    fq_emit_string(&emit, "path", input->checkpoint.path);
    fq_emit_begin(&emit, "tensors", '[');
    for (size_t i = 0; i < survey->n; i++)
        emit_row(&emit, &survey->rows[i], input);
    fq_emit_end(&emit, ']');
    fq_emit_messages(&emit, "warnings", warnings);
    emit_summary(&emit, survey, input);
    fq_emit_end(&emit, '}');
    return fq_emit_finish(&emit, err);
}
