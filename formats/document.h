// A file for people, such as a report: complete under its name, or not there.
#ifndef FQ_FORMATS_DOCUMENT_H
#define FQ_FORMATS_DOCUMENT_H

#include "input.h"

#include <stdio.h>

// The place of a document. Zeroed is none.
typedef struct fq_document {
    const char *path; // as the user named it; borrowed
    const char *name; // its last component
    int folder_fd;    // of the folder that it lies in
} fq_document;

// Checks, before the work whose result the document will hold, whether it can be written at path:
// its folder is there and writable, nothing but a regular file stands in its place, and it is no
// file of inputs[n_inputs], nor lies in a folder of theirs or in its repository of a Hugging Face
// cache. Inputs that are not open are passed over. Leaves nothing on disk. FQ_USAGE or FQ_IO.
// fq_document_close it after any outcome.
fq_status fq_document_open(fq_document *out, const char *path, const fq_input *const *inputs,
                           size_t n_inputs, fq_error *err);

// Writes the text of a document to file; errors of file itself need not be looked at.
typedef fq_status fq_document_writer(const void *context, FILE *file, fq_error *err);

// Writes the document under a temporary name beside its place, fsyncs and renames it: what stood
// there is replaced then. After a failure it stands there still, and nothing is left beside it.
fq_status fq_document_write(const fq_document *document, fq_document_writer *write,
                            const void *context, fq_error *err);

void fq_document_close(fq_document *document);

#endif
