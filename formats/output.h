// OUTPUT: built as OUTPUT.partial beside it, complete under its final name by one rename, or
// absent.
#ifndef FQ_FORMATS_OUTPUT_H
#define FQ_FORMATS_OUTPUT_H

#include "input.h"
#include "lib/plan.h"
#include "lib/sink.h"

typedef struct fq_output fq_output;

// Where the output goes if the user did not say: `NAME-SUFFIX` beside the input, or `./REPO-SUFFIX`
// for a snapshot of a Hugging Face cache. *out is owned by the caller (free).
fq_status fq_output_default_path(char **out, const fq_input *input, const char *suffix,
                                 fq_error *err);

typedef struct fq_output_options {
    bool force;             // replace an existing OUTPUT at the end, discard an existing .partial
    uint64_t needed_nbytes; // of tensor data: with what goes along, checked against the free space
} fq_output_options;

// Checks what can be checked (output absent or force; not equal to, inside, around or hard-linked
// to the input, nor in its repository of a Hugging Face cache; may be replaced, nothing mounted in
// it; side files readable; parent there and writable; room; no .partial; not in use by another run)
// without leaving anything, then makes and locks OUTPUT.partial: a folder, or a file for a lone
// file.
// A link at OUTPUT is never written through; force replaces the link itself. FQ_USAGE or FQ_IO.
fq_status fq_output_open(fq_output **out, const char *path, const fq_input *input,
                         const fq_output_options *options, fq_error *err);

// The checks of fq_output_open alone: says what it would say now, and leaves everything as it is.
fq_status fq_output_examine(const char *path, const fq_input *input,
                            const fq_output_options *options, fq_error *err);

// The sink for the plan's shards: headers by fq_safetensors_header, fsync and rename at commit. A
// lone file takes one shard at a time; a later one replaces it. Borrowed from output.
fq_sink *fq_output_sink(fq_output *output);

// Copies the input's side files of kind FQ_SIDE_COPY, links followed: with the source's times, and
// its mode less the umask, as a new file gets it. Fsynced.
fq_status fq_output_copy_side_files(fq_output *output, const fq_input *input, fq_error *err);

// Writes a whole file (index, config.json) into the output folder, fsynced.
fq_status fq_output_put(fq_output *output, const char *name, const char *text, size_t nbytes,
                        fq_error *err);

// Fsyncs, renames OUTPUT.partial to OUTPUT (replacing an old one under force), fsyncs the parent.
// Ends output in any case. After a failure either OUTPUT is as before and the finished files stay
// in OUTPUT.partial, or OUTPUT is complete and only the old one could not be removed: err says
// which.
fq_status fq_output_commit(fq_output *output, fq_error *err);

// Gives up. With keep_shards finished shards stay in OUTPUT.partial, and their number is returned;
// where there is none it is removed without a trace, and 0 returned; err says why if that failed.
// Ends output. NULL is taken.
size_t fq_output_abandon(fq_output *output, bool keep_shards, fq_error *err);

// The index of a plan's shards: weight_map, exact total_size, other metadata kept. *out is owned by
// the caller (free).
fq_status fq_index_text(char **out, size_t *nbytes, const fq_plan *plan, const fq_input *input,
                        fq_error *err);

#endif
