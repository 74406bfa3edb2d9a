// The flow of convert and dequant: decide everything, then move bytes once.
#include "session.h"

#include "device.h"
#include "formats/config.h"
#include "formats/output.h"
#include "lib/clock.h"
#include "lib/scale_check.h"
#include "passes.h"
#include "planning.h"
#include "print.h"
#include "resume.h"
#include "signals.h"

#include <stdlib.h>
#include <string.h>

fq_status fq_session_open_input(fq_input *out, const char *path, const fq_opt_list *include_files,
                                fq_reply *reply, fq_error *err) {
    fq_arena arena = {0};
    const fq_input_options options = {.include_files = fq_opt_values(include_files, &arena),
                                      .n_include_files = include_files->n};
    const fq_status status =
        options.include_files
            ? fq_input_open(out, path, &options, &reply->faults, &reply->warnings, err)
            : fq_fail_memory(err);
    fq_arena_free(&arena);
    return status ? status : fq_reply_check_faults(reply, err);
}

// ---- What is found out before anything is written

// The status of what was read, FQ_OK or FQ_BAD_INPUT, unless the input changed under way: its bytes
// may then look bad, or good.
static fq_status check_unchanged(const fq_session *session, fq_status status, fq_error *err) {
    fq_error changed = {0};
    if (fq_input_check_unchanged(&session->input, &changed) == FQ_OK)
        return status;
    *err = changed;
    return changed.status;
}

// Bad scales are found before anything is written. They are not in the headers, but small; on a
// slow disk they take a while all the same, so that an OUTPUT in the way is found before.
static fq_status check_scales(const fq_session *session, fq_reply *reply, fq_error *err) {
    const fq_status status = fq_scale_check(&session->plan, session->staging.n_lanes,
                                            &fq_signals_caught, &reply->faults, err);
    if (status)
        return status;
    if (reply->faults.n > 0 && check_unchanged(session, FQ_OK, err) != FQ_OK) {
        fq_messages_free(&reply->faults);
        return err->status;
    }
    return fq_reply_check_faults(reply, err);
}

static fq_status choose_output(fq_session *session, fq_error *err) {
    const fq_request *request = session->request;
    if (!request->output_path)
        return fq_output_default_path(&session->output_path, &session->input, request->suffix, err);
    session->output_path = strdup(request->output_path);
    return session->output_path ? FQ_OK : fq_fail_memory(err);
}

// ---- Writing

// config.json with quantization_config put in, or taken out; as it is where nothing is quantized.
static fq_status write_config(const fq_session *session, fq_output *output, fq_error *err) {
    const fq_input *input = &session->input;
    const fq_request *request = session->request;
    char *text = NULL;
    size_t nbytes = 0;
    if (!input->config_text)
        return FQ_OK;
    if (request->quantize && !session->quantization_config)
        return fq_output_put(output, "config.json", input->config_text, input->config_nbytes, err);
    fq_status status =
        request->quantize
            ? fq_config_with_quantization(&text, &nbytes, input->config_text, input->config_nbytes,
                                          &session->plan, err)
            : fq_config_without_quantization(&text, &nbytes, input->config_text,
                                             input->config_nbytes, request->dequantize->dtype, err);
    if (!status)
        status = fq_output_put(output, "config.json", text, nbytes, err);
    free(text);
    return status;
}

// Where there were several shards, so that a set that is left with one is still whole, or where
// there was an index. Without tensors there is nothing to index: an empty weight_map is refused.
static fq_status write_index(const fq_session *session, fq_output *output, fq_error *err) {
    const fq_input *input = &session->input;
    const bool is_wanted = input->checkpoint.n_shards > 1 || input->index_name;
    if (!is_wanted || input->checkpoint.n_tensors == 0)
        return FQ_OK;
    char *text = NULL;
    size_t nbytes = 0;
    fq_status status = fq_index_text(&text, &nbytes, &session->plan, input, err);
    if (!status)
        status = fq_output_put(output, fq_output_index_name(input), text, nbytes, err);
    free(text);
    return status;
}

// What lies beside the shards of a folder. A choice of tensors is no model: it gets an index alone.
static fq_status write_companions(const fq_session *session, fq_output *output, fq_error *err) {
    const fq_request *request = session->request;
    if (!session->input.checkpoint.is_folder)
        return FQ_OK;
    const bool whole_model = request->quantize || request->dequantize->n_globs == 0;
    fq_status status = FQ_OK;
    if (whole_model)
        status = fq_output_copy_side_files(output, &session->input, err);
    if (!status)
        status = write_index(session, output, err);
    if (!status && whole_model)
        status = write_config(session, output, err);
    return status;
}

// Opens the device and runs the plan on it.
static fq_status run_on_device(fq_session *session, fq_output *output, fq_reply *reply,
                               fq_error *err) {
    const fq_staging *staging = &session->staging;
    const fq_backend *backend = NULL;
    fq_device *device = NULL;
    fq_status status = fq_session_open_device(&device, &backend, session, reply, err);
    if (status)
        return status;
    const fq_run_options options = {
        .backend = backend,
        .device = device,
        .n_lanes = staging->n_lanes,
        .band_elements = staging->band_elements,
        .cancelled = &fq_signals_caught,
    };
    session->device = backend->name;
    session->device_description = fq_arena_printf(&session->arena, "%s", backend->describe(device));
    status = session->device_description ? fq_passes_run(session, output, &options, reply, err)
                                         : fq_fail_memory(err);
    backend->close(device);
    return status;
}

// Finished shards are worth keeping where the run could not help it; what an interrupted run left
// even before it is known how much that is.
static void abandon(const fq_session *session, fq_output *output, fq_status status,
                    fq_reply *reply) {
    const bool is_blameless = status == FQ_IO || status == FQ_DEVICE || status == FQ_CANCELLED;
    size_t n_kept = 0;
    for (size_t i = 0; i < session->plan.n_shards && is_blameless && session->finished; i++)
        n_kept += session->finished[i];
    const bool keep = is_blameless && (n_kept > 0 || fq_output_found(output));
    fq_error removal = {0};
    fq_output_abandon(output, keep, &removal);
    if (keep)
        fq_messages_add(&reply->notes,
                        "%s.partial: is left behind with %zu finished shard%s; go on with "
                        "--resume, or discard it with --force",
                        session->output_path, n_kept, fq_plural(n_kept));
    if (removal.status)
        fq_messages_add(&reply->notes, "%s.partial: is left behind, and could not be removed; %s",
                        session->output_path, removal.text);
}

static fq_status check_cancelled(fq_error *err) {
    if (__atomic_load_n(&fq_signals_caught, __ATOMIC_RELAXED) == 0)
        return FQ_OK;
    return fq_fail(err, FQ_CANCELLED, "interrupted");
}

static fq_output_options output_options(const fq_session *session) {
    return (fq_output_options){.force = session->request->force,
                               .resume = session->request->resume,
                               .needed_nbytes = session->plan.bytes_out,
                               .run = &session->asked_for,
                               .plan = &session->plan};
}

fq_status fq_session_check_output(const fq_session *session, fq_error *err) {
    const fq_output_options options = output_options(session);
    const fq_status status = fq_session_check_device(session, err);
    return status ? status
                  : fq_output_examine(session->output_path, &session->input, &options, err);
}

static fq_status make_room_for_results(fq_session *session, fq_error *err) {
    const size_t n_shards = session->plan.n_shards;
    fq_arena *arena = &session->arena;
    session->counts = fq_arena_array(arena, n_shards, sizeof *session->counts);
    session->finished = fq_arena_array(arena, n_shards, sizeof *session->finished);
    session->nonfinite =
        fq_arena_array(arena, session->input.checkpoint.n_tensors, sizeof *session->nonfinite);
    return session->counts && session->finished && session->nonfinite ? FQ_OK : fq_fail_memory(err);
}

// Everything but the output's name.
static fq_status fill_output(fq_session *session, fq_output *output, fq_reply *reply,
                             fq_error *err) {
    fq_status status = make_room_for_results(session, err);
    if (!status && fq_output_found(output))
        status = fq_resume_take_up(session, output, reply, err);
    if (status || fq_output_is_published(output))
        return status;
    status = run_on_device(session, output, reply, err);
    if (!status)
        status = write_companions(session, output, err);
    if (!status || status == FQ_BAD_INPUT)
        status = check_unchanged(session, status, err);
    return status ? status : check_cancelled(err);
}

static fq_status write_output(fq_session *session, fq_reply *reply, fq_error *err) {
    fq_output_options options = output_options(session);
    options.warnings = &reply->warnings;
    fq_output *output = NULL;
    fq_status status =
        fq_output_open(&output, session->output_path, &session->input, &options, err);
    if (status)
        return status;
    status = fill_output(session, output, reply, err);
    if (!status)
        return fq_output_commit(output, err);
    abandon(session, output, status, reply);
    return status;
}

// ---- The whole

void fq_session_warn_packed(fq_messages *warnings, const char *cure) {
    fq_messages_add(warnings,
                    "packed scales are DeepGEMM's own operand: no engine loads them from a folder "
                    "yet%s",
                    cure);
}

static void add_plan_warnings(const fq_session *session, fq_reply *reply) {
    for (size_t i = 0; i < session->plan_warnings.n; i++)
        fq_messages_add(&reply->warnings, "%s", session->plan_warnings.lines[i]);
}

fq_status fq_session_run(fq_session *out, const fq_request *request, fq_reply *reply,
                         fq_error *err) {
    const double start = fq_clock_seconds();
    out->request = request;
    out->staging = fq_common_staging(request->common);
    fq_status status = fq_session_open_input(&out->input, request->input_path,
                                             &request->include_files, reply, err);
    if (!status)
        status = fq_session_plan(out, NULL, 0, reply, err);
    if (!status)
        status = choose_output(out, err);
    if (!status && (!request->dry_run || request->resume))
        status = fq_resume_describe(&out->asked_for, out, err);
    // A dry run shows its plan first: the caller then asks for this check.
    if (!status && !request->dry_run)
        status = fq_session_check_output(out, err);
    if (!status && request->dequantize)
        status = check_scales(out, reply, err);
    if (!status && !request->dry_run)
        status = write_output(out, reply, err);
    add_plan_warnings(out, reply);
    if (!status && request->quantize && out->plan.scale_format == FQ_SCALE_PACKED)
        fq_session_warn_packed(&reply->warnings,
                               "; --scale-format pow2 serves Hopper and Blackwell");
    out->seconds = fq_clock_seconds() - start;
    return status;
}

void fq_session_close(fq_session *session) {
    fq_plan_free(&session->plan);
    fq_checksums_finish(&session->checksums);
    fq_input_close(&session->input);
    free(session->output_path);
    free(session->quantization_config);
    fq_messages_free(&session->plan_warnings);
    fq_arena_free(&session->arena);
}
