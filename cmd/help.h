// Help, man page and completion, all made from the tables of commands and options.
#ifndef FQ_CMD_HELP_H
#define FQ_CMD_HELP_H

#include "command.h"

#include <stdio.h>

// One line of the table of exit codes.
typedef struct fq_exit_code {
    const char *code;
    const char *meaning;
} fq_exit_code;

// What fp8q is, in paragraphs; ends with NULL.
extern const char *const fq_help_about[];

// Ends with a zeroed row.
extern const fq_exit_code fq_help_exit_codes[];

// "fp8q --help": the commands. width: columns to fill.
void fq_help_overview(FILE *file, uint32_t width);

// "fp8q COMMAND --help".
void fq_help_command(FILE *file, const fq_command *command, uint32_t width);

// The man page, in the macros of man(7).
void fq_help_man(FILE *file);

// A completion script for bash.
void fq_help_completion(FILE *file);

#endif
