// A completion script for bash, from the same tables as help.
#include "help.h"

#include <string.h>

// The commands' names in one line.
static void put_commands(FILE *file, const fq_command *const *commands) {
    for (const fq_command *const *command = commands; *command; command++)
        fprintf(file, "%s%s", command == commands ? "" : " ", (*command)->name);
}

// "a|b|c" or "[a|b|c]" as words.
static void put_choices(FILE *file, const char *choices) {
    for (; *choices; choices++) {
        if (*choices != '[' && *choices != ']')
            putc(*choices == '|' ? ' ' : *choices, file);
    }
}

// What may follow the command, and each option, that takes one of a few words.
static void put_arguments(FILE *file, const fq_command *command) {
    if (strchr(command->operand, '|')) {
        fprintf(file, "    %s:%s) words='", command->name, command->name);
        put_choices(file, command->operand);
        fputs("' ;;\n", file);
    }
    for (const fq_opt *const *table = command->tables; *table; table++) {
        for (const fq_opt *opt = *table; opt->name; opt++) {
            if (opt->kind != FQ_OPT_CHOICE)
                continue;
            fprintf(file, "    %s:--%s) words='", command->name, opt->name);
            put_choices(file, opt->argument);
            fputs("' ;;\n", file);
        }
    }
}

static void put_options(FILE *file, const fq_command *command) {
    fprintf(file, "    %s) words='--help", command->name);
    for (const fq_opt *const *table = command->tables; *table; table++) {
        for (const fq_opt *opt = *table; opt->name; opt++)
            fprintf(file, " --%s", opt->name);
    }
    fputs("' ;;\n", file);
}

void fq_help_completion(FILE *file, const fq_command *const *commands) {
    fputs("# Completion of fp8q for bash. Made by \"fp8q help --completion\".\n"
          "_fp8q() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} words=''\n"
          "    case ${COMP_WORDS[1]}:${COMP_WORDS[COMP_CWORD - 1]} in\n",
          file);
    for (const fq_command *const *command = commands; *command; command++)
        put_arguments(file, *command);
    fputs("    help:help) words='", file);
    put_commands(file, commands);
    fputs("' ;;\n    esac\n"
          "    [[ -z $words && $word == -* ]] && case ${COMP_WORDS[1]} in\n",
          file);
    for (const fq_command *const *command = commands; *command; command++)
        put_options(file, *command);
    fputs("    esac\n    ((COMP_CWORD == 1)) && words='", file);
    put_commands(file, commands);
    fputs(" --help --version'\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
          "}\n"
          "complete -o default -F _fp8q fp8q\n",
          file);
}
