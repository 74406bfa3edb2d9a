// Globs pick what is quantized: one that matches too much or too little is found out late.
#include "lib/glob.h"
#include "tests/check.h"

static void test_globs(void) {
    static const struct {
        const char *glob, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "a.b.c", true},
        {"a*c", "abc", true},
        {"a*c", "abcd", false},
        {"*b*", "abc", true},
        {"*.w", "a.w.w", true},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"?", "\xC3\xA4", true},
        {"??", "\xC3\xA4", false},
        {"[ab]c", "bc", true},
        {"[ab]c", "cc", false},
        {"[!ab]c", "cc", true},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[]]", "]", true},
        {"[*]", "*", true},
        {"[*]", "a", false},
        {"a[", "a[", true},
        {"a[b", "a[b", true},
        {"a[0].w", "a[0].w", true},
        {"a[0].w", "a0.w", true},
        {"[!a]", "[!a]", true},
        {"a[!", "a[!", true},
        {"a[]", "a[]", true},
        {"[-a]", "-", true},
        {"[a-]", "-", true},
        {"l.[0-9].*", "l.3.w", true},
        {"l.[0-9].*", "l.13.w", false},
        {"*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!CHECK(fq_glob_match(cases[i].glob, cases[i].text) == cases[i].matches))
            fprintf(stderr, "    \"%s\" on \"%s\"\n", cases[i].glob, cases[i].text);
    }
    CHECK(fq_glob_match_n("gate", "gate.weight", 4));
    CHECK(!fq_glob_match_n("gate", "gate_proj", 9));
    static const char *const globs[] = {"a*", "*z"};
    CHECK(fq_glob_match_any(globs, 2, "xyz") && !fq_glob_match_any(globs, 1, "xyz"));
    CHECK(!fq_glob_match_any(globs, 0, "a") && fq_glob_chooses(globs, 0, "a"));
    CHECK(fq_glob_chooses(globs, 2, "xyz") && !fq_glob_chooses(globs, 1, "xyz"));
    CHECK(fq_glob_has_wildcard("a[bc]") && !fq_glob_has_wildcard("a.b-c!"));
    CHECK(fq_glob_has_wildcard("a?") && fq_glob_has_wildcard("*"));
    CHECK(!fq_glob_has_wildcard("a[b") && !fq_glob_has_wildcard("a]") &&
          !fq_glob_has_wildcard("a[]") && !fq_glob_has_wildcard("a[!"));
}

int main(void) {
    test_globs();
    return check_result();
}
