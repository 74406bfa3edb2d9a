// Help, man page and completion, all made from the tables of commands and options.
#ifndef FQ_CMD_HELP_H
#define FQ_CMD_HELP_H

#include "command.h"

#include <stdio.h>

// One line of a table: a term, and what it means.
typedef struct fq_help_row {
    const char *term;
    const char *meaning;
} fq_help_row;

// What fp8q is, in paragraphs; ends with NULL.
extern const char *const fq_help_about[];

// Exit codes, and the variables of the environment that fp8q reads. Both end with a zeroed row.
extern const fq_help_row fq_help_exit_codes[];
extern const fq_help_row fq_help_environment[];

// In all of these, commands are in the order of help and end with NULL.

// "fp8q --help": the commands. width: columns to fill.
void fq_help_overview(FILE *file, const fq_command *const *commands, uint32_t width);

// "fp8q COMMAND --help".
void fq_help_command(FILE *file, const fq_command *command, uint32_t width);

// The man page, in the macros of man(7).
void fq_help_man(FILE *file, const fq_command *const *commands);

// A completion script for bash.
void fq_help_completion(FILE *file, const fq_command *const *commands);

#endif
