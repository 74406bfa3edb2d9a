// What the user named as INPUT, opened and validated: a file or a model folder.
#ifndef FQ_FORMATS_INPUT_H
#define FQ_FORMATS_INPUT_H

#include "hub_snapshot.h"
#include "index_read.h"
#include "lib/model.h"
#include "lib/tensor.h"

typedef struct fq_input_options {
    const char *const *include_files; // --include-file globs on paths inside the folder
    size_t n_include_files;
    // Where it goes that names, index and shards disagree: a missing shard or tensor, a tensor
    // twice or in another shard, a wrong total_size. The opening then goes on with what is there,
    // and says nothing of side files. NULL: faults and warnings, as below.
    fq_messages *findings;
} fq_input_options;

// A file of a model folder that is no weight of the checkpoint. Paths are relative to the folder.
// The last four kinds are left out of the output and named in a warning.
typedef enum fq_side_kind {
    FQ_SIDE_COPY,    // goes into the output as it is
    FQ_SIDE_CONFIG,  // config.json
    FQ_SIDE_INDEX,   // the index in use
    FQ_SIDE_WEIGHT,  // another weight file, or the index of such
    FQ_SIDE_STALE,   // hf_quant_config.json and its like
    FQ_SIDE_LINK,    // a link that leads out of the folder, to a folder or nowhere
    FQ_SIDE_SPECIAL, // a pipe, socket or device
    FQ_SIDE_KIND_COUNT
} fq_side_kind;

typedef struct fq_side_file {
    const char *path;
    fq_side_kind kind;
    uint64_t nbytes; // of the file itself, links followed
} fq_side_file;

typedef struct fq_input {
    fq_checkpoint checkpoint;
    fq_model model;
    char *folder;           // resolved folder; for a lone file the folder it lies in
    int folder_fd;          // opened; -1 if not open
    fq_hub_snapshot hub;    // hub.repo is set if folder is a snapshot of a Hugging Face cache
    const char *index_name; // of the index in use; NULL if there is none
    fq_index_metadata *index_metadata; // [n_index_metadata]: of the index, total_size aside
    size_t n_index_metadata;
    char *config_text; // of config.json, NULL if there is none
    size_t config_nbytes;
    fq_side_file *side_files; // [n_side_files], sorted by path; folders only
    size_t n_side_files;
    fq_arena arena;
} fq_input;

// Opens path: a .safetensors file, a model folder, or its index file. Every header, the index and
// config.json are validated; each fault is one line in faults ("FILE: ...") and FQ_OK is returned
// with faults->n > 0, so that all are listed together. FQ_IO if path does not exist or cannot be
// read. Warnings: total_size wrong, tensors that the index does not name, files left out, no
// config.json. Zeroed *out before; fq_input_close it after any outcome.
//
// The index of a folder is the one that path names, else model.safetensors.index.json, else the
// only other *.safetensors.index.json (diffusers' name); variants such as
// model.safetensors.index.fp16.json are used only if path names them, as transformers does.
//
// Nothing outside the folder is read, a Hugging Face cache's own blobs aside: links that lead out
// are faults where they stand for a shard, the index or config.json.
fq_status fq_input_open(fq_input *out, const char *path, const fq_input_options *options,
                        fq_messages *faults, fq_messages *warnings, fq_error *err);

// FQ_IO, naming the file, if any shard changed on disk since it was opened.
fq_status fq_input_check_unchanged(const fq_input *input, fq_error *err);

void fq_input_close(fq_input *input);

#endif
