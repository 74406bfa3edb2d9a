// What the parts of an output share: its places on disk, its journal, and one file in it.
#ifndef FQ_FORMATS_OUTPUT_PARTS_H
#define FQ_FORMATS_OUTPUT_PARTS_H

#include "output.h"

#include <pthread.h>
#include <sys/stat.h>

// OUTPUT.partial.journal: there before OUTPUT.partial is, and until OUTPUT has its name.
typedef struct fq_output_journal {
    char *path;       // owned
    const char *name; // in parent_fd
    int fd;           // holds the lock; -1 if there is none
    bool is_held;     // is this run's own, to be removed by it
    fq_journal found; // what an interrupted run left
    bool is_torn;     // and behind that, what does not hold together
    pthread_mutex_t mutex;
    uint64_t nbytes; // under mutex: of the lines that hold together
    int failure;     // under mutex: errno of the line that could not be added; no other will be
} fq_output_journal;

enum { FQ_OUTPUT_TOKEN_NBYTES = 16 };

struct fq_output {
    fq_sink sink;             // first: the two are cast into each other
    char *path;               // OUTPUT as the user named it, without trailing slashes; owned
    char *partial;            // OUTPUT.partial; owned
    char *aside;              // OUTPUT.partial.old; owned
    const char *name;         // last component of path, in parent_fd
    const char *partial_name; // last component of partial
    const char *aside_name;   // last component of aside
    int parent_fd;
    int partial_fd; // holds the lock
    bool is_folder;
    bool force;
    bool is_resumed;                        // OUTPUT.partial is an interrupted run's
    bool is_published;                      // OUTPUT is the one that a killed run had completed
    bool is_aside_left;                     // and aside the older one that it had replaced
    fq_messages *warnings;                  // or NULL
    uint64_t needed_nbytes;                 // in all, an estimate: see needed_nbytes_of
    char token[FQ_OUTPUT_TOKEN_NBYTES + 1]; // random, in the names of temporary files
    size_t n_temporaries; // made so far, counted atomically: each has a number of its own
    fq_output_journal journal;
    const char **names; // [n_names], sorted: what an interrupted run may have written; borrowed
    size_t n_names;     // strings, owned list
    int drop_errno;     // why a temporary could not be removed, set atomically; 0: all were
};

// ---- The place in the parent folder

// Needed and free bytes, with what will be discarded or is there already. FQ_IO.
fq_status fq_output_check_room(const fq_output *output, fq_error *err);

// Bytes that an output takes in all, data_nbytes of them tensor data.
uint64_t fq_output_needed_nbytes(const fq_input *input, uint64_t data_nbytes);

// FQ_USAGE: another run is at work there.
fq_status fq_output_fail_in_use(const fq_output *output, fq_error *err);

// Locks an open file or folder of that name against other runs; the lock ends with the process,
// however it ends. FQ_USAGE if another run has it, or has taken it away meanwhile. Where the file
// system knows no locks, *is_locked is false and all else is well.
fq_status fq_output_lock(bool *is_locked, const fq_output *output, int fd, const char *name,
                         fq_error *err);

// What is at that name in the parent, links not followed. All 0 if there is nothing.
fq_journal_place fq_output_place(const fq_output *output, const char *name);

// Why an open file may have been put there by someone else; *strange is NULL if nothing says so.
// path is for messages.
fq_status fq_output_examine_file(const char **strange, int fd, const char *path, fq_error *err);

// ---- The journal

// Sets path and name. After any outcome fq_output_journal_finish it, which leaves the file alone.
fq_status fq_output_journal_init(fq_output *output, fq_error *err);
void fq_output_journal_finish(fq_output *output);

// Opens, locks and reads the journal of an interrupted run, if there is one. FQ_USAGE if it cannot
// be trusted or locked.
fq_status fq_output_journal_find(fq_output *output, fq_error *err);

// Forgets what was found; the lock is given back.
void fq_output_journal_forget(fq_output *output);

// Goes on with what was found: what is torn at its end is cut off.
void fq_output_journal_go_on(fq_output *output);

// For a new run: finds out whether the place is free, or takes it and locks it. FQ_USAGE if there
// is something else than a journal, without force, or one in use.
fq_status fq_output_journal_examine(const fq_output *output, fq_error *err);
fq_status fq_output_journal_take(fq_output *output, fq_error *err);

// Writes the first line, durably, over what was there.
fq_status fq_output_journal_begin(fq_output *output, const fq_journal_run *run, fq_error *err);

// Adds a line, durably. False if that failed, now or earlier: the journal then ends with the lines
// that it had, and the run goes on without. Any number of threads may add.
bool fq_output_journal_add(fq_output *output, const fq_json_text *line);

// Adds the warning that is due where a line could not be added.
void fq_output_journal_warn(const fq_output *output);

// Removes the journal, if it is this run's. FQ_IO.
fq_status fq_output_journal_remove(fq_output *output, fq_error *err);

// ---- The name

// Renames OUTPUT.partial to OUTPUT. With force an old OUTPUT is exchanged for it, and *replaced is
// set; where the file system knows no exchange, that is by way of OUTPUT.partial.old. Returns 0; or
// -1 with errno set, and everything is as before.
int fq_output_give_name(bool *replaced, const fq_output *output);

// Undoes it, as far as that goes.
void fq_output_take_name_back(const fq_output *output, bool replaced);

// Looks for an OUTPUT.partial.old of a run that was killed while it made the exchange; after
// fq_output_find_run. An old OUTPUT that lacks its name gets it back, under force and unless
// examine_only; one that has been replaced is noted in is_aside_left. A thing of which no journal
// tells is warned of. FQ_USAGE without force, FQ_IO.
fq_status fq_output_find_aside(fq_output *output, const fq_output_options *options,
                               bool examine_only, fq_error *err);

// Removes it, where is_aside_left. FQ_IO.
fq_status fq_output_remove_aside(const fq_output *output, fq_error *err);

// ---- Going on

// Looks for an interrupted run of the same kind; is_resumed or is_published says what was found.
// FQ_USAGE if OUTPUT.partial is there and is not such a run's, or holds what that did not write.
fq_status fq_output_find_run(fq_output *output, const fq_input *input,
                             const fq_output_options *options, fq_error *err);

// Refuses an OUTPUT, or an OUTPUT.partial, that is in the way or is the input, and side files that
// cannot be read. Both exist only as places in parent_fd so far. FQ_USAGE or FQ_IO.
fq_status fq_output_check(const fq_output *output, const fq_input *input, fq_error *err);

// ---- One file

// Whether a file is written through a mapping. Where a file system is memory, that takes twice the
// processor time of pwrite, but no lock: it pays where others have and await the lock.
typedef enum fq_output_mapping { FQ_MAP_NEVER, FQ_MAP_BUSY, FQ_MAP_ALWAYS } fq_output_mapping;

// By the file system. FP8Q_MAP_OUTPUT, "never" or "always", says otherwise, for tests.
fq_output_mapping fq_output_map_choose(int fd);

// Writes to an open file through a mapping. Returns how many bytes could be written; what is wrong
// with the next ones, pwrite will tell.
size_t fq_output_map_write(int fd, uint64_t offset, const void *data, size_t nbytes);

// One file being written: under a temporary name in OUTPUT.partial, or OUTPUT.partial itself for a
// lone file. Any number of threads may write.
typedef struct fq_output_file {
    fq_output *output;
    char *path;         // in OUTPUT.partial, for messages; owned
    const char *name;   // its final name in dir_fd: the end of path
    int dir_fd;         // of the folder that it lies in; -1 for a lone file
    char temporary[64]; // its name until it is finished
    int fd;
    fq_output_mapping mapping;
    unsigned n_writers; // threads in pwrite, counted atomically
    size_t n_unsynced; // bytes, counted atomically, written since the kernel was last told to write
                       // them out
} fq_output_file;

// True if a name, without folders, is one of those that files bear until they are finished.
bool fq_output_is_temporary(const char *name);

// Opens the finished file of that path for reading (ignored for a lone file). -1 with errno set.
int fq_output_open_file(const fq_output *output, const char *path);

// Removes the finished file of that path. A lone file goes with OUTPUT.partial.
void fq_output_remove_file(const fq_output *output, const char *path);

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
