// OUTPUT: built as OUTPUT.partial beside it, complete under its final name by one rename, or
// absent.
#ifndef FQ_FORMATS_OUTPUT_H
#define FQ_FORMATS_OUTPUT_H

#include "input.h"
#include "journal.h"
#include "lib/plan.h"
#include "lib/sink.h"

typedef struct fq_output fq_output;

// Where the output goes if the user did not say: `NAME-SUFFIX` beside the input, or `./REPO-SUFFIX`
// for a snapshot of a Hugging Face cache. *out is owned by the caller (free).
fq_status fq_output_default_path(char **out, const fq_input *input, const char *suffix,
                                 fq_error *err);

typedef struct fq_output_options {
    bool force;             // replace an existing OUTPUT at the end, discard an existing .partial
    bool resume;            // go on with an existing .partial, instead of discarding it
    uint64_t needed_nbytes; // of tensor data: with what goes along, checked against the free space
    const fq_journal_run *run; // what is asked for: for the journal, and for resume
    const fq_plan *plan;       // resume: the shards, by name
    fq_messages *warnings;     // for what does not end the run; borrowed until its end, or NULL
} fq_output_options;

// Checks what can be checked (output absent or force; not equal to, inside, around or hard-linked
// to the input, nor in its repository of a Hugging Face cache; may be replaced, nothing mounted in
// it; side files readable; parent there and writable; room; no .partial; not in use by another run)
// without leaving anything, then makes and locks OUTPUT.partial: a folder, or a file for a lone
// file; and beside it OUTPUT.partial.journal, which says what the run was asked for.
// A link at OUTPUT is never written through; force replaces the link itself. FQ_USAGE or FQ_IO.
//
// Where the file system cannot exchange two names, a run that was killed may have left the old
// OUTPUT as OUTPUT.partial.old: without force that is FQ_USAGE, with it the old one gets its name
// back, and stands until the end as ever.
//
// With resume, an OUTPUT.partial that is there must be of a run that was asked for the same, with
// a journal that says so, and hold nothing that this run does not write; else FQ_USAGE, and nothing
// is changed. fq_output_found tells whether there was one.
fq_status fq_output_open(fq_output **out, const char *path, const fq_input *input,
                         const fq_output_options *options, fq_error *err);

// The checks of fq_output_open alone: says what it would say now, and leaves everything as it is.
fq_status fq_output_examine(const char *path, const fq_input *input,
                            const fq_output_options *options, fq_error *err);

// What the journal of the interrupted run says, as far as it can be trusted: names are any text.
// NULL if this is a run from the start. Borrowed from output.
const fq_journal *fq_output_found(const fq_output *output);

// True if the interrupted run had done everything but to tidy up: fq_output_commit does it.
bool fq_output_is_published(const fq_output *output);

// How files are read through.
typedef struct fq_check_options {
    uint32_t n_threads;
    fq_progress *progress; // bytes_read counts; or NULL
    const int *cancelled;  // as in fq_run_options
} fq_check_options;

// Takes up the work of an interrupted run. lines: [plan->n_shards], of fq_journal_match. A shard
// is taken if its file is as long as its line says, begins with the header that the plan gives it
// and has the line's CRC-32; then accepted[i] is set (zeroed before). A shard that fails is warned
// of. Then everything else in OUTPUT.partial is removed. FQ_IO, also for a shard that cannot be
// read, FQ_DEVICE, FQ_CANCELLED; what was finished stays finished.
fq_status fq_output_take_up(bool *accepted, fq_output *output, const fq_plan *plan,
                            const fq_journal_shard *const *lines, const fq_check_options *options,
                            fq_error *err);

// Puts into the journal that a shard was committed, and what its steps counted; any number of
// threads may do so. False where that failed, which a warning says in the end: the shard is as
// good, but no later run can take it.
bool fq_output_note_shard(fq_output *output, const fq_plan_shard *shard,
                          const fq_sink_digest *digest, const fq_step_counts *counts);

// Puts into the journal which tensors hold NaN or Inf.
void fq_output_note_nonfinite(fq_output *output, const fq_tensor *const *tensors, size_t n);

// The sink for the plan's shards: headers by fq_safetensors_header, fsync and rename at commit. A
// lone file takes one shard at a time; a later one replaces it. Borrowed from output.
fq_sink *fq_output_sink(fq_output *output);

// Copies the input's side files of kind FQ_SIDE_COPY, links followed: with the source's times, and
// its mode less the umask, as a new file gets it. Fsynced.
fq_status fq_output_copy_side_files(fq_output *output, const fq_input *input, fq_error *err);

// Writes a whole file (index, config.json) into the output folder, fsynced.
fq_status fq_output_put(fq_output *output, const char *name, const char *text, size_t nbytes,
                        fq_error *err);

// Fsyncs, renames OUTPUT.partial to OUTPUT (replacing an old one under force), fsyncs the parent,
// removes the journal. Ends output in any case. After a failure either OUTPUT is as before and the
// finished files stay in OUTPUT.partial, or OUTPUT is complete and only the old one or the journal
// could not be removed: err says which.
fq_status fq_output_commit(fq_output *output, fq_error *err);

// Gives up: with keep OUTPUT.partial and its journal stay, for a run with resume; else they are
// removed without a trace, and err says why if that failed. Ends output. NULL is taken.
void fq_output_abandon(fq_output *output, bool keep, fq_error *err);

// The name of the output's index, where it has one: the input's, or the usual one.
const char *fq_output_index_name(const fq_input *input);

// The index of a plan's shards: weight_map, exact total_size, other metadata kept. *out is owned by
// the caller (free).
fq_status fq_index_text(char **out, size_t *nbytes, const fq_plan *plan, const fq_input *input,
                        fq_error *err);

#endif
