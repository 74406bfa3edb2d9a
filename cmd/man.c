// The man page, in the macros of man(7), from the same tables as help.
#include "common.h"
#include "help.h"

// Text in which roff sees no request and no escape, and dashes stay dashes.
static void roff_text(FILE *file, const char *text) {
    if (*text == '.' || *text == '\'')
        fputs("\\&", file);
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", file);
        else if (*text == '\\')
            fputs("\\e", file);
        else
            putc(*text, file);
    }
}

static void roff_paragraphs(FILE *file, const char *const *paragraphs) {
    for (; *paragraphs; paragraphs++) {
        fputs(".PP\n", file);
        roff_text(file, *paragraphs);
        putc('\n', file);
    }
}

static void roff_option(FILE *file, const fq_opt *opt) {
    fputs(".TP\n", file);
    if (opt->letter)
        fprintf(file, "\\fB\\-%c\\fR, ", opt->letter);
    fputs("\\fB\\-\\-", file);
    roff_text(file, opt->name);
    fputs("\\fR", file);
    if (opt->argument) {
        fputs(" \\fI", file);
        roff_text(file, opt->argument);
        fputs("\\fR", file);
    }
    putc('\n', file);
    roff_text(file, opt->help);
    putc('\n', file);
}

static void roff_command(FILE *file, const fq_command *command) {
    fprintf(file, ".SS \"fp8q %s [OPTIONS] %s\"\n", command->name, command->operand);
    roff_paragraphs(file, command->description);
    for (const fq_opt *const *table = command->tables; *table; table++) {
        for (const fq_opt *opt = *table; opt->name && *table != fq_common_table; opt++)
            roff_option(file, opt);
    }
}

static void roff_rows(FILE *file, const char *title, const fq_help_row *rows) {
    fprintf(file, ".SH \"%s\"\n", title);
    for (; rows->term; rows++) {
        fprintf(file, ".TP\n.B %s\n", rows->term);
        roff_text(file, rows->meaning);
        putc('\n', file);
    }
}

static void roff_examples(FILE *file, const fq_command *const *commands) {
    fputs(".SH EXAMPLES\n", file);
    for (const fq_command *const *command = commands; *command; command++) {
        for (const fq_example *example = (*command)->examples; example->line; example++) {
            fputs(".TP\n.B fp8q ", file);
            roff_text(file, example->line);
            putc('\n', file);
            roff_text(file, example->what);
            putc('\n', file);
        }
    }
}

void fq_help_man(FILE *file, const fq_command *const *commands) {
    fputs(".\\\" Made by \"fp8q help --man\".\n", file);
    fprintf(file, ".TH FP8Q 1 \"\" \"fp8q %s\" \"User Commands\"\n", FQ_VERSION);
    fputs(".SH NAME\nfp8q \\- block\\-scaled FP8 checkpoints from BF16 safetensors, and back\n"
          ".SH SYNOPSIS\n.B fp8q\n.I COMMAND\n[\\fIOPTIONS\\fR] [\\fIARGUMENT\\fR]\n"
          ".SH DESCRIPTION\n",
          file);
    roff_paragraphs(file, fq_help_about);
    fputs(".SH COMMANDS\n", file);
    for (const fq_command *const *command = commands; *command; command++)
        roff_command(file, *command);
    fputs(".SH \"COMMON OPTIONS\"\n", file);
    for (const fq_opt *opt = fq_common_table; opt->name; opt++)
        roff_option(file, opt);
    fputs(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nwhat a command does and takes\n"
          ".TP\n\\fB\\-\\-version\\fR\nthe version; without a command\n",
          file);
    roff_rows(file, "EXIT STATUS", fq_help_exit_codes);
    roff_rows(file, "ENVIRONMENT", fq_help_environment);
    roff_examples(file, commands);
}
