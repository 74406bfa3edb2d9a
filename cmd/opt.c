// Parsing the command line by the rows of the command's tables.
#include "opt.h"

#include "command.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(FQ_OPT_MAX_COUNT == 1024 && FQ_OPT_MIN_SIZE == 2 << 20, "describe_argument says so");

typedef struct parser {
    fq_opt_parsed *out;
    const fq_command *command;
    char *options; // the command's options struct
    fq_arena *arena;
    int argc;
    char *const *argv;
    int next;   // index of the argument to look at next
    bool alone; // an option was met that needs no operand
    fq_error *err;
} parser;

static fq_status fail_usage(const parser *p, const char *format, ...) FQ_PRINTF(2, 3);

static fq_status fail_usage(const parser *p, const char *format, ...) {
    char text[FQ_ERROR_TEXT_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *name = p->command->name;
    return fq_fail(p->err, FQ_USAGE, "%s: %s; see fp8q %s --help", name, text, name);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Letters to leave out, put in, replace, or swap with their neighbours, to turn typed into name.
static size_t edit_distance(const char *typed, const char *name) {
    enum { MAX_NAME = 32 };
    const size_t n_typed = strlen(typed), n_name = strlen(name);
    assert(n_name <= MAX_NAME);
    // [k]: from the letters typed so far, from one less and from two less, to name's first k.
    size_t rows[3][MAX_NAME + 1];
    size_t *row = rows[0], *before = rows[1], *two_before = rows[2];
    for (size_t k = 0; k <= n_name; k++)
        row[k] = k;
    for (size_t i = 1; i <= n_typed; i++) {
        size_t *const reused = two_before;
        two_before = before;
        before = row;
        row = reused;
        row[0] = i;
        for (size_t k = 1; k <= n_name; k++) {
            const bool same = typed[i - 1] == name[k - 1];
            row[k] = least(before[k - 1] + !same, least(before[k], row[k - 1]) + 1);
            if (i > 1 && k > 1 && typed[i - 1] == name[k - 2] && typed[i - 2] == name[k - 1])
                row[k] = least(row[k], two_before[k - 2] + 1);
        }
    }
    return row[n_name];
}

// A guess may be followed blindly: one slip in three letters is the most, which leaves --force to
// those who nearly typed it. The beginning of a long name stands for all of it.
static bool is_near(const char *typed, const char *name, size_t distance) {
    enum { LETTERS_PER_SLIP = 3, MIN_BEGINNING = 3, LONG_NAME = 6 };
    const size_t n_typed = strlen(typed), n_name = strlen(name);
    return distance <= n_name / LETTERS_PER_SLIP ||
           (n_typed >= MIN_BEGINNING && n_name >= LONG_NAME && strncmp(typed, name, n_typed) == 0);
}

const char *fq_opt_nearest(const char *const *names, size_t n, const char *typed) {
    const char *nearest = NULL;
    size_t nearest_distance = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t distance = edit_distance(typed, names[i]);
        if (is_near(typed, names[i], distance) && (!nearest || distance < nearest_distance)) {
            nearest = names[i];
            nearest_distance = distance;
        }
    }
    return nearest;
}

static fq_status fail_unknown(const parser *p, const char *typed) {
    enum { MAX_OPTIONS = 64 };
    const char *names[MAX_OPTIONS] = {"help"};
    size_t n = 1;
    for (const fq_opt *const *table = p->command->tables; *table; table++) {
        for (const fq_opt *opt = *table; opt->name; opt++) {
            assert(n < MAX_OPTIONS);
            names[n++] = opt->name;
        }
    }
    const char *nearest = fq_opt_nearest(names, n, typed);
    if (!nearest)
        return fail_usage(p, "unknown option --%s", typed);
    return fail_usage(p, "unknown option --%s (did you mean --%s?)", typed, nearest);
}

static const fq_opt *find_name(const fq_command *command, const char *name, size_t n) {
    for (const fq_opt *const *table = command->tables; *table; table++) {
        for (const fq_opt *opt = *table; opt->name; opt++) {
            if (strlen(opt->name) == n && memcmp(opt->name, name, n) == 0)
                return opt;
        }
    }
    return NULL;
}

static const fq_opt *find_letter(const fq_command *command, char letter) {
    for (const fq_opt *const *table = command->tables; *table; table++) {
        for (const fq_opt *opt = *table; opt->name; opt++) {
            if (opt->letter && opt->letter == letter)
                return opt;
        }
    }
    return NULL;
}

// Which of "a|b|c" value is, or -1.
static int find_choice(const char *choices, const char *value) {
    int index = 0;
    for (const char *begin = choices;; index++) {
        const size_t n = strcspn(begin, "|");
        if (strlen(value) == n && memcmp(begin, value, n) == 0)
            return index;
        if (begin[n] == '\0')
            return -1;
        begin += n + 1;
    }
}

// Digits only. False if there are none or the number exceeds 64 bits. *end is the rest.
static bool parse_digits(uint64_t *out, const char *text, const char **end) {
    uint64_t value = 0;
    const char *at = text;
    for (; isdigit((unsigned char)*at); at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    *end = at;
    return at != text;
}

static bool parse_count(uint32_t *out, const char *text) {
    const char *end;
    uint64_t value;
    if (!parse_digits(&value, text, &end) || *end || value < 1 || value > FQ_OPT_MAX_COUNT)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool parse_number(uint64_t *out, const char *text) {
    const char *end;
    return parse_digits(out, text, &end) && *end == '\0';
}

static bool parse_size(uint64_t *out, const char *text) {
    static const char letters[] = "KMGT";
    const char *end;
    uint64_t value;
    if (!parse_digits(&value, text, &end))
        return false;
    uint64_t unit = 1;
    if (*end) {
        const char *letter = strchr(letters, toupper((unsigned char)*end));
        const bool decimal = strcasecmp(end + 1, "B") == 0;
        if (!letter || (end[1] && !decimal && strcasecmp(end + 1, "iB") != 0))
            return false;
        for (const char *at = letters; at <= letter; at++)
            unit *= decimal ? 1000 : 1024;
    }
    if (value > UINT64_MAX / unit)
        return false;
    *out = value * unit;
    return *out >= FQ_OPT_MIN_SIZE;
}

static bool parse_float(float *out, const char *text) {
    char *end;
    if (*text == '\0' || isspace((unsigned char)*text))
        return false;
    *out = strtof(text, &end);
    return *end == '\0' && isfinite(*out) && *out >= 0.0f;
}

// "0", "0,1,3": numbers joined by commas.
static bool is_number_list(const char *text) {
    for (;;) {
        const size_t n = strspn(text, "0123456789");
        if (n == 0)
            return false;
        if (text[n] != ',')
            return text[n] == '\0';
        text += n + 1;
    }
}

static bool is_device(const char *text) {
    static const char cuda[] = "cuda:";
    return strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0 ||
           (strncmp(text, cuda, strlen(cuda)) == 0 && is_number_list(text + strlen(cuda)));
}

// Room for as many items as there are arguments: taken once, at the first item.
static fq_status append(const parser *p, fq_opt_list *list, const fq_opt *opt, const char *value) {
    if (!list->items)
        list->items = fq_arena_array(p->arena, (size_t)p->argc, sizeof *list->items);
    if (!list->items)
        return fq_fail_memory(p->err);
    list->items[list->n++] = (fq_opt_item){.name = opt->name, .value = value};
    return FQ_OK;
}

// What an option takes, in words.
static const char *describe_argument(const fq_opt *opt) {
    switch (opt->kind) {
    case FQ_OPT_COUNT:
        return "a number from 1 to 1024";
    case FQ_OPT_NUMBER:
        return "a number from 0 to 18446744073709551615";
    case FQ_OPT_SIZE:
        return "a size of 2M or more, such as 512M or 2G";
    case FQ_OPT_FLOAT:
        return "a number from 0 to 3.4e38";
    case FQ_OPT_DEVICE:
        return "auto, cpu, cuda or cuda:N[,M...]";
    default:
        return opt->argument;
    }
}

static bool takes_value(const fq_opt *opt) {
    return opt->kind != FQ_OPT_FLAG && opt->kind != FQ_OPT_ALONE;
}

static fq_status store(parser *p, const fq_opt *opt, const char *value) {
    void *target = p->options + opt->offset;
    bool ok = true;
    switch (opt->kind) {
    case FQ_OPT_ALONE:
        p->alone = true;
        // fall through
    case FQ_OPT_FLAG:
        *(bool *)target = true;
        break;
    case FQ_OPT_STRING:
        *(const char **)target = value;
        break;
    case FQ_OPT_DEVICE:
        *(const char **)target = value;
        ok = is_device(value);
        break;
    case FQ_OPT_CHOICE:
        *(int *)target = find_choice(opt->argument, value);
        ok = *(int *)target >= 0;
        break;
    case FQ_OPT_COUNT:
        ok = parse_count(target, value);
        break;
    case FQ_OPT_NUMBER:
        ok = parse_number(target, value);
        break;
    case FQ_OPT_SIZE:
        ok = parse_size(target, value);
        break;
    case FQ_OPT_FLOAT:
        ok = parse_float(target, value);
        break;
    case FQ_OPT_LIST:
        return append(p, target, opt, value);
    }
    if (ok)
        return FQ_OK;
    return fail_usage(p, "--%s takes %s, not \"%s\"", opt->name, describe_argument(opt), value);
}

static fq_status take_long(parser *p, const char *text) {
    const size_t n = strcspn(text, "=");
    const char *value = text[n] ? text + n + 1 : NULL;
    if (n == strlen("help") && memcmp(text, "help", n) == 0) {
        if (value)
            return fail_usage(p, "--help takes no value");
        p->out->help = true;
        return FQ_OK;
    }
    const fq_opt *opt = find_name(p->command, text, n);
    if (!opt) {
        char typed[256];
        snprintf(typed, sizeof typed, "%.*s", (int)(n < sizeof typed ? n : sizeof typed), text);
        return fail_unknown(p, typed);
    }
    if (!takes_value(opt) && value)
        return fail_usage(p, "--%s takes no value", opt->name);
    if (takes_value(opt) && !value) {
        if (p->next == p->argc)
            return fail_usage(p, "--%s needs %s", opt->name, opt->argument);
        value = p->argv[p->next++];
    }
    return store(p, opt, value);
}

// A cluster of letters; the rest of it, or the next argument, is the value of one that takes one.
static fq_status take_short(parser *p, const char *letters) {
    for (; *letters; letters++) {
        if (*letters == 'h') {
            p->out->help = true;
            return FQ_OK;
        }
        const fq_opt *opt = find_letter(p->command, *letters);
        if (!opt)
            return fail_usage(p, "unknown option -%c", *letters);
        if (takes_value(opt)) {
            if (letters[1])
                return store(p, opt, letters + 1);
            if (p->next == p->argc)
                return fail_usage(p, "-%c needs %s", opt->letter, opt->argument);
            return store(p, opt, p->argv[p->next++]);
        }
        const fq_status status = store(p, opt, NULL);
        if (status)
            return status;
    }
    return FQ_OK;
}

static fq_status take_operand(parser *p, const char *text) {
    if (p->out->operand)
        return fail_usage(p, "\"%s\" is one argument too many", text);
    p->out->operand = text;
    return FQ_OK;
}

fq_status fq_opt_parse(fq_opt_parsed *out, const fq_command *command, void *options,
                       fq_arena *arena, int argc, char *const *argv, fq_error *err) {
    parser p = {.out = out,
                .command = command,
                .options = options,
                .arena = arena,
                .argc = argc,
                .argv = argv,
                .err = err};
    bool options_ended = false;
    while (p.next < argc) {
        const char *text = argv[p.next++];
        fq_status status;
        if (options_ended || text[0] != '-' || text[1] == '\0')
            status = take_operand(&p, text);
        else if (strcmp(text, "--") == 0)
            status = (options_ended = true, FQ_OK);
        else
            status = text[1] == '-' ? take_long(&p, text + 2) : take_short(&p, text + 1);
        if (status || out->help)
            return status;
    }
    if (!out->operand && !p.alone && command->operand[0] != '[')
        return fail_usage(&p, "%s is missing", command->operand);
    return FQ_OK;
}

const char **fq_opt_values(const fq_opt_list *list, fq_arena *arena) {
    const char **values = fq_arena_array(arena, list->n, sizeof *values);
    for (size_t i = 0; values && i < list->n; i++)
        values[i] = list->items[i].value;
    return values;
}
