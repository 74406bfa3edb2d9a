// Folded listings are what users read of a plan: no number may be lost or made up.
#include "lib/fold.h"
#include "tests/check.h"

#include <stdlib.h>

enum { MAX_ITEMS = 16 };

static fq_arena arena;

// Folds names that all have the same rest.
static size_t fold(fq_fold_line **lines, const char *const *names, size_t n) {
    fq_fold_item items[MAX_ITEMS];
    for (size_t i = 0; i < n; i++)
        items[i] = (fq_fold_item){.name = names[i], .rest = "r"};
    size_t n_lines = 0;
    fq_error err = {0};
    CHECK(fq_fold(lines, &n_lines, &arena, items, n, &err) == FQ_OK);
    return n_lines;
}

static void test_runs_and_gaps(void) {
    const char *names[] = {"l.10.w", "l.2.w", "l.0.w", "l.1.w", "l.5.w", "l.11.w"};
    fq_fold_line *lines;
    CHECK_U64(fold(&lines, names, 6), 1);
    CHECK_STR(lines[0].pattern, "l.{0..2,5,10..11}.w");
    CHECK_U64(lines[0].n, 6);
    CHECK_U64(lines[0].first, 0);
}

static void test_one_number_is_no_set(void) {
    const char *names[] = {"l.7.e.0.w", "l.7.e.1.w"};
    fq_fold_line *lines;
    CHECK_U64(fold(&lines, names, 2), 1);
    CHECK_STR(lines[0].pattern, "l.7.e.{0..1}.w");
}

// Two sets side by side stand for all combinations: for no expert of another layer.
static void test_no_combination_is_made_up(void) {
    const char *names[] = {"l.0.e.2.w", "l.1.e.5.w", "l.2.e.2.w"};
    fq_fold_line *lines;
    CHECK_U64(fold(&lines, names, 3), 2);
    CHECK_STR(lines[0].pattern, "l.{0,2}.e.2.w");
    CHECK_U64(lines[0].n, 2);
    CHECK_STR(lines[1].pattern, "l.1.e.5.w");
    CHECK_U64(lines[1].first, 1);

    const char *all_but_one[] = {"l.2.1", "l.1.0", "l.10.0", "l.10.1", "l.3.0", "l.3.1", "l.1.1"};
    CHECK_U64(fold(&lines, all_but_one, 7), 2);
    CHECK_STR(lines[0].pattern, "l.2.1");
    CHECK_STR(lines[1].pattern, "l.{1,3,10}.{0..1}");
    CHECK_U64(lines[1].n, 6);
    CHECK_U64(lines[1].first, 1);

    const char *three[] = {"0.0.0", "0.1.1", "1.0.0", "1.1.1", "1.0.1"};
    CHECK_U64(fold(&lines, three, 5), 4);
    CHECK_STR(lines[0].pattern, "0.0.0");
    CHECK_STR(lines[1].pattern, "0.1.1");
    CHECK_STR(lines[2].pattern, "1.0.{0..1}");
    CHECK_STR(lines[3].pattern, "1.1.1");
}

static void test_only_whole_components_are_numbers(void) {
    const char *names[] = {"w1", "w2", "l.1a.w", "l.2a.w", "a.01.w", "a.02.w", "1", "2", "x."};
    fq_fold_line *lines;
    CHECK_U64(fold(&lines, names, 9), 8);
    CHECK_STR(lines[0].pattern, "w1");
    CHECK_STR(lines[2].pattern, "l.1a.w");
    CHECK_STR(lines[4].pattern, "a.01.w");
    CHECK_STR(lines[6].pattern, "{1..2}");
    CHECK_STR(lines[7].pattern, "x.");
}

static void test_order_is_that_of_first_items(void) {
    const char *names[] = {"z.1", "a.1", "z.0", "a.0", "m"};
    fq_fold_line *lines;
    CHECK_U64(fold(&lines, names, 5), 3);
    CHECK_STR(lines[0].pattern, "z.{0..1}");
    CHECK_STR(lines[1].pattern, "a.{0..1}");
    CHECK_U64(lines[1].first, 1);
    CHECK_STR(lines[2].pattern, "m");
}

static void test_different_rests_stay_apart(void) {
    const fq_fold_item items[] = {{"l.0.w", "[1]"}, {"l.1.w", "[2]"}, {"l.2.w", "[1]"}};
    fq_fold_line *lines;
    size_t n_lines = 0;
    fq_error err = {0};
    CHECK(fq_fold(&lines, &n_lines, &arena, items, 3, &err) == FQ_OK);
    CHECK_U64(n_lines, 2);
    CHECK_STR(lines[0].pattern, "l.{0,2}.w");
    CHECK_STR(lines[0].rest, "[1]");
    CHECK_STR(lines[1].pattern, "l.1.w");
}

static void test_extremes(void) {
    fq_fold_line *lines;
    CHECK_U64(fold(&lines, NULL, 0), 0);
    const char *names[] = {"", "999999999999999999", "1000000000000000000", "a..b", "a.0.b"};
    CHECK_U64(fold(&lines, names, 5), 5);
    CHECK_STR(lines[0].pattern, "");
    CHECK_STR(lines[1].pattern, "999999999999999999");
    CHECK_STR(lines[2].pattern, "1000000000000000000");
    CHECK_STR(lines[3].pattern, "a..b");
    const char *same[] = {"l.3", "l.3"};
    CHECK_U64(fold(&lines, same, 2), 1);
    CHECK_STR(lines[0].pattern, "l.3");
    CHECK_U64(lines[0].n, 2);
}

static void test_messages(void) {
    static const fq_fold_item items[] = {
        {"l.0.w", "is bad"}, {"l.1.w", "is bad"}, {"b", "is worse"}};
    fq_messages messages = {0};
    fq_error err = {0};
    CHECK(fq_fold_messages(&messages, "DIR", items, 3, &err) == FQ_OK);
    CHECK_U64(messages.n, 2);
    CHECK_STR(messages.lines[0], "DIR: l.{0..1}.w: is bad");
    CHECK_STR(messages.lines[1], "DIR: b: is worse");
    CHECK(fq_fold_messages(&messages, "DIR", NULL, 0, &err) == FQ_OK && messages.n == 2);
    fq_messages_free(&messages);
}

int main(void) {
    test_runs_and_gaps();
    test_one_number_is_no_set();
    test_no_combination_is_made_up();
    test_only_whole_components_are_numbers();
    test_order_is_that_of_first_items();
    test_different_rests_stay_apart();
    test_extremes();
    test_messages();
    fq_arena_free(&arena);
    return check_result();
}
