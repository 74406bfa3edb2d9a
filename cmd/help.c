// Help for the terminal: paragraphs and options, wrapped to its width.
#include "help.h"

#include "common.h"

#include <string.h>

// Where the text beside an option begins: below it, where the terminal is narrow.
static size_t option_column(size_t width) { return width < 64 ? 10 : 32; }

const char *const fq_help_about[] = {
    "fp8q turns BF16 safetensors checkpoints into block-scaled FP8 (E4M3, one scale per 128 x 128 "
    "block) and back. Everything a run will do is planned from the headers before a byte of data "
    "is read; the output is complete or absent, never in between.",
    "INPUT is a .safetensors file, a model folder, or the index file of one.",
    NULL,
};

const fq_help_row fq_help_exit_codes[] = {
    {"0", "done"},
    {"1", "verification failed"},
    {"2", "usage: unknown option, output exists, output is or lies in the input, --resume does not "
          "match"},
    {"3", "bad input: wrong bytes, missing shard, already quantized, NaN or Inf"},
    {"4", "I/O: no such file, permission, read or write error, full disk, input changed"},
    {"5", "no usable device, or out of memory"},
    {"128+N", "stopped by signal N: 130 for SIGINT, 143 for SIGTERM"},
    {0},
};

const fq_help_row fq_help_environment[] = {
    {"NO_COLOR", "set and not empty: no colours, unless --color asks for them"},
    {"COLUMNS",
     "width of help texts and of the progress line (default: that of the terminal, or 80)"},
    {"FP8Q_CPU", "avx512, avx2, neon or plain: the code to run on the CPU, instead of the fastest "
                 "that it can; all give the same bytes"},
    {0},
};

// Prints text broken into lines of at most width columns, the first of which goes on at `column`
// and the others of which begin at `indent`.
static void print_wrapped(FILE *file, const char *text, size_t column, size_t indent,
                          size_t width) {
    bool first_word = true;
    for (const char *word = text; *word;) {
        const size_t n = strcspn(word, " ");
        if (!first_word && column + 1 + n > width) {
            fprintf(file, "\n%*s", (int)indent, "");
            column = indent;
            first_word = true;
        }
        fprintf(file, "%s%.*s", first_word ? "" : " ", (int)n, word);
        column += n + !first_word;
        first_word = false;
        word += n + (word[n] == ' ');
    }
    putc('\n', file);
}

// A term, and beside it (or below, where it is long) what it means.
static void print_entry(FILE *file, const char *term, const char *meaning, size_t column,
                        size_t width) {
    fprintf(file, "%s", term);
    const size_t n = strlen(term);
    if (n + 2 > column)
        fprintf(file, "\n%*s", (int)column, "");
    else
        fprintf(file, "%*s", (int)(column - n), "");
    print_wrapped(file, meaning, column, column, width);
}

static void print_option(FILE *file, const fq_opt *opt, size_t width) {
    char term[128];
    char letter[8] = "    ";
    if (opt->letter)
        snprintf(letter, sizeof letter, "-%c, ", opt->letter);
    snprintf(term, sizeof term, "  %s--%s%s%s", letter, opt->name, opt->argument ? " " : "",
             opt->argument ? opt->argument : "");
    print_entry(file, term, opt->help, option_column(width), width);
}

static void print_paragraphs(FILE *file, const char *const *paragraphs, size_t width) {
    for (; *paragraphs; paragraphs++) {
        print_wrapped(file, *paragraphs, 0, 0, width);
        putc('\n', file);
    }
}

static void print_rows(FILE *file, const char *title, const fq_help_row *rows, size_t column,
                       size_t width) {
    fputs(title, file);
    for (; rows->term; rows++) {
        char term[16];
        snprintf(term, sizeof term, "  %s", rows->term);
        print_entry(file, term, rows->meaning, column, width);
    }
}

void fq_help_overview(FILE *file, const fq_command *const *commands, uint32_t width) {
    fputs("Usage: fp8q COMMAND [OPTIONS] [ARGUMENT]\n\n", file);
    print_paragraphs(file, fq_help_about, width);
    fputs("Commands:\n", file);
    for (const fq_command *const *command = commands; *command; command++) {
        char term[64];
        snprintf(term, sizeof term, "  %s %s", (*command)->name, (*command)->operand);
        print_entry(file, term, (*command)->summary, 20, width);
    }
    print_rows(file, "\nExit status:\n", fq_help_exit_codes, 10, width);
    print_rows(file, "\nEnvironment:\n", fq_help_environment, 12, width);
    putc('\n', file);
    print_wrapped(file,
                  "fp8q COMMAND --help describes a command, fp8q --version names the version.", 0,
                  0, width);
}

void fq_help_command(FILE *file, const fq_command *command, uint32_t width) {
    fprintf(file, "Usage: fp8q %s [OPTIONS] %s\n\n", command->name, command->operand);
    print_paragraphs(file, command->description, width);
    for (const fq_opt *const *table = command->tables; *table; table++) {
        if (table == command->tables)
            fputs("Options:\n", file);
        else if (*table == fq_common_table)
            fputs("\nCommon options:\n", file);
        for (const fq_opt *opt = *table; opt->name; opt++)
            print_option(file, opt, width);
    }
    print_entry(file, "  -h, --help", "this text", option_column(width), width);
    fputs("\nExamples:\n", file);
    for (const fq_example *example = command->examples; example->line; example++) {
        fprintf(file, "  fp8q %s\n      ", example->line);
        print_wrapped(file, example->what, 6, 6, width);
    }
}
