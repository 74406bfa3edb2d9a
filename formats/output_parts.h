// What the parts of an output share: its places on disk, and one file in it.
#ifndef FQ_FORMATS_OUTPUT_PARTS_H
#define FQ_FORMATS_OUTPUT_PARTS_H

#include "output.h"

#include <sys/stat.h>

struct fq_output {
    fq_sink sink;             // first: the two are cast into each other
    char *path;               // OUTPUT as the user named it, without trailing slashes; owned
    char *partial;            // OUTPUT.partial; owned
    const char *name;         // last component of path, in parent_fd
    const char *partial_name; // last component of partial
    int parent_fd;
    int partial_fd; // holds the lock
    bool is_folder;
    bool force;
    uint64_t needed_nbytes; // in all, an estimate: see needed_nbytes_of
    size_t n_temporaries;   // made so far, counted atomically: each has a number of its own
    size_t n_finished;      // shards, counted atomically
    int drop_errno;         // why a temporary could not be removed, set atomically; 0: all were
};

// Refuses an OUTPUT, or an OUTPUT.partial, that is in the way or is the input, and side files that
// cannot be read. Both exist only as places in parent_fd so far. FQ_USAGE or FQ_IO.
fq_status fq_output_check(const fq_output *output, const fq_input *input, fq_error *err);

// One file being written: under a temporary name in OUTPUT.partial, or OUTPUT.partial itself for a
// lone file. Any number of threads may write.
typedef struct fq_output_file {
    fq_output *output;
    char *path;         // in OUTPUT.partial, for messages; owned
    const char *name;   // its final name in dir_fd: the end of path
    int dir_fd;         // of the folder that it lies in; -1 for a lone file
    char temporary[32]; // its name until it is finished
    int fd;
    size_t n_unsynced; // bytes, counted atomically, written since the kernel was last told to write
                       // them out
} fq_output_file;

// Creates the file of that path in the output folder (ignored for a lone file), and the sub-folders
// on the way, with mode less the umask. FQ_IO; nothing is left to drop then.
fq_status fq_output_file_create(fq_output_file *out, fq_output *output, const char *path,
                                mode_t mode, fq_error *err);

// Fixes the size of the file at once, so that a file system that cannot hold it says so early.
fq_status fq_output_file_resize(fq_output_file *file, uint64_t nbytes, fq_error *err);

fq_status fq_output_file_write(fq_output_file *file, uint64_t offset, const void *data,
                               size_t nbytes, fq_error *err);

// Makes the file durable and gives it its name. Ends the file in any case.
fq_status fq_output_file_finish(fq_output_file *file, fq_error *err);

// Removes the file without a trace. Ends it.
void fq_output_file_drop(fq_output_file *file);

// Fills in the functions of output->sink.
void fq_output_init_sink(fq_output *output);

#endif
