// The options that convert and dequant share: their rows, and the request that they make.
#include "request.h"

#define ROW(member) offsetof(fq_request_options, member)

const fq_opt fq_request_table[] = {
    {"include-file", 0, "GLOB", FQ_OPT_LIST, ROW(include_files),
     "copy weight files that are not the checkpoint's own, such as *.gguf; repeatable"},
    {"dry-run", 'n', NULL, FQ_OPT_FLAG, ROW(dry_run),
     "show the whole plan: output bytes, what is kept and why; write nothing, and end as the run "
     "would where the output is refused"},
    {"force", 'f', NULL, FQ_OPT_FLAG, ROW(force),
     "replace an existing output; all that the old one holds is deleted once the new one is "
     "complete"},
    {"resume", 0, NULL, FQ_OPT_FLAG, ROW(resume),
     "go on with what an interrupted run left in OUTPUT.partial; refused, with the reason, where "
     "options, input or version differ from that run's"},
    {0},
};

fq_request fq_request_make(const fq_request_options *options, const char *input_path,
                           const char *suffix) {
    return (fq_request){
        .common = &options->common,
        .input_path = input_path,
        .output_path = options->output,
        .suffix = suffix,
        .include_files = options->include_files,
        .dry_run = options->dry_run,
        .force = options->force,
        .resume = options->resume,
    };
}
