// The result of inspect, for people and for programs, on stdout.
#ifndef FQ_CMD_INSPECT_H
#define FQ_CMD_INSPECT_H

#include "print.h"
#include "survey.h"

// The list of tensors, folded or not, and the summary.
fq_status fq_inspect_text(const fq_printer *printer, const fq_survey *survey, const fq_input *input,
                          bool folded, fq_error *err);

// The same as JSON.
fq_status fq_inspect_json(const fq_survey *survey, const fq_input *input,
                          const fq_messages *warnings, fq_error *err);

#endif
