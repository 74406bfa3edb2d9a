// The journal of an output: what a run was asked for, and which shards it has finished. Lines of
// JSON, each with a checksum of its own, so that a torn one is known.
#ifndef FQ_FORMATS_JOURNAL_H
#define FQ_FORMATS_JOURNAL_H

#include "json.h"
#include "lib/plan.h"
#include "lib/run.h"

// A longer one is neither written nor read. It takes 2.5 million tensors to fill it.
enum { FQ_JOURNAL_MAX_NBYTES = 256 << 20 };

// An option, with all that it was given or what holds without it.
typedef struct fq_journal_option {
    const char *name;    // on the command line: "--arch"
    const char **values; // [n_values]
    size_t n_values;
} fq_journal_option;

// A file of the input.
typedef struct fq_journal_input {
    const char *name; // relative to the folder
    uint64_t nbytes;
    uint64_t mtime_ns; // since 1970, modulo 2^64; 0 where the CRC is of the whole
    uint32_t crc32;    // of a shard's header, or of the whole file
} fq_journal_input;

// What a run was asked for. Where all of it is the same, the bytes of the output are.
typedef struct fq_journal_run {
    const char *version;        // of fp8q
    const char *command;        // "convert"
    fq_journal_option *options; // [n_options]: all that change bytes, in the command's order
    size_t n_options;
    fq_journal_input *inputs; // [n_inputs]
    size_t n_inputs;
} fq_journal_run;

// One figure of one step. Those that are not listed are 0.
typedef struct fq_journal_count {
    uint64_t step;
    size_t field; // its offset in fq_step_counts
    uint64_t value;
} fq_journal_count;

typedef struct fq_journal_shard {
    const char *name;
    fq_sink_digest digest;
    fq_journal_count *counts; // [n_counts]
    size_t n_counts;
} fq_journal_shard;

// A file or folder whatever its name: inodes are used again, but not with the same time of birth.
typedef struct fq_journal_place {
    uint64_t inode;
    uint64_t birth_ns; // since 1970; 0 if the file system does not tell
} fq_journal_place;

// False for what is nothing.
bool fq_journal_place_equal(const fq_journal_place *a, const fq_journal_place *b);

// What a journal says, as far as its lines hold together. Zeroed is empty.
typedef struct fq_journal {
    fq_journal_run run;
    fq_journal_shard *shards; // [n_shards]; of several of one name the last one counts
    size_t n_shards;
    const char **nonfinite; // [n_nonfinite]: tensors found to hold NaN or Inf
    size_t n_nonfinite;
    bool is_complete;          // the next step was to give the output its name
    fq_journal_place output;   // then: what was to get the name
    fq_journal_place replaced; // then: what had it before; inode 0 if there was nothing
    uint64_t nbytes;           // of the lines that hold together; 0: the first one does not
    fq_arena arena;            // owns the above
} fq_journal;

// Reads a journal up to the first line that is torn, changed or not understood. Names and values
// come back byte for byte, and are no more than text: nothing says yet that they mean anything.
// FQ_DEVICE alone, when out of memory; after any outcome fq_journal_free it.
fq_status fq_journal_parse(fq_journal *out, const char *text, size_t nbytes, fq_error *err);

void fq_journal_free(fq_journal *journal);

// True if text may be the beginning of a journal, as short as it may be.
bool fq_journal_is_begun(const char *text, size_t nbytes);

// Each writes one line behind what out holds. Its first line says what the run was asked for.
void fq_journal_put_run(fq_json_text *out, const fq_journal_run *run);
void fq_journal_put_nonfinite(fq_json_text *out, const fq_tensor *const *tensors, size_t n);
void fq_journal_put_shard(fq_json_text *out, const char *name, const fq_sink_digest *digest,
                          const fq_step_counts *counts, size_t n_steps);
void fq_journal_put_complete(fq_json_text *out, const fq_journal_place *output,
                             const fq_journal_place *replaced);

// FQ_USAGE if the two do not make the same bytes, naming the first option that differs with both
// values, or the first file. output and partial are for the message.
fq_status fq_journal_compare(const fq_journal_run *then, const fq_journal_run *now,
                             const char *output, const char *partial, fq_error *err);

// The last line of each of the plan's shards, in their order; NULL where there is none. Memory from
// arena. FQ_DEVICE when out of memory.
fq_status fq_journal_match(const fq_journal_shard ***out, fq_arena *arena,
                           const fq_journal *journal, const fq_plan *plan, fq_error *err);

// Spreads the counts of a shard over its steps: out is [plan->n_steps], zeroed. False if they
// cannot be of this plan: a step that it lacks or that counts no such thing, more than a step has
// elements.
bool fq_journal_counts(fq_step_counts *out, const fq_journal_shard *shard,
                       const fq_plan_shard *plan);

#endif
