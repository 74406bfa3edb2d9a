// The one loop: carries out a plan, band by band, in as many lanes as asked.
#ifndef FQ_RUN_H
#define FQ_RUN_H

#include "backend.h"
#include "band.h"
#include "plan.h"
#include "sink.h"
#include "step_counts.h"

// How far a run is. Written by the run, read by other threads through fq_progress_load.
typedef struct fq_progress {
    uint64_t bytes_read;    // of plan->bytes_in
    uint64_t bytes_written; // of plan->bytes_out
    const char *tensor;     // the one begun last, NULL at first; lives as long as the plan
} fq_progress;

// A copy of the figures, each of them read atomically.
fq_progress fq_progress_load(const fq_progress *progress);

// Told of every shard that was committed, by the lane that ended it; several lanes may do so at
// once. counts: [n_steps] of the shard, final.
typedef void fq_run_listener(void *context, size_t shard, const fq_sink_digest *digest,
                             const fq_step_counts *counts);

typedef struct fq_run_options {
    const fq_backend *backend;
    fq_device *device;          // opened with n_lanes and band_elements
    uint32_t n_lanes;           // at least 1: threads that read, compute and write side by side
    size_t band_elements;       // of the largest band, FQ_MIN_BAND_ELEMENTS at least
    bool keep_nonfinite;        // go on where a tensor to be quantized holds NaN or Inf
    const bool *skip;           // [plan->n_shards]: shards that need no work, or NULL
    fq_progress *progress;      // or NULL
    const int *cancelled;       // read atomically: the run stops soon after it is not 0; or NULL
    fq_run_listener *committed; // or NULL
    void *committed_context;
} fq_run_options;

typedef struct fq_run_result {
    fq_step_counts **counts; // [n_shards][n_steps]
    bool *done;              // [n_shards]: committed, or skipped
    const fq_tensor *
        *nonfinite; // [n_nonfinite]: with keep_nonfinite, tensors that cannot be quantized
    size_t n_nonfinite;
    fq_arena arena; // owns the above
} fq_run_result;

// Carries out the plan. A fault of the input is that of the first band, in the plan's order, that
// has one, whatever the number of lanes. A shard that holds a non-finite tensor is not committed;
// without keep_nonfinite the run then ends with FQ_BAD_INPUT, naming the element. Any error drains
// every lane and aborts the shards that are open; committed ones stay. Zeroed *out before;
// fq_run_result_free it after any outcome.
fq_status fq_run(fq_run_result *out, const fq_plan *plan, fq_sink *sink,
                 const fq_run_options *options, fq_error *err);

void fq_run_result_free(fq_run_result *result);

#endif
