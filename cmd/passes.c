// Passes over a plan: one, unless non-finite tensors are kept.
#include "passes.h"

#include "copies.h"
#include "planning.h"
#include "progress.h"

#include <assert.h>
#include <string.h>

typedef struct passes {
    fq_session *session;
    fq_output *output;
    const fq_run_options *options;
    bool *done; // [n_shards]: need no work in the next pass
} passes;

// Moves a pass's counts into the session: the plan's steps may yet be made anew.
static fq_status keep_counts(passes *p, const fq_run_result *result, fq_error *err) {
    fq_session *session = p->session;
    for (size_t i = 0; i < session->plan.n_shards; i++) {
        if (p->done[i] || !result->done[i])
            continue;
        const size_t n_steps = session->plan.shards[i].n_steps;
        fq_step_counts *counts = fq_arena_array(&session->arena, n_steps, sizeof *counts);
        if (!counts)
            return fq_fail_memory(err);
        memcpy(counts, result->counts[i], n_steps * sizeof *counts);
        session->counts[i] = counts;
        p->done[i] = true;
    }
    return FQ_OK;
}

// A shard is finished once the journal names it: then a later run can take it.
static void note_committed(void *context, size_t shard, const fq_sink_digest *digest,
                           const fq_step_counts *counts) {
    passes *p = context;
    p->session->finished[shard] =
        fq_output_note_shard(p->output, &p->session->plan.shards[shard], digest, counts);
}

// Bytes that the next pass reads and writes.
static uint64_t left_nbytes(const passes *p) {
    const fq_plan *plan = &p->session->plan;
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->n_shards; i++) {
        if (!p->done[i])
            sum += fq_plan_shard_nbytes_in(&plan->shards[i]) + plan->shards[i].layout.data_nbytes;
    }
    return sum;
}

static fq_status run_once(passes *p, fq_run_result *result, fq_error *err) {
    fq_progress progress = {0};
    fq_run_options options = *p->options;
    options.keep_nonfinite = p->session->request->keep_nonfinite;
    options.skip = p->done;
    options.progress = &progress;
    options.committed = note_committed;
    options.committed_context = p;
    fq_progress_view *view;
    fq_progress_start(&view, p->session->request->common, &progress, left_nbytes(p));
    const fq_status status =
        fq_run(result, &p->session->plan, fq_output_sink(p->output), &options, err);
    fq_progress_stop(view);
    return status ? status : keep_counts(p, result, err);
}

void fq_passes_warn_nonfinite(const fq_session *session, const fq_tensor *tensor, fq_reply *reply) {
    fq_messages_add(&reply->warnings, "%s: %s: holds NaN or Inf; kept unquantized",
                    fq_tensor_file(&session->input.checkpoint, tensor), tensor->name);
}

static void note_nonfinite(passes *p, const fq_run_result *result, fq_reply *reply) {
    fq_session *session = p->session;
    for (size_t i = 0; i < result->n_nonfinite; i++) {
        assert(session->n_nonfinite < session->input.checkpoint.n_tensors);
        session->nonfinite[session->n_nonfinite++] = result->nonfinite[i];
        fq_passes_warn_nonfinite(session, result->nonfinite[i], reply);
    }
    if (result->n_nonfinite > 0)
        fq_output_note_nonfinite(p->output, result->nonfinite, result->n_nonfinite);
}

// Plans again; shards that come out as before stay done.
static fq_status plan_again(passes *p, fq_reply *reply, fq_error *err) {
    fq_session *session = p->session;
    fq_plan before = session->plan;
    memset(&session->plan, 0, sizeof session->plan);
    const fq_status status =
        fq_session_plan(session, session->nonfinite, session->n_nonfinite, reply, err);
    for (size_t i = 0; i < before.n_shards && !status; i++) {
        if (!fq_plan_shard_equal(&before.shards[i], &session->plan.shards[i]))
            p->done[i] = session->finished[i] = false;
    }
    fq_plan_free(&before);
    return status;
}

fq_status fq_passes_run(fq_session *session, fq_output *output, const fq_run_options *options,
                        fq_reply *reply, fq_error *err) {
    const size_t n_shards = session->plan.n_shards;
    passes p = {.session = session, .output = output, .options = options};
    p.done = fq_arena_array(&session->arena, n_shards, sizeof *p.done);
    if (!p.done)
        return fq_fail_memory(err);
    memcpy(p.done, session->finished, n_shards * sizeof *p.done);
    for (;;) {
        fq_run_result result = {0};
        fq_status status = fq_copies_read(session, err);
        if (!status)
            status = run_once(&p, &result, err);
        const bool again = !status && result.n_nonfinite > 0;
        note_nonfinite(&p, &result, reply);
        fq_run_result_free(&result);
        if (again)
            status = plan_again(&p, reply, err);
        if (status)
            return status;
        if (!again)
            return fq_copies_verify(session, output, err);
    }
}
