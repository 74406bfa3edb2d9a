// Paths inside a model folder, and the rule that nothing outside of it is read.
#ifndef FQ_FORMATS_INPUT_PATH_H
#define FQ_FORMATS_INPUT_PATH_H

#include "input.h"

// What the argument of a command stands for.
typedef struct fq_input_place {
    char *folder; // resolved: the model folder, or the one that a lone file lies in; owned
    char *name;   // of the lone file, or of the index that was named; NULL if there is none; owned
    bool is_folder;
} fq_input_place;

// Tells files, folders and index files apart. FQ_IO if path does not exist, FQ_BAD_INPUT for
// names of files that cannot be read. fq_input_place_finish it after any outcome.
fq_status fq_input_locate(fq_input_place *out, const char *path, fq_error *err);

void fq_input_place_finish(fq_input_place *place);

// The real path of a file of the folder, all links followed. FQ_BAD_INPUT if it does not exist or
// lies outside the folder and, for a snapshot of a Hugging Face cache, outside its blobs; FQ_IO if
// it cannot be found out. *out is owned by the caller (free).
fq_status fq_input_resolve(char **out, const fq_input *input, const char *path, fq_error *err);

// Opens a file of the folder by fq_input_resolve and fq_file_open. *out is owned by the caller
// (fq_file_close).
fq_status fq_input_open_file(fq_source **out, const fq_input *input, const char *path,
                             fq_error *err);

#endif
