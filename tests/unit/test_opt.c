// The command line is the one interface that every user meets: forms of options, values at their
// limits, and messages that name the option meant.
#include "cmd/opt.c"
#include "tests/check.h"

#include "cmd/command.h"

typedef struct options {
    bool flag, alone;
    const char *text, *device;
    int choice;
    uint32_t count;
    uint64_t size, seed;
    float number;
    fq_opt_list rules;
} options;

static const fq_opt table[] = {
    {"flag", 'f', NULL, FQ_OPT_FLAG, offsetof(options, flag), ""},
    {"list-all", 0, NULL, FQ_OPT_ALONE, offsetof(options, alone), ""},
    {"output", 'o', "OUTPUT", FQ_OPT_STRING, offsetof(options, text), ""},
    {"scale-format", 0, "f32|pow2|e8m0", FQ_OPT_CHOICE, offsetof(options, choice), ""},
    {"count", 0, "N", FQ_OPT_COUNT, offsetof(options, count), ""},
    {"size", 0, "SIZE", FQ_OPT_SIZE, offsetof(options, size), ""},
    {"seed", 0, "S", FQ_OPT_NUMBER, offsetof(options, seed), ""},
    {"number", 0, "X", FQ_OPT_FLOAT, offsetof(options, number), ""},
    {"device", 0, "DEVICE", FQ_OPT_DEVICE, offsetof(options, device), ""},
    {"force", 0, NULL, FQ_OPT_FLAG, offsetof(options, flag), ""},
    {"include", 0, "GLOB", FQ_OPT_LIST, offsetof(options, rules), ""},
    {"exclude", 0, "GLOB", FQ_OPT_LIST, offsetof(options, rules), ""},
    {0},
};

static const fq_command command = {
    .name = "cmd",
    .operand = "INPUT",
    .tables = (const fq_opt *const[]){table, NULL},
};

static options o;
static fq_opt_parsed parsed;
static fq_error err;
static fq_arena arena;

// Parses a command line of words that NULL ends.
static fq_status parse(char *const *words) {
    int argc = 0;
    while (words[argc])
        argc++;
    memset(&o, 0, sizeof o);
    memset(&parsed, 0, sizeof parsed);
    memset(&err, 0, sizeof err);
    return fq_opt_parse(&parsed, &command, &o, &arena, argc, words, &err);
}

#define PARSE(...) parse((char *[]){__VA_ARGS__, NULL})

static void test_forms(void) {
    CHECK(PARSE("--output", "x", "in") == FQ_OK);
    CHECK_STR(o.text, "x");
    CHECK_STR(parsed.operand, "in");
    CHECK(PARSE("in", "--output=a=b") == FQ_OK);
    CHECK_STR(o.text, "a=b");
    CHECK(PARSE("in", "-o", "x") == FQ_OK);
    CHECK_STR(o.text, "x");
    CHECK(PARSE("in", "-ox") == FQ_OK);
    CHECK_STR(o.text, "x");
    CHECK(PARSE("in", "-fo", "-x") == FQ_OK);
    CHECK(o.flag);
    CHECK_STR(o.text, "-x");
    CHECK(PARSE("in", "--output=") == FQ_OK);
    CHECK_STR(o.text, "");
    CHECK(PARSE("in", "-o", "x", "-o", "y") == FQ_OK); // the last one wins
    CHECK_STR(o.text, "y");
}

static void test_operands(void) {
    CHECK(PARSE("--", "--flag") == FQ_OK);
    CHECK_STR(parsed.operand, "--flag");
    CHECK(!o.flag);
    CHECK(PARSE("-") == FQ_OK);
    CHECK_STR(parsed.operand, "-");
    CHECK(PARSE("--flag") == FQ_USAGE);
    CHECK_STR(err.text, "cmd: INPUT is missing; see fp8q cmd --help");
    CHECK(PARSE("a", "b") == FQ_USAGE);
    CHECK_STR(err.text, "cmd: \"b\" is one argument too many; see fp8q cmd --help");
    CHECK(PARSE("--list-all") == FQ_OK); // the operand may be absent
    CHECK(o.alone && !parsed.operand);
}

static void test_help(void) {
    CHECK(PARSE("-h") == FQ_OK);
    CHECK(parsed.help);
    CHECK(PARSE("in", "--help", "--bogus") == FQ_OK);
    CHECK(parsed.help);
    CHECK(PARSE("--output", "--help", "in") == FQ_OK); // a value, whatever it looks like
    CHECK(!parsed.help);
}

static void test_unknown(void) {
    CHECK(PARSE("in", "--scale-fnt", "f32") == FQ_USAGE);
    CHECK_STR(err.text, "cmd: unknown option --scale-fnt (did you mean --scale-format?); "
                        "see fp8q cmd --help");
    CHECK(PARSE("in", "--scale") == FQ_USAGE);
    CHECK_HAS(err.text, "did you mean --scale-format?");
    CHECK(PARSE("in", "--ouput=x") == FQ_USAGE);
    CHECK_HAS(err.text, "--ouput (did you mean --output?)");
    CHECK(PARSE("in", "--hlep") == FQ_USAGE);
    CHECK_HAS(err.text, "did you mean --help?");
    // What is named is tried: nothing is better than a guess, above all for a short --force.
    static char *const unlike[] = {"--frc",       "--for", "--fforcee", "--resume",
                                   "--outpputtt", "--o",   "--=x"};
    for (size_t i = 0; i < sizeof unlike / sizeof unlike[0]; i++) {
        CHECK(PARSE("in", unlike[i]) == FQ_USAGE);
        CHECK_HAS(err.text, "cmd: unknown option --");
        CHECK(!strstr(err.text, "did you mean"));
    }
    CHECK(PARSE("in", "--froce") == FQ_USAGE);
    CHECK_HAS(err.text, "did you mean --force?");
    CHECK(PARSE("in", "-fx") == FQ_USAGE);
    CHECK_HAS(err.text, "unknown option -x");
}

static void test_values(void) {
    CHECK(PARSE("in", "--output") == FQ_USAGE);
    CHECK_HAS(err.text, "--output needs OUTPUT");
    CHECK(PARSE("in", "-o") == FQ_USAGE);
    CHECK_HAS(err.text, "-o needs OUTPUT");
    CHECK(PARSE("in", "--flag=1") == FQ_USAGE);
    CHECK_HAS(err.text, "--flag takes no value");
    CHECK(PARSE("in", "--scale-format", "e8m0") == FQ_OK);
    CHECK(o.choice == 2);
    CHECK(PARSE("in", "--scale-format", "pow") == FQ_USAGE);
    CHECK_HAS(err.text, "--scale-format takes f32|pow2|e8m0, not \"pow\"");
    CHECK(PARSE("in", "--scale-format", "f32|pow2") == FQ_USAGE);
    CHECK(PARSE("in", "--scale-format=") == FQ_USAGE);
}

static void test_counts(void) {
    CHECK(PARSE("in", "--count", "1024") == FQ_OK);
    CHECK_U64(o.count, 1024);
    static char *const bad[] = {"0", "1025", "-1", "", "1 ", " 1", "0x1", "4294967297"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(PARSE("in", "--count", bad[i]) == FQ_USAGE);
        CHECK_HAS(err.text, "--count takes a number from 1 to 1024");
    }
}

static void test_sizes(void) {
    static const struct {
        char *text;
        uint64_t nbytes;
    } good[] = {
        {"2097152", 2 << 20}, {"2048K", 2 << 20},      {"2048k", 2 << 20},
        {"2M", 2 << 20},      {"2MiB", 2 << 20},       {"2mib", 2 << 20},
        {"3MB", 3000000},     {"1G", 1 << 30},         {"1T", 1ull << 40},
        {"5000kb", 5000000},  {"0002097153", 2097153}, {"16777215T", 16777215ull << 40},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(PARSE("in", "--size", good[i].text) == FQ_OK);
        CHECK_U64(o.size, good[i].nbytes);
    }
    static char *const bad[] = {"0",     "",         "K",         "4X",
                                "4MM",   "4.5G",     "-4M",       "4 M",
                                "4Mib2", "4194304B", "16777216T", "18446744073709551616",
                                "2047K", "2MB",      "2097151"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(PARSE("in", "--size", bad[i]) == FQ_USAGE);
        CHECK_HAS(err.text, "--size takes a size of 2M or more");
    }
}

static void test_whole_numbers(void) {
    CHECK(PARSE("in", "--seed", "0") == FQ_OK);
    CHECK_U64(o.seed, 0);
    CHECK(PARSE("in", "--seed", "18446744073709551615") == FQ_OK);
    CHECK_U64(o.seed, UINT64_MAX);
    static char *const bad[] = {"", " 1", "1 ", "-1", "+1", "1e3", "0x1", "18446744073709551616"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(PARSE("in", "--seed", bad[i]) == FQ_USAGE);
        CHECK_HAS(err.text, "--seed takes a number from 0 to 18446744073709551615");
    }
}

static void test_numbers(void) {
    CHECK(PARSE("in", "--number", "1e-4") == FQ_OK);
    CHECK(o.number == 1e-4f);
    CHECK(PARSE("in", "--number", "0") == FQ_OK);
    CHECK(o.number == 0.0f);
    static char *const bad[] = {"", " 1", "1 ", "-1", "nan", "inf", "1e50", "x", "1,5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(PARSE("in", "--number", bad[i]) == FQ_USAGE);
        CHECK_HAS(err.text, "--number takes a number from 0 to 3.4e38");
    }
}

static void test_devices(void) {
    static char *const good[] = {"auto", "cpu", "cuda", "cuda:0", "cuda:0,1,13"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(PARSE("in", "--device", good[i]) == FQ_OK);
        CHECK_STR(o.device, good[i]);
    }
    static char *const bad[] = {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:0,", "cuda:,0", "cuda0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(PARSE("in", "--device", bad[i]) == FQ_USAGE);
        CHECK_HAS(err.text, "--device takes auto, cpu, cuda or cuda:N[,M...], not \"");
    }
}

// --include and --exclude decide by their order on the command line.
static void test_lists_keep_their_order(void) {
    CHECK(PARSE("--include", "a", "in", "--exclude=b", "--include", "c") == FQ_OK);
    CHECK_U64(o.rules.n, 3);
    CHECK_STR(o.rules.items[0].name, "include");
    CHECK_STR(o.rules.items[0].value, "a");
    CHECK_STR(o.rules.items[1].name, "exclude");
    CHECK_STR(o.rules.items[1].value, "b");
    CHECK_STR(o.rules.items[2].name, "include");
    CHECK_STR(o.rules.items[2].value, "c");
}

int main(void) {
    test_forms();
    test_operands();
    test_help();
    test_unknown();
    test_values();
    test_counts();
    test_sizes();
    test_whole_numbers();
    test_numbers();
    test_devices();
    test_lists_keep_their_order();
    fq_arena_free(&arena);
    return check_result();
}
