// What the user asks convert or dequant for, and the options that both have.
#ifndef FQ_CMD_REQUEST_H
#define FQ_CMD_REQUEST_H

#include "common.h"
#include "lib/plan.h"

// The first member of the options struct of either command.
typedef struct fq_request_options {
    fq_common_options common;
    const char *output; // has a row in the table of either command: its default differs
    fq_opt_list include_files;
    bool dry_run;
    bool force;
    bool resume;
} fq_request_options;

// The rows of the options that mean the same in both.
extern const fq_opt fq_request_table[];

// What the user asked for. One of quantize and dequantize is set.
typedef struct fq_request {
    const fq_common_options *common;
    const char *input_path;
    const char *output_path; // NULL: named after the input
    const char *suffix;      // of that name: "fp8-sm90"
    fq_opt_list include_files;
    bool dry_run;
    bool force;
    bool resume;
    bool checksum; // quantize only
    bool keep_nonfinite;
    const fq_quantize_options *quantize;
    const fq_dequantize_options *dequantize;
} fq_request;

// The request that the options make: the caller adds the rest, quantize or dequantize at least.
// options must live as long.
fq_request fq_request_make(const fq_request_options *options, const char *input_path,
                           const char *suffix);

#endif
