// fp8q help: help texts, the man page, the completion script.
#include "help.h"
#include "print.h"

typedef struct help_options {
    bool man;
    bool completion;
} help_options;

static const fq_opt options_table[] = {
    {"man", 0, NULL, FQ_OPT_FLAG, offsetof(help_options, man), "the man page, for man(1)"},
    {"completion", 0, NULL, FQ_OPT_FLAG, offsetof(help_options, completion),
     "the completion script for bash"},
    {0},
};

static fq_status run(const fq_call *call, fq_reply *reply, fq_error *err) {
    const help_options *options = call->options;
    const fq_command *const *commands = call->commands;
    const fq_printer printer = fq_printer_make(stdout, FQ_COLOR_AUTO);
    const fq_command *command = call->operand ? fq_command_find(commands, call->operand) : NULL;
    (void)reply;
    if (call->operand && !command)
        return fq_command_unknown(commands, call->operand, err);
    if (options->man)
        fq_help_man(stdout, commands);
    else if (options->completion)
        fq_help_completion(stdout, commands);
    else if (command)
        fq_help_command(stdout, command, fq_printer_width(&printer));
    else
        fq_help_overview(stdout, commands, fq_printer_width(&printer));
    return FQ_OK;
}

const fq_command fq_command_help = {
    .name = "help",
    .operand = "[COMMAND]",
    .summary = "describe a command, or list them",
    .description = (const char *const[]){"Describes a command, or lists the commands.", NULL},
    .examples =
        (const fq_example[]){
            {"help convert", "what convert does, and its options"},
            {"help --man > fp8q.1", "write the man page"},
            {0},
        },
    .tables = (const fq_opt *const[]){options_table, NULL},
    .defaults = &(const help_options){0},
    .options_nbytes = sizeof(help_options),
    .run = run,
};
