// The commands of fp8q, and what they hand back to main.
#ifndef FQ_CMD_COMMAND_H
#define FQ_CMD_COMMAND_H

#include "opt.h"
#include "print.h"

// What main prints on stderr after a command, in this order; an error comes between faults and
// notes.
typedef struct fq_reply {
    fq_messages warnings;
    fq_messages faults; // all that the headers show
    fq_messages notes;  // what to do next
    fq_color color;     // --color, where the command takes it
} fq_reply;

typedef struct fq_example {
    const char *line; // after "fp8q "
    const char *what;
} fq_example;

typedef struct fq_command {
    const char *name;
    const char *operand;            // "INPUT", "[COMMAND]": one, optional in brackets
    const char *summary;            // a few words, for lists of commands
    const char *const *description; // paragraphs; ends with NULL
    const fq_example *examples;     // ends with a zeroed row
    const fq_opt *const *tables;    // of options; ends with NULL
    const void *defaults;           // the options struct before parsing
    size_t options_nbytes;          // its size
    // Does it. Results go to stdout; faults go with FQ_BAD_INPUT and a last line in err.
    fq_status (*run)(const void *options, const char *operand, fq_reply *reply, fq_error *err);
} fq_command;

extern const fq_command fq_command_convert;
extern const fq_command fq_command_verify;
extern const fq_command fq_command_dequant;
extern const fq_command fq_command_inspect;
extern const fq_command fq_command_bench;
extern const fq_command fq_command_help;

// All of them, in the order of help; ends with NULL.
extern const fq_command *const fq_commands[];

// The command of that name, or NULL.
const fq_command *fq_command_find(const char *name);

// FQ_USAGE: there is no such command; says what was most likely meant.
fq_status fq_command_unknown(const char *name, fq_error *err);

#endif
