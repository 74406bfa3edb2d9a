// A lane's buffers, and what is done with one band in them: read, compute, write.
#ifndef FQ_LANE_H
#define FQ_LANE_H

#include "backend.h"
#include "band.h"
#include "run.h"
#include "sink.h"

typedef struct fq_lane {
    const fq_plan *plan;
    const fq_run_options *options;
    uint32_t index;
    unsigned char *in, *out; // host memory of the device: a band before and after
    size_t in_nbytes, out_nbytes;
    uint8_t *turned;       // the codes of a band of a transposed matrix; NULL if the plan has none
    float *scales;         // of a band
    fq_band band;          // the one at work
    fq_step_counts counts; // of that band
    float nonfinite;       // its first element that is, where the counts have any
} fq_lane;

// Allocates the buffers. After any outcome fq_lane_close it.
fq_status fq_lane_open(fq_lane *out, const fq_plan *plan, const fq_run_options *options,
                       uint32_t index, fq_error *err);

// Carries out lane->band: its targets are written to file, and lane->counts set. file NULL: nothing
// is written, for bands that are only looked at. Non-finite elements are counted, not an error,
// and no codes of such a band are written.
fq_status fq_lane_carry_out(fq_lane *lane, fq_sink *sink, fq_sink_file *file, fq_error *err);

// FQ_BAD_INPUT that names the non-finite element which lane->counts tells of.
fq_status fq_lane_fail_nonfinite(const fq_lane *lane, fq_error *err);

void fq_lane_close(fq_lane *lane);

#endif
