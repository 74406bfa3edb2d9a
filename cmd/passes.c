// Passes over a plan: one, unless non-finite tensors are kept.
#include "passes.h"

#include "progress.h"

#include <assert.h>
#include <string.h>

typedef struct passes {
    fq_session *session;
    fq_sink *sink;
    const fq_run_options *options;
    bool *done;                  // [n_shards]: need no work in the next pass
    const fq_tensor **nonfinite; // [n_nonfinite], of all passes; room for every tensor
    size_t n_nonfinite;
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

static fq_status run_once(passes *p, fq_run_result *result, fq_error *err) {
    fq_progress progress = {0};
    fq_run_options options = *p->options;
    options.keep_nonfinite = p->session->request->keep_nonfinite;
    options.skip = p->done;
    options.progress = &progress;
    fq_progress_view *view;
    fq_progress_start(&view, p->session->request->common, &progress,
                      p->session->plan.bytes_in + p->session->plan.bytes_out);
    const fq_status status = fq_run(result, &p->session->plan, p->sink, &options, err);
    fq_progress_stop(view);
    return status ? status : keep_counts(p, result, err);
}

static void note_nonfinite(passes *p, const fq_run_result *result, fq_reply *reply) {
    const fq_checkpoint *checkpoint = &p->session->input.checkpoint;
    for (size_t i = 0; i < result->n_nonfinite; i++) {
        const fq_tensor *tensor = result->nonfinite[i];
        assert(p->n_nonfinite < checkpoint->n_tensors);
        p->nonfinite[p->n_nonfinite++] = tensor;
        fq_messages_add(&reply->warnings, "%s: %s: holds NaN or Inf; kept unquantized",
                        fq_tensor_file(checkpoint, tensor), tensor->name);
    }
}

// Plans again; shards that come out as before stay done.
static fq_status plan_again(passes *p, fq_reply *reply, fq_error *err) {
    fq_session *session = p->session;
    fq_plan before = session->plan;
    memset(&session->plan, 0, sizeof session->plan);
    const fq_status status = fq_session_plan(session, p->nonfinite, p->n_nonfinite, reply, err);
    for (size_t i = 0; i < before.n_shards && !status; i++) {
        if (!fq_plan_shard_equal(&before.shards[i], &session->plan.shards[i]))
            p->done[i] = false;
    }
    fq_plan_free(&before);
    return status;
}

fq_status fq_passes_run(fq_session *session, fq_sink *sink, const fq_run_options *options,
                        fq_reply *reply, fq_error *err) {
    const size_t n_shards = session->plan.n_shards;
    passes p = {.session = session, .sink = sink, .options = options};
    session->counts = fq_arena_array(&session->arena, n_shards, sizeof *session->counts);
    p.done = fq_arena_array(&session->arena, n_shards, sizeof *p.done);
    p.nonfinite =
        fq_arena_array(&session->arena, session->input.checkpoint.n_tensors, sizeof *p.nonfinite);
    if (!session->counts || !p.done || !p.nonfinite)
        return fq_fail_memory(err);
    for (;;) {
        fq_run_result result = {0};
        fq_status status = run_once(&p, &result, err);
        const bool again = !status && result.n_nonfinite > 0;
        note_nonfinite(&p, &result, reply);
        fq_run_result_free(&result);
        if (again)
            status = plan_again(&p, reply, err);
        if (status || !again)
            return status;
    }
}
