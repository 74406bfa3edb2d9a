// The plan of a session, and what follows from it: quantization_config, checksums.
#include "planning.h"

#include "formats/config.h"

#include <stdlib.h>
#include <string.h>

// A lone file has no config.json: its metadata carry the quantization_config.
static fq_status add_config_to_metadata(fq_session *session, fq_error *err) {
    fq_arena *arena = &session->plan.arena;
    fq_shard *layout = &session->plan.shards[0].layout;
    const size_t n = layout->n_metadata;
    char *config = NULL;
    const fq_status status = fq_config_quantization(&config, &session->plan, 0, err);
    if (status)
        return status;
    fq_metadata *metadata = fq_arena_array(arena, n + 1, sizeof *metadata);
    char *value = fq_arena_strndup(arena, config, strlen(config));
    free(config);
    if (!metadata || !value)
        return fq_fail_memory(err);
    memcpy(metadata, layout->metadata, n * sizeof *metadata);
    metadata[n] = (fq_metadata){.key = "quantization_config", .value = value};
    fq_metadata_sort(metadata, n + 1);
    layout->metadata = metadata;
    layout->n_metadata = n + 1;
    return FQ_OK;
}

static fq_status add_checksums(fq_session *session, fq_error *err) {
    fq_checksums *checksums = &session->checksums;
    const fq_status status =
        checksums->items ? FQ_OK : fq_checksums_init(checksums, &session->input.checkpoint, err);
    return status ? status : fq_checksums_plan(checksums, &session->plan, err);
}

// None where nothing is quantized: it would speak of FP8 weights that are not there.
static fq_status make_quantization_config(fq_session *session, fq_error *err) {
    enum { INDENT = 2 };
    free(session->quantization_config);
    session->quantization_config = NULL;
    if (fq_plan_arithmetic_nbytes(&session->plan) == 0)
        return FQ_OK;
    const fq_status status =
        fq_config_quantization(&session->quantization_config, &session->plan, INDENT, err);
    if (status || session->input.checkpoint.is_folder)
        return status;
    return add_config_to_metadata(session, err);
}

fq_status fq_session_plan(fq_session *session, const fq_tensor *const *nonfinite, size_t n,
                          fq_reply *reply, fq_error *err) {
    const fq_request *request = session->request;
    const fq_checkpoint *checkpoint = &session->input.checkpoint;
    const fq_model *model = &session->input.model;
    fq_messages *faults = &reply->faults, *warnings = &session->plan_warnings;
    fq_status status;
    fq_messages_free(warnings); // of an older plan
    if (request->quantize) {
        fq_quantize_options options = *request->quantize;
        options.policy.nonfinite = nonfinite;
        options.policy.n_nonfinite = n;
        status =
            fq_plan_quantize(&session->plan, checkpoint, model, &options, faults, warnings, err);
    } else {
        status = fq_plan_dequantize(&session->plan, checkpoint, model, request->dequantize, faults,
                                    warnings, err);
    }
    if (!status)
        status = fq_reply_check_faults(reply, err);
    if (!status && request->quantize)
        status = make_quantization_config(session, err);
    if (!status && request->checksum)
        status = add_checksums(session, err);
    return status;
}
