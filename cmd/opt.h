// Options as table rows: parsing, help, man page and completion come from the same rows.
#ifndef FQ_CMD_OPT_H
#define FQ_CMD_OPT_H

#include "lib/arena.h"
#include "lib/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What an option stores into the command's options struct.
typedef enum fq_opt_kind {
    FQ_OPT_FLAG,   // bool: true
    FQ_OPT_ALONE,  // bool: true; and the operand may be absent
    FQ_OPT_STRING, // const char *, borrowed from argv
    FQ_OPT_CHOICE, // int: which of the argument's alternatives, "auto|always|never", from 0
    FQ_OPT_COUNT,  // uint32_t, 1 to FQ_OPT_MAX_COUNT
    FQ_OPT_NUMBER, // uint64_t, any
    FQ_OPT_SIZE,   // uint64_t bytes, FQ_OPT_MIN_SIZE or more: digits, and K, M, G, T, KiB.. (1024)
                   // or KB.. (1000)
    FQ_OPT_FLOAT,  // float, finite and not negative
    FQ_OPT_DEVICE, // const char *, borrowed from argv: auto, cpu, cuda or cuda:N[,M...]
    FQ_OPT_LIST,   // fq_opt_list: repeatable; several options may share one list
} fq_opt_kind;

enum { FQ_OPT_MAX_COUNT = 1024, FQ_OPT_MIN_SIZE = 2 << 20 };

// One option. A table of them ends with a zeroed row.
typedef struct fq_opt {
    const char *name;     // without the dashes
    char letter;          // of the short form, or 0
    const char *argument; // "SIZE", "sm90|sm100"; NULL for flags
    fq_opt_kind kind;
    size_t offset; // of the value in the options struct
    const char *help;
} fq_opt;

// The values of a repeatable option, in the order of the command line.
typedef struct fq_opt_item {
    const char *name; // of the option
    const char *value;
} fq_opt_item;

typedef struct fq_opt_list {
    fq_opt_item *items; // [n]
    size_t n;
} fq_opt_list;

// A command line, taken apart.
typedef struct fq_opt_parsed {
    bool help;           // -h or --help, which every command takes: nothing else was checked
    const char *operand; // NULL if absent
} fq_opt_parsed;

struct fq_command;

// Parses the arguments after the command's name into options, which the caller filled with the
// command's defaults. Lists live in arena. The first mistake is FQ_USAGE; an unknown option names
// the nearest one.
fq_status fq_opt_parse(fq_opt_parsed *out, const struct fq_command *command, void *options,
                       fq_arena *arena, int argc, char *const *argv, fq_error *err);

// The values of list alone: [list->n], in arena's memory, never NULL but for want of it.
const char **fq_opt_values(const fq_opt_list *list, fq_arena *arena);

// The one of names[n] that a user most likely meant by typed; NULL if none is near.
const char *fq_opt_nearest(const char *const *names, size_t n, const char *typed);

#endif
