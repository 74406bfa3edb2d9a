// The journal's side of a session: what is compared, and what is taken from an interrupted run.
#include "resume.h"

#include "copies.h"
#include "formats/crc.h"
#include "formats/file.h"
#include "formats/input_path.h"
#include "lib/stats.h"
#include "passes.h"
#include "planning.h"
#include "progress.h"
#include "signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_NBYTES = 1 << 20, MAX_OPTIONS = 16 };

// ---- What was asked for

// Adds an option with room for n values.
static const char **add_option(fq_journal_run *run, fq_arena *arena, const char *name, size_t n) {
    fq_journal_option *option = &run->options[run->n_options++];
    *option = (fq_journal_option){.name = name, .n_values = n};
    option->values = fq_arena_array(arena, n, sizeof *option->values);
    return option->values;
}

static bool add_value(fq_journal_run *run, fq_arena *arena, const char *name, const char *value) {
    const char **values = add_option(run, arena, name, 1);
    if (values)
        values[0] = value;
    return values && value;
}

static bool add_globs(fq_journal_run *run, fq_arena *arena, const char *name,
                      const char *const *globs, size_t n) {
    const char **values = add_option(run, arena, name, n);
    for (size_t i = 0; i < n && values; i++)
        values[i] = globs[i];
    return values;
}

// --include and --exclude are one list: their order counts.
static bool add_rules(fq_journal_run *run, fq_arena *arena, const fq_policy_options *policy) {
    const char **values = add_option(run, arena, "--include and --exclude", policy->n_rules);
    for (size_t i = 0; i < policy->n_rules && values; i++) {
        const fq_name_rule *rule = &policy->rules[i];
        values[i] =
            fq_arena_printf(arena, "--%s %s", rule->include ? "include" : "exclude", rule->glob);
        if (!values[i])
            return false;
    }
    return values;
}

// The fewest digits that stand for this float and no other.
static const char *float_text(fq_arena *arena, float value) {
    enum { MAX_DIGITS = 9 };
    char text[32];
    for (int n = 1; n <= MAX_DIGITS; n++) {
        snprintf(text, sizeof text, "%.*g", n, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return fq_arena_printf(arena, "%s", text);
}

static bool add_quantize_options(fq_journal_run *run, fq_arena *arena, const fq_request *request) {
    const fq_quantize_options *options = request->quantize;
    return add_value(run, arena, "--arch", options->arch) &&
           add_value(run, arena, "--scale-format", fq_scale_format_name(options->scale_format)) &&
           add_rules(run, arena, &options->policy) &&
           add_value(run, arena, "--experts",
                     options->policy.keep_fused_experts ? "keep" : "split") &&
           add_value(run, arena, "--on-nonfinite", request->keep_nonfinite ? "keep" : "error") &&
           add_value(run, arena, "--amax-floor", float_text(arena, options->amax_floor)) &&
           add_value(run, arena, "--checksum", request->checksum ? "given" : "not given");
}

static bool add_dequantize_options(fq_journal_run *run, fq_arena *arena,
                                   const fq_request *request) {
    const fq_dequantize_options *options = request->dequantize;
    return add_value(run, arena, "--dtype", fq_dtype_name(options->dtype)) &&
           add_globs(run, arena, "--tensor", options->globs, options->n_globs);
}

static fq_status add_options(fq_journal_run *run, fq_arena *arena, const fq_request *request,
                             fq_error *err) {
    run->options = fq_arena_array(arena, MAX_OPTIONS, sizeof *run->options);
    const char **globs = fq_opt_values(&request->include_files, arena);
    const bool done = run->options && globs &&
                      (request->quantize ? add_quantize_options(run, arena, request)
                                         : add_dequantize_options(run, arena, request)) &&
                      add_globs(run, arena, "--include-file", globs, request->include_files.n);
    return done ? FQ_OK : fq_fail_memory(err);
}

// ---- Its input

static fq_status crc_of_start(uint32_t *out, fq_source *source, uint64_t nbytes, char *buffer,
                              fq_error *err) {
    *out = 0;
    for (uint64_t at = 0; at < nbytes;) {
        const uint64_t left = nbytes - at;
        const size_t n = left < BUFFER_NBYTES ? (size_t)left : BUFFER_NBYTES;
        const fq_status status = source->read(source, at, buffer, n, err);
        if (status)
            return status;
        *out = fq_crc32(*out, buffer, n);
        at += n;
    }
    return FQ_OK;
}

// A text that the input was read from, index or config.json: short enough to be compared whole.
static fq_status add_text(fq_journal_run *run, const fq_input *input, const char *name,
                          char *buffer, fq_error *err) {
    fq_source *source = NULL;
    fq_status status = fq_input_open_file(&source, input, name, err);
    if (status)
        return status;
    fq_journal_input *file = &run->inputs[run->n_inputs++];
    *file = (fq_journal_input){.name = name, .nbytes = source->nbytes};
    status = crc_of_start(&file->crc32, source, source->nbytes, buffer, err);
    fq_file_close(source);
    return status;
}

static fq_status add_inputs(fq_journal_run *run, fq_arena *arena, const fq_input *input,
                            fq_error *err) {
    const fq_checkpoint *checkpoint = &input->checkpoint;
    fq_status status = FQ_OK;
    char *buffer = malloc(BUFFER_NBYTES);
    run->inputs = fq_arena_array(arena, checkpoint->n_shards + 2, sizeof *run->inputs);
    if (!buffer || !run->inputs)
        status = fq_fail_memory(err);
    for (size_t i = 0; i < checkpoint->n_shards && !status; i++) {
        const fq_shard *shard = &checkpoint->shards[i];
        fq_journal_input *file = &run->inputs[run->n_inputs++];
        *file = (fq_journal_input){.name = shard->name,
                                   .nbytes = shard->source->nbytes,
                                   .mtime_ns = fq_file_mtime_ns(shard->source)};
        status = crc_of_start(&file->crc32, shard->source, shard->data_start, buffer, err);
    }
    if (!status && input->index_name)
        status = add_text(run, input, input->index_name, buffer, err);
    if (!status && input->config_text)
        status = add_text(run, input, "config.json", buffer, err);
    free(buffer);
    return status;
}

fq_status fq_resume_describe(fq_journal_run *out, fq_session *session, fq_error *err) {
    const fq_request *request = session->request;
    *out = (fq_journal_run){.version = FQ_VERSION,
                            .command = request->quantize ? "convert" : "dequant"};
    const fq_status status = add_options(out, &session->arena, request, err);
    return status ? status : add_inputs(out, &session->arena, &session->input, err);
}

// ---- Going on

// Sets chosen[i] where the plan quantizes tensor number i of the checkpoint's names.
static void mark_chosen(bool *chosen, const fq_session *session) {
    const fq_plan *plan = &session->plan;
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            if (step->action == FQ_QUANTIZE)
                chosen[fq_checkpoint_position(plan->checkpoint, step->source->name)] = true;
        }
    }
}

// A journal is a file that may have been changed: no tensor stays unquantized on its word.
static fq_status take_nonfinite(fq_session *session, const fq_journal *found, fq_error *err) {
    const fq_checkpoint *checkpoint = &session->input.checkpoint;
    fq_status status = FQ_OK;
    char *buffer = malloc(BUFFER_NBYTES);
    bool *chosen = calloc(checkpoint->n_tensors + 1, sizeof *chosen);
    if (buffer && chosen)
        mark_chosen(chosen, session);
    else
        status = fq_fail_memory(err);
    for (size_t i = 0; i < found->n_nonfinite && !status; i++) {
        fq_stats stats;
        const size_t position = fq_checkpoint_position(checkpoint, found->nonfinite[i]);
        if (position == SIZE_MAX || !chosen[position])
            continue;
        chosen[position] = false; // once is enough
        const fq_tensor *tensor = checkpoint->by_name[position];
        status = fq_stats_read(&stats, checkpoint, tensor, buffer, BUFFER_NBYTES, NULL,
                               &fq_signals_caught, err);
        if (!status && stats.n_nans + stats.n_infs > 0)
            session->nonfinite[session->n_nonfinite++] = tensor;
    }
    free(chosen);
    free(buffer);
    return status;
}

static fq_status keep_nonfinite(fq_session *session, const fq_journal *found, fq_reply *reply,
                                fq_error *err) {
    const fq_status status = take_nonfinite(session, found, err);
    if (status || session->n_nonfinite == 0)
        return status;
    for (size_t i = 0; i < session->n_nonfinite; i++)
        fq_passes_warn_nonfinite(session, session->nonfinite[i], reply);
    fq_plan_free(&session->plan);
    return fq_session_plan(session, session->nonfinite, session->n_nonfinite, reply, err);
}

// Zeroed counts for a shard of the plan as it stands.
static fq_status clear_counts(fq_session *session, size_t i, fq_error *err) {
    const size_t n_steps = session->plan.shards[i].n_steps;
    session->counts[i] = fq_arena_array(&session->arena, n_steps, sizeof **session->counts);
    return session->counts[i] ? FQ_OK : fq_fail_memory(err);
}

// Puts the counts of the lines in their places. A line whose counts cannot be right is dropped.
static fq_status take_counts(fq_session *session, const fq_journal_shard **lines, fq_error *err) {
    for (size_t i = 0; i < session->plan.n_shards; i++) {
        fq_status status = clear_counts(session, i, err);
        if (!status && lines[i] &&
            !fq_journal_counts(session->counts[i], lines[i], &session->plan.shards[i])) {
            lines[i] = NULL;
            status = clear_counts(session, i, err);
        }
        if (status)
            return status;
    }
    return FQ_OK;
}

static fq_status check_shards(fq_session *session, fq_output *output,
                              const fq_journal_shard *const *lines, fq_error *err) {
    const size_t n_shards = session->plan.n_shards;
    fq_progress progress = {0};
    fq_progress_view *view;
    uint64_t total_nbytes = 0;
    bool *accepted = calloc(n_shards + 1, sizeof *accepted);
    if (!accepted)
        return fq_fail_memory(err);
    for (size_t i = 0; i < n_shards; i++)
        total_nbytes += lines[i] ? session->plan.shards[i].layout.data_nbytes : 0;
    const fq_check_options options = {.n_threads = session->staging.n_lanes,
                                      .progress = &progress,
                                      .cancelled = &fq_signals_caught};
    fq_progress_start(&view, session->request->common, &progress, total_nbytes);
    const fq_status status =
        fq_output_take_up(accepted, output, &session->plan, lines, &options, err);
    fq_progress_stop(view);
    if (!status)
        memcpy(session->finished, accepted, n_shards * sizeof *accepted);
    free(accepted);
    return status;
}

fq_status fq_resume_take_up(fq_session *session, fq_output *output, fq_reply *reply,
                            fq_error *err) {
    const fq_journal *found = fq_output_found(output);
    const fq_journal_shard **lines = NULL;
    fq_arena arena = {0};
    // The shards are the same, in the same order, however often the plan is made.
    fq_status status = fq_journal_match(&lines, &arena, found, &session->plan, err);
    // Until they are checked they are as good as finished: an interruption must not cost them.
    for (size_t i = 0; i < session->plan.n_shards && !status; i++)
        session->finished[i] = lines[i] != NULL;
    if (!status)
        status = keep_nonfinite(session, found, reply, err);
    if (!status)
        status = take_counts(session, lines, err);
    if (!status)
        status = fq_copies_read(session, err); // they are in the headers
    if (!status && !fq_output_is_published(output))
        status = check_shards(session, output, lines, err);
    for (size_t i = 0; i < session->plan.n_shards && !status; i++) {
        const fq_plan_shard *shard = &session->plan.shards[i];
        if (!session->finished[i])
            continue;
        session->n_taken++;
        session->taken_nbytes_in += fq_plan_shard_nbytes_in(shard);
        session->taken_nbytes_out += shard->layout.data_nbytes;
    }
    fq_arena_free(&arena);
    return status;
}
