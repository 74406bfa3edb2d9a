// Surveys a checkpoint: pairs weights with scales, and finds out what form the scales have.
#include "survey.h"

#include "formats/config.h"
#include "lib/glob.h"

#include <stdlib.h>
#include <string.h>

// ---- Scale formats

// What a checkpoint says of its F32 scales.
typedef enum claim { CLAIM_NONE, CLAIM_F32, CLAIM_POW2 } claim;

static const char *metadata_value(const fq_shard *shard, const char *key) {
    return fq_metadata_find(shard->metadata, shard->n_metadata, key);
}

// Engines go by the config; a lone file has the metadata of fp8q alone.
static claim find_claim(const fq_input *input) {
    if (input->model.quant.present)
        return input->model.quant.ue8m0 ? CLAIM_POW2 : CLAIM_F32;
    const char *format = NULL;
    for (size_t i = 0; i < input->checkpoint.n_shards && !format; i++)
        format = metadata_value(&input->checkpoint.shards[i], "fp8q.scale_format");
    if (!format)
        return CLAIM_NONE;
    return strcmp(format, "f32") == 0 ? CLAIM_F32 : CLAIM_POW2;
}

// Scales may be looked at twice: once for their format, once for their range.
static void warn_once(fq_messages *warnings, const char *text) {
    for (size_t i = 0; i < warnings->n; i++) {
        if (strcmp(warnings->lines[i], text) == 0)
            return;
    }
    fq_messages_add(warnings, "%s", text);
}

// Bad scales are a warning: the other tensors are still worth looking at.
static fq_status read_scales(fq_scale_stats *out, const fq_input *input, const fq_pair *pair,
                             bool *readable, fq_messages *warnings, fq_error *err) {
    const fq_status status = fq_stats_read_scales(out, &input->checkpoint, pair, err);
    *readable = status == FQ_OK;
    if (status != FQ_BAD_INPUT)
        return status;
    warn_once(warnings, err->text);
    *err = (fq_error){0};
    return FQ_OK;
}

// *out is "pow2" or "f32". Config and metadata decide; where they say pow2 or nothing, the values
// are looked at, in a sample: reading the scales of a large model from a cold disk takes minutes.
static fq_status name_f32_format(const char **out, const fq_survey *survey, const fq_input *input,
                                 fq_messages *warnings, fq_error *err) {
    enum { SAMPLE = 1024 };
    const claim claimed = find_claim(input);
    *out = "f32";
    if (claimed == CLAIM_F32)
        return FQ_OK;
    const fq_pair *first_other = NULL; // whose scales are no powers of two
    size_t n_others = 0, n_seen = 0;
    for (size_t i = 0; i < survey->pairing.n; i += survey->pairing.n / SAMPLE + 1) {
        const fq_pair *pair = &survey->pairing.pairs[i];
        const bool is_f32 = pair->storage == FQ_STORED_GRID && pair->scale->dtype == FQ_F32;
        if (!is_f32)
            continue;
        fq_scale_stats stats;
        bool readable;
        const fq_status status = read_scales(&stats, input, pair, &readable, warnings, err);
        if (status)
            return status;
        n_seen++;
        if (!(readable && stats.all_pow2) && n_others++ == 0)
            first_other = pair;
    }
    if (first_other && claimed == CLAIM_POW2)
        fq_messages_add(warnings,
                        "%s: %s: is not all powers of two although scale_fmt is ue8m0 (%zu of "
                        "%zu scale tensors looked at); engines for Blackwell may refuse the "
                        "model or compute wrong results",
                        fq_tensor_file(&input->checkpoint, first_other->scale),
                        first_other->scale->name, n_others, n_seen);
    if (n_others == 0)
        *out = "pow2";
    return FQ_OK;
}

// ---- Rows

static fq_role role_of(const fq_tensor *tensor, const fq_pair *pair) {
    if (pair ? pair->scale == tensor : fq_is_scale_name(tensor->name))
        return FQ_ROLE_SCALE;
    return tensor->dtype == FQ_F8_E4M3 ? FQ_ROLE_WEIGHT : FQ_ROLE_OTHER;
}

static void add_row(fq_survey *survey, const fq_tensor *tensor, const fq_pair *pair,
                    const char *f32_format) {
    fq_survey_row *row = &survey->rows[survey->n++];
    row->tensor = tensor;
    row->role = role_of(tensor, pair);
    row->pair = pair;
    row->scale_format = pair ? fq_pair_format(pair, f32_format) : NULL;
    survey->nbytes += tensor->nbytes;
    survey->dtype_n[tensor->dtype]++;
    survey->dtype_nbytes[tensor->dtype] += tensor->nbytes;
    if (row->role != FQ_ROLE_WEIGHT)
        return;
    survey->n_quantized++;
    survey->quantized_nbytes += tensor->nbytes;
    if (!pair)
        return;
    if (!survey->scale_format) {
        survey->scale_format = row->scale_format;
        survey->block = pair->block;
    }
    if (strcmp(survey->scale_format, row->scale_format) != 0)
        survey->scale_format = "mixed";
    if (survey->block.rows != pair->block.rows || survey->block.cols != pair->block.cols)
        survey->block = (fq_block){0};
}

static int compare_names(const fq_survey_row *a, const fq_survey_row *b) {
    return strcmp(a->tensor->name, b->tensor->name);
}

static int compare_sizes(const void *a, const void *b) {
    const fq_survey_row *x = a, *y = b;
    if (x->tensor->nbytes != y->tensor->nbytes)
        return x->tensor->nbytes > y->tensor->nbytes ? -1 : 1;
    return compare_names(x, y);
}

static int compare_dtypes(const void *a, const void *b) {
    const fq_survey_row *x = a, *y = b;
    if (x->tensor->dtype != y->tensor->dtype)
        return x->tensor->dtype < y->tensor->dtype ? -1 : 1;
    return compare_names(x, y);
}

// The quantization_config of a folder's config.json, or of a lone file's metadata.
static fq_status find_config(fq_survey *survey, const fq_input *input, fq_error *err) {
    if (input->config_text)
        return fq_config_find_quantization(&survey->config, &survey->config_nbytes,
                                           input->config_text, input->config_nbytes, err);
    if (!input->checkpoint.is_folder)
        survey->config = metadata_value(&input->checkpoint.shards[0], "quantization_config");
    survey->config_nbytes = survey->config ? strlen(survey->config) : 0;
    return FQ_OK;
}

static void warn_unmatched(const fq_survey *survey, const fq_checkpoint *checkpoint,
                           const char *glob, fq_messages *warnings) {
    for (size_t i = 0; i < survey->n; i++) {
        if (fq_glob_match(glob, survey->rows[i].tensor->name))
            return;
    }
    fq_messages_add(warnings, "%s: no tensor matches --tensor %s", checkpoint->path, glob);
}

fq_status fq_survey_make(fq_survey *out, const fq_input *input, const char *const *globs,
                         size_t n_globs, fq_survey_order order, fq_messages *warnings,
                         fq_error *err) {
    const fq_checkpoint *checkpoint = &input->checkpoint;
    out->rows = fq_arena_array(&out->arena, checkpoint->n_tensors, sizeof *out->rows);
    if (!out->rows)
        return fq_fail_memory(err);
    fq_status status =
        fq_pair_scales(&out->pairing, &out->arena, checkpoint, &input->model.quant, warnings, err);
    if (!status)
        status = find_config(out, input, err);
    const char *f32_format = NULL;
    if (!status)
        status = name_f32_format(&f32_format, out, input, warnings, err);
    if (status)
        return status;
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        if (fq_glob_chooses(globs, n_globs, checkpoint->by_name[i]->name))
            add_row(out, checkpoint->by_name[i], out->pairing.pair_of[i], f32_format);
    }
    for (size_t i = 0; i < n_globs; i++)
        warn_unmatched(out, checkpoint, globs[i], warnings);
    if (order == FQ_SORT_SIZE)
        qsort(out->rows, out->n, sizeof *out->rows, compare_sizes);
    else if (order == FQ_SORT_DTYPE)
        qsort(out->rows, out->n, sizeof *out->rows, compare_dtypes);
    return FQ_OK;
}

// ---- Values

uint64_t fq_survey_stats_nbytes(const fq_survey *survey) {
    uint64_t nbytes = 0;
    for (size_t i = 0; i < survey->n; i++)
        nbytes +=
            fq_stats_covers(survey->rows[i].tensor->dtype) ? survey->rows[i].tensor->nbytes : 0;
    return nbytes;
}

fq_status fq_survey_read_stats(fq_survey *survey, const fq_input *input, uint64_t *bytes_read,
                               const int *cancelled, fq_messages *warnings, fq_error *err) {
    enum { BUFFER_NBYTES = 4 << 20 };
    void *buffer = malloc(BUFFER_NBYTES);
    if (!buffer)
        return fq_fail_memory(err);
    fq_status status = FQ_OK;
    for (size_t i = 0; i < survey->n && !status; i++) {
        fq_survey_row *row = &survey->rows[i];
        if (row->role == FQ_ROLE_WEIGHT && row->pair)
            status = read_scales(&row->scale_stats, input, row->pair, &row->has_scale_stats,
                                 warnings, err);
        if (status || !fq_stats_covers(row->tensor->dtype))
            continue;
        status = fq_stats_read(&row->stats, &input->checkpoint, row->tensor, buffer, BUFFER_NBYTES,
                               bytes_read, cancelled, err);
        row->has_stats = status == FQ_OK;
    }
    free(buffer);
    return status;
}

void fq_survey_free(fq_survey *survey) { fq_arena_free(&survey->arena); }
