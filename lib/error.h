// One error per call: a status and one line of text, written by the lowest layer that knows.
#ifndef FQ_ERROR_H
#define FQ_ERROR_H

#include <stddef.h>

#if defined(__GNUC__)
#define FQ_PRINTF(format_index, first_arg) __attribute__((format(printf, format_index, first_arg)))
#else
#define FQ_PRINTF(format_index, first_arg)
#endif

// The values are the exit codes of the program, FQ_CANCELLED aside (main: 128 + signal).
typedef enum fq_status {
    FQ_OK = 0,
    FQ_VERIFY_FAILED = 1,
    FQ_USAGE = 2,     // the command line, or an output that is in the way
    FQ_BAD_INPUT = 3, // the bytes of a file say something wrong
    FQ_IO = 4,        // a call of the operating system failed
    FQ_DEVICE = 5,    // no usable device, or out of memory
    FQ_CANCELLED = 6, // the caller asked to stop
} fq_status;

enum { FQ_ERROR_TEXT_SIZE = 2048 };

// Owned by the caller, zeroed before use. `text` is one line without a newline, of the form
// "FILE: TENSOR: what is wrong; what to do". It may hold raw bytes of a file's names: whoever
// prints it escapes it.
typedef struct fq_error {
    fq_status status;
    char text[FQ_ERROR_TEXT_SIZE];
} fq_error;

// Writes status and text into err and returns status. Text that does not fit is cut.
fq_status fq_fail(fq_error *err, fq_status status, const char *format, ...) FQ_PRINTF(3, 4);

// FQ_DEVICE for ENOMEM, from wherever it comes: out of memory. FQ_IO for all others.
fq_status fq_status_of_errno(int errno_value);

// Like fq_fail with that status, ": " and the text of errno_value appended.
fq_status fq_fail_errno(fq_error *err, int errno_value, const char *format, ...) FQ_PRINTF(3, 4);

// FQ_DEVICE, "out of memory": for every allocation that returned NULL.
fq_status fq_fail_memory(fq_error *err);

// A growing list of lines: faults that are to be listed together, or warnings. Zeroed is empty.
typedef struct fq_messages {
    char **lines;
    size_t n;
    size_t capacity;
    size_t n_lost; // lines that did not fit into memory
} fq_messages;

// Appends one formatted line. Never fails: a line that finds no memory is counted in n_lost.
void fq_messages_add(fq_messages *messages, const char *format, ...) FQ_PRINTF(2, 3);

// Frees all lines and zeroes the list.
void fq_messages_free(fq_messages *messages);

#endif
