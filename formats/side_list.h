// The files of a model folder that are no weights of its checkpoint.
#ifndef FQ_FORMATS_SIDE_LIST_H
#define FQ_FORMATS_SIDE_LIST_H

#include "input.h"

// True for names of weights in any format, compressed ones too, and of the indexes of such.
bool fq_is_weight_file(const char *path);

// Fills side_files of a folder whose shards are open: every file at any depth, `.git` and `.cache`
// aside. Links to files are followed, links to folders are not. FQ_IO if a folder cannot be read.
fq_status fq_side_list(fq_input *input, const fq_input_options *options, fq_error *err);

// One warning for each kind that is left out, naming the first few files, and for each of the
// options' globs that matches none.
void fq_side_warn(const fq_input *input, const fq_input_options *options, fq_messages *warnings);

#endif
