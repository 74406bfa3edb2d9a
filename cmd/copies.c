// --checksum, with progress.
#include "copies.h"

#include "progress.h"
#include "signals.h"

static uint64_t copied_nbytes(const fq_plan *plan) {
    uint64_t sum = 0;
    for (size_t s = 0; s < plan->n_shards; s++) {
        for (size_t i = 0; i < plan->shards[s].n_steps; i++) {
            const fq_step *step = &plan->shards[s].steps[i];
            sum += step->action == FQ_COPY ? step->source->nbytes : 0;
        }
    }
    return sum;
}

// output NULL: reads the input.
static fq_status check_copies(fq_session *session, const fq_output *output, fq_error *err) {
    fq_progress progress = {0};
    fq_progress_view *view;
    if (!session->request->checksum)
        return FQ_OK;
    const fq_check_options options = {.n_threads = session->staging.n_lanes,
                                      .progress = &progress,
                                      .cancelled = &fq_signals_caught};
    fq_progress_start(&view, session->request->common, &progress, copied_nbytes(&session->plan));
    const fq_status status =
        output ? fq_checksums_verify(&session->checksums, &session->plan, output, session->finished,
                                     &options, err)
               : fq_checksums_read(&session->checksums, &session->plan, &options, err);
    fq_progress_stop(view);
    return status;
}

fq_status fq_copies_read(fq_session *session, fq_error *err) {
    return check_copies(session, NULL, err);
}

fq_status fq_copies_verify(fq_session *session, const fq_output *output, fq_error *err) {
    return check_copies(session, output, err);
}
