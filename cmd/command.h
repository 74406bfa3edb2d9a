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

typedef struct fq_command fq_command;

// What the user called for. Nothing is owned.
typedef struct fq_call {
    const void *options;               // the command's options struct, filled
    const char *operand;               // NULL: none was given, where it may be left out
    const fq_command *const *commands; // all that there are, in the order of help; ends with NULL
} fq_call;

struct fq_command {
    const char *name;
    const char *operand;            // "INPUT", "[COMMAND]": one, optional in brackets
    const char *summary;            // a few words, for lists of commands
    const char *const *description; // paragraphs; ends with NULL
    const fq_example *examples;     // ends with a zeroed row
    const fq_opt *const *tables;    // of options; ends with NULL
    const void *defaults;           // the options struct before parsing
    size_t options_nbytes;          // its size
    // Does it. Results go to stdout; faults go with FQ_BAD_INPUT and a last line in err.
    fq_status (*run)(const fq_call *call, fq_reply *reply, fq_error *err);
};

extern const fq_command fq_command_convert;
extern const fq_command fq_command_verify;
extern const fq_command fq_command_dequant;
extern const fq_command fq_command_inspect;
extern const fq_command fq_command_bench;
extern const fq_command fq_command_help;

// The one of commands, which end with NULL, that has the name; or NULL.
const fq_command *fq_command_find(const fq_command *const *commands, const char *name);

// FQ_USAGE: no command has that name; says which was most likely meant.
fq_status fq_command_unknown(const fq_command *const *commands, const char *name, fq_error *err);

// FQ_BAD_INPUT if reply lists faults: a lone one becomes the error itself, several are counted.
fq_status fq_reply_check_faults(fq_reply *reply, fq_error *err);

#endif
