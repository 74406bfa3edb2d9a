// A list of modules that is read wrongly calls honest checkpoints broken: what a pattern matches is
// held against what Python's re.match says, and what is not read against a list of its own.
#include "lib/pattern.h"
#include "tests/check.h"

static fq_pattern *compile(fq_arena *arena, const char *text) {
    fq_error err = {0};
    fq_pattern *pattern = NULL;
    CHECK(fq_pattern_compile(&pattern, arena, text, &err) == FQ_OK);
    return pattern;
}

static const struct {
    const char *pattern, *text;
    bool matches;
} cases[] = {
    {"", "", true},
    {"", "a", true},
    {"a", "ab", true}, // the end is open
    {"a", "ba", false},
    {"b", "ab", false}, // the start is not
    {"a$", "ab", false},
    {"^a$", "a", true},
    {"a^", "a", false},
    {"$", "", true},
    {"(^)*a", "a", true},
    {".*gate$", "model.layers.0.mlp.gate", true},
    {".*gate$", "model.layers.0.mlp.gate_proj", false},
    {".*gate", "model.layers.0.mlp.gate_proj", true},
    {".*mlp\\.gate$", "a.mlp.gate", true},
    {".*mlp\\.gate$", "a.mlp_gate", false},
    {".*mlp.gate$", "a.mlp_gate", true},
    {"model\\.layers\\.\\d+\\.mlp\\.(gate|up)_proj", "model.layers.17.mlp.up_proj", true},
    {"model\\.layers\\.\\d+\\.mlp\\.(gate|up)_proj", "model.layers.x.mlp.up_proj", false},
    {"model\\.layers\\.([0-2]|60)\\.", "model.layers.60.a", true},
    {"model\\.layers\\.([0-2]|60)\\.", "model.layers.6.a", false},
    {"(?:a|b)+c", "ababc", true},
    {"(?:a|b)+c", "c", false},
    {"(a|)b", "b", true},
    {"a|b|", "x", true},
    {"|a", "x", true},
    {"a??b", "ab", true},
    {"a*?b", "aab", true},
    {"a+?$", "aab", false},
    {"(a*)*b", "aaab", true},
    {"(a*)+$", "aaab", false},
    {"((a?)?)?", "", true},
    {"[a-c_]+$", "ab_c", true},
    {"[a-c_]+$", "abd", false},
    {"[^.]+$", "abc", true},
    {"[^.]+$", "a.c", false},
    {"[]a]+$", "]a", true},
    {"[^]]", "]", false},
    {"[a-]+$", "a-", true},
    {"[-a]+$", "a-", true},
    {"[\\d.]+$", "1.2", true},
    {"[\\]]", "]", true},
    {"\\w+\\.\\w+$", "ab_1.x", true},
    {"\\w", "-", false},
    {"\\-\\_\\/", "-_/", true},
    {".", "\xC3\xA4", true},
    {".$", "\xC3\xA4", true},
    {"\xC3\xA4+$", "\xC3\xA4\xC3\xA4", true},
    {"\xC3\xA4?$", "\xC3", false},
    {"[^a]$", "\xC3\xA4", true},
    {".", "\n", false},
    {"[^a]", "\n", true},
    {"]", "]", true},
    {"a b#", "a b#", true},
};

static void test_matches(void) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fq_arena arena = {0};
        fq_pattern *pattern = compile(&arena, cases[i].pattern);
        const size_t n = strlen(cases[i].text);
        for (int turn = 0; turn < 2; turn++) { // a pattern keeps nothing of the name before
            if (!CHECK(pattern && fq_pattern_match(pattern, cases[i].text, n) == cases[i].matches))
                CHECK_NOTE("pattern %s, text %s\n", cases[i].pattern, cases[i].text);
        }
        fq_arena_free(&arena);
    }
}

// Only the first n bytes of a text count.
static void test_length(void) {
    fq_arena arena = {0};
    fq_pattern *pattern = compile(&arena, ".*gate$");
    CHECK(fq_pattern_match(pattern, "mlp.gate_proj", 8));
    CHECK(!fq_pattern_match(pattern, "mlp.gate_proj", 13));
    fq_arena_free(&arena);
}

static void test_what_is_not_read(void) {
    static const char *const unread[] = {
        "*",       "+a",         "?",           "a**",   "a*+",   "a?+",   "a{2}",
        "a{",      "}",          "^*",          "$+",    "(",     ")",     "(a",
        "a)",      "a|)",        "[",           "[a",    "[]",    "[^]",   "[b-a]",
        "[a-\\d]", "[\\d-z]",    "[[:alpha:]]", "(?!a)", "(?=a)", "(?i)a", "(?P<n>a)",
        "(?",      "\\",         "\\b",         "\\1",   "\\s",   "\\D",   "\\n",
        "\\x41",   "\\\xC3\xA4", "[\xC3\xA4]",  "a*?*",  "(a|b",  "[\\s]", "(?:",
    };
    for (size_t i = 0; i < sizeof unread / sizeof unread[0]; i++) {
        fq_arena arena = {0};
        if (!CHECK(!compile(&arena, unread[i])))
            CHECK_NOTE("pattern %s\n", unread[i]);
        fq_arena_free(&arena);
    }
}

// Long patterns, deep groups, and patterns that other machines take for ever with.
static void test_limits(void) {
    enum { LONGEST = 1000, DEEPEST = 50 };
    char text[2 * LONGEST + 2] = "";
    fq_arena arena = {0};
    memset(text, '|', LONGEST);
    CHECK(compile(&arena, text));
    text[LONGEST] = 'a';
    CHECK(!compile(&arena, text));
    for (int depth = DEEPEST; depth <= DEEPEST + 1; depth++) {
        memset(text, '(', (size_t)depth);
        memset(text + depth, ')', (size_t)depth);
        text[2 * depth] = '\0';
        CHECK(!compile(&arena, text) == (depth > DEEPEST));
    }
    memset(text, 'a', LONGEST);
    text[LONGEST] = '\0';
    fq_pattern *slow = compile(&arena, "(a|a|aa|.*)*(a*)*b");
    CHECK(slow && !fq_pattern_match(slow, text, LONGEST));
    text[LONGEST - 1] = 'b';
    CHECK(slow && fq_pattern_match(slow, text, LONGEST));
    fq_arena_free(&arena);
}

int main(void) {
    test_matches();
    test_length();
    test_what_is_not_read();
    test_limits();
    return check_result();
}
