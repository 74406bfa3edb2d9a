// --activations of verify: what it says, and the file that it may name.
#ifndef FQ_CMD_ACTIVATIONS_OPTION_H
#define FQ_CMD_ACTIVATIONS_OPTION_H

#include "command.h"
#include "formats/input.h"
#include "lib/activations.h"

typedef struct fq_activations_request {
    fq_activations_options options;
    fq_input file; // of captured ones
} fq_activations_request;

// Parses "normal", "outlier[:MAG]" or the path of a .safetensors file, which is opened. FQ_USAGE if
// it is none of these, or the file is of no use. Zeroed *out before; fq_activations_request_close
// it after any outcome.
fq_status fq_activations_request_open(fq_activations_request *out, const char *text,
                                      uint64_t tokens, uint64_t seed, fq_reply *reply,
                                      fq_error *err);

void fq_activations_request_close(fq_activations_request *request);

#endif
