// Checks for tests in C: a failed one prints where and what, the test goes on, and main fails.
#ifndef FQ_TESTS_CHECK_H
#define FQ_TESTS_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int check_n_failed;
static int check_n_done;

enum { CHECK_MAX_PRINTED = 20 };

// Counts a check, and prints the place if it failed (the first few times). Returns ok.
static inline int check_that(int ok, const char *file, int line, const char *text) {
    check_n_done++;
    if (!ok) {
        if (++check_n_failed <= CHECK_MAX_PRINTED)
            fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
    }
    return ok;
}

#define CHECK(condition) check_that(!!(condition), __FILE__, __LINE__, #condition)

// For what a failed check has to add: silent once enough was printed.
#define CHECK_NOTE(...)                                                                            \
    ((void)(check_n_failed <= CHECK_MAX_PRINTED && fprintf(stderr, "    " __VA_ARGS__)))

#define CHECK_U64(actual, expected)                                                                \
    do {                                                                                           \
        const uint64_t check_a = (uint64_t)(actual), check_e = (uint64_t)(expected);               \
        if (!check_that(check_a == check_e, __FILE__, __LINE__, #actual " == " #expected))         \
            CHECK_NOTE("is %" PRIu64 " (0x%" PRIx64 "), not %" PRIu64 " (0x%" PRIx64 ")\n",        \
                       check_a, check_a, check_e, check_e);                                        \
    } while (0)

#define CHECK_STR(actual, expected)                                                                \
    do {                                                                                           \
        const char *check_a = (actual), *check_e = (expected);                                     \
        if (!check_that(check_a && strcmp(check_a, check_e) == 0, __FILE__, __LINE__,              \
                        #actual " == " #expected))                                                 \
            CHECK_NOTE("is \"%s\"\n    not \"%s\"\n", check_a ? check_a : "(null)", check_e);      \
    } while (0)

// The text contains the part.
#define CHECK_HAS(text, part)                                                                      \
    do {                                                                                           \
        const char *check_t = (text), *check_p = (part);                                           \
        if (!check_that(check_t && strstr(check_t, check_p), __FILE__, __LINE__,                   \
                        #text " has " #part))                                                      \
            CHECK_NOTE("text \"%s\"\n    part \"%s\"\n", check_t ? check_t : "(null)", check_p);   \
    } while (0)

// For the end of main: the exit status, after one line of summary. A test without
// checks fails.
static inline int check_result(void) {
    printf("%d checks, %d failed\n", check_n_done, check_n_failed);
    return check_n_failed != 0 || check_n_done == 0;
}

#endif
