// Looks at every scale of a dequant plan before anything is written.
#ifndef FQ_SCALE_CHECK_H
#define FQ_SCALE_CHECK_H

#include "plan.h"

// Reads all scales that the plan's steps will use, in n_workers threads. The first bad scale of
// each matrix (NaN, infinite, negative, packed rows that disagree) is one line in faults. FQ_OK
// with faults; other statuses if reading fails, memory runs out, or *cancelled (or NULL) is set.
fq_status fq_scale_check(const fq_plan *plan, uint32_t n_workers, const int *cancelled,
                         fq_messages *faults, fq_error *err);

#endif
