// Folding: sorts the names with every number taken for the same symbol, then lists the numbers met
// at each place. Where not all combinations of them are there, the names are split at the first
// place, and those numbers that have the same ones behind them share a line again.
#include "fold.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 18 }; // what fits an uint64_t for certain

// Splits within splits, one for each number but the last. Names have a layer, an expert, and seldom
// a third number; those that are made of thousands must not take forever.
enum { MAX_DEPTH = 2 };

typedef struct sorted_item {
    const char *name, *rest;
    size_t index;
    const char *tail; // of an item whose line was split: the pattern behind that place
} sorted_item;

// Text that grows. Zeroed is empty.
typedef struct text_buffer {
    char *bytes;
    size_t n, capacity;
} text_buffer;

// The digits at the start of a component that is nothing but a number; 0 for any other component.
// Numbers with leading zeros are not taken: they could not be written back from their value.
static size_t number_length(const char *component) {
    size_t n = 0;
    while (component[n] >= '0' && component[n] <= '9')
        n++;
    if (n == 0)
        return 0;
    const bool is_whole = component[n] == '.' || component[n] == '\0';
    const bool has_leading_zero = n > 1 && component[0] == '0';
    return is_whole && !has_leading_zero && n <= MAX_DIGITS ? n : 0;
}

// Orders names as if each number were one symbol that comes before every byte.
static int compare_patterns(const char *a, const char *b) {
    bool at_start = true;
    for (;;) {
        if (at_start) {
            const size_t number_a = number_length(a), number_b = number_length(b);
            if ((number_a == 0) != (number_b == 0))
                return number_a ? -1 : 1;
            a += number_a;
            b += number_b;
        }
        if (*a != *b || *a == '\0')
            return (unsigned char)*a - (unsigned char)*b;
        at_start = *a == '.';
        a++;
        b++;
    }
}

// The bytes up to the first number in which two names of one pattern differ; SIZE_MAX if they are
// equal.
static size_t difference(const char *a, const char *b) {
    const char *start = a;
    for (bool at_start = true; *a; at_start = *a == '.', a++, b++) {
        const size_t number_a = at_start ? number_length(a) : 0;
        const size_t number_b = at_start ? number_length(b) : 0;
        if (number_a != number_b || memcmp(a, b, number_a) != 0)
            return (size_t)(a - start);
        if (number_a > 0) {
            a += number_a - 1;
            b += number_b - 1;
        }
    }
    return SIZE_MAX;
}

static int compare_names(const char *a, const char *b) {
    const size_t at = difference(a, b);
    if (at == SIZE_MAX)
        return 0;
    const uint64_t x = strtoull(a + at, NULL, 10), y = strtoull(b + at, NULL, 10);
    return (x > y) - (x < y);
}

static int compare_tails(const void *a, const void *b) {
    const sorted_item *x = a, *y = b;
    const int order = strcmp(x->tail, y->tail);
    return order ? order : compare_names(x->name, y->name);
}

static int compare_items(const void *a, const void *b) {
    const sorted_item *x = a, *y = b;
    int order = compare_patterns(x->name, y->name);
    if (order == 0)
        order = strcmp(x->rest, y->rest);
    if (order == 0)
        order = compare_names(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static bool is_same_line(const sorted_item *a, const sorted_item *b) {
    return compare_patterns(a->name, b->name) == 0 && strcmp(a->rest, b->rest) == 0;
}

static int compare_numbers(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int compare_lines(const void *a, const void *b) {
    const fq_fold_line *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static bool append(text_buffer *text, const char *bytes, size_t n) {
    if (text->capacity - text->n < n) {
        const size_t capacity = 2 * text->capacity + n;
        char *grown = realloc(text->bytes, capacity);
        if (!grown)
            return false;
        text->bytes = grown;
        text->capacity = capacity;
    }
    if (n > 0)
        memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
    return true;
}

static bool append_run(text_buffer *text, uint64_t first, uint64_t last) {
    char run[2 * MAX_DIGITS + 3];
    const int n = first == last ? snprintf(run, sizeof run, "%" PRIu64, first)
                                : snprintf(run, sizeof run, "%" PRIu64 "..%" PRIu64, first, last);
    return append(text, run, (size_t)n);
}

// Writes n sorted numbers: "7", or "{0..2,5}".
static bool append_numbers(text_buffer *text, const uint64_t *numbers, size_t n) {
    const bool is_set = numbers[0] != numbers[n - 1];
    if (is_set && !append(text, "{", 1))
        return false;
    for (size_t i = 0; i < n;) {
        size_t last = i;
        while (last + 1 < n && numbers[last + 1] - numbers[last] <= 1)
            last++;
        if ((i > 0 && !append(text, ",", 1)) || !append_run(text, numbers[i], numbers[last]))
            return false;
        i = last + 1;
    }
    return !is_set || append(text, "}", 1);
}

static uint64_t count_different(const uint64_t *sorted, size_t n) {
    uint64_t n_different = 0;
    for (size_t i = 0; i < n; i++)
        n_different += i == 0 || sorted[i] != sorted[i - 1];
    return n_different;
}

// What lines are made with.
typedef struct folder {
    fq_arena *arena; // of the lines
    fq_arena *scratch;
    const char **at; // [n], as the next
    uint64_t *numbers;
    fq_fold_line *lines; // [n_lines], room for as many as there are items
    size_t n_lines;
} folder;

// Writes the pattern of n items of one line from byte `start` of their names on, walking all of
// them side by side. *n_names: how many names it stands for.
static bool append_pattern(text_buffer *text, uint64_t *n_names, const folder *f,
                           const sorted_item *items, size_t n, size_t start) {
    const char **at = f->at;
    *n_names = 1;
    for (size_t i = 0; i < n; i++)
        at[i] = items[i].name + start;
    for (;;) {
        if (number_length(at[0])) {
            for (size_t i = 0; i < n; i++) {
                char *end;
                f->numbers[i] = strtoull(at[i], &end, 10);
                at[i] = end;
            }
            qsort(f->numbers, n, sizeof *f->numbers, compare_numbers);
            const uint64_t n_different = count_different(f->numbers, n);
            *n_names = *n_names > UINT64_MAX / n_different ? UINT64_MAX : *n_names * n_different;
            if (!append_numbers(text, f->numbers, n))
                return false;
        }
        size_t literal = strcspn(at[0], ".");
        const bool is_last = at[0][literal] == '\0';
        literal += !is_last;
        if (!append(text, at[0], literal))
            return false;
        if (is_last)
            return true;
        for (size_t i = 0; i < n; i++)
            at[i] += literal;
    }
}

// NULL when out of memory.
static const char *make_pattern(fq_arena *arena, uint64_t *n_names, const folder *f,
                                const sorted_item *items, size_t n, size_t start) {
    text_buffer text = {0};
    const char *pattern = NULL;
    if (append_pattern(&text, n_names, f, items, n, start))
        pattern = fq_arena_strndup(arena, text.n ? text.bytes : "", text.n);
    free(text.bytes);
    return pattern;
}

static void add_line(folder *f, const char *pattern, const sorted_item *items, size_t n) {
    fq_fold_line *line = &f->lines[f->n_lines++];
    *line = (fq_fold_line){.pattern = pattern, .rest = items[0].rest, .n = n, .first = SIZE_MAX};
    for (size_t i = 0; i < n; i++)
        line->first = items[i].index < line->first ? items[i].index : line->first;
}

static size_t count_names(const sorted_item *items, size_t n) {
    size_t n_different = n > 0;
    for (size_t i = 1; i < n; i++)
        n_different += difference(items[i - 1].name, items[i].name) != SIZE_MAX;
    return n_different;
}

static fq_status add_lines(folder *f, sorted_item *items, size_t n, int depth, fq_error *err);

// Lines of items[n] that have all combinations of one number and the same tails.
static fq_status add_same_tails(folder *f, sorted_item *items, size_t n, fq_error *err) {
    qsort(items, n, sizeof *items, compare_tails);
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && strcmp(items[start].tail, items[end].tail) == 0;)
            end++;
        uint64_t n_names;
        const char *pattern = make_pattern(f->arena, &n_names, f, &items[start], end - start, 0);
        if (!pattern)
            return fq_fail_memory(err);
        add_line(f, pattern, &items[start], end - start);
    }
    return FQ_OK;
}

// Splits items[n], sorted, at the first number in which their names differ. Those of one such
// number that fold into one line wait for others with the same tail.
static fq_status split(folder *f, sorted_item *items, size_t n, int depth, fq_error *err) {
    const size_t place = difference(items[0].name, items[n - 1].name);
    size_t n_waiting = 0;
    for (size_t start = 0, end; start < n; start = end) {
        for (end = start + 1; end < n && difference(items[end - 1].name, items[end].name) != place;)
            end++;
        uint64_t n_names;
        const size_t tail = place + number_length(items[start].name + place);
        const char *pattern =
            make_pattern(f->scratch, &n_names, f, &items[start], end - start, tail);
        if (!pattern)
            return fq_fail_memory(err);
        if (n_names > count_names(&items[start], end - start)) {
            const fq_status status = add_lines(f, &items[start], end - start, depth + 1, err);
            if (status)
                return status;
            continue;
        }
        for (size_t i = start; i < end; i++) {
            items[n_waiting] = items[i];
            items[n_waiting++].tail = pattern;
        }
    }
    return add_same_tails(f, items, n_waiting, err);
}

// Of items[n] that have one pattern and one rest.
static fq_status add_lines(folder *f, sorted_item *items, size_t n, int depth, fq_error *err) {
    uint64_t n_names;
    const char *pattern = make_pattern(f->arena, &n_names, f, items, n, 0);
    if (!pattern)
        return fq_fail_memory(err);
    if (n_names > count_names(items, n) && depth < MAX_DEPTH)
        return split(f, items, n, depth, err);
    add_line(f, pattern, items, n);
    return FQ_OK;
}

fq_status fq_fold(fq_fold_line **out, size_t *n_lines, fq_arena *arena, const fq_fold_item *items,
                  size_t n, fq_error *err) {
    fq_arena scratch = {0};
    sorted_item *sorted = fq_arena_array(&scratch, n, sizeof *sorted);
    folder f = {.arena = arena,
                .scratch = &scratch,
                .at = fq_arena_array(&scratch, n, sizeof *f.at),
                .numbers = fq_arena_array(&scratch, n, sizeof *f.numbers),
                .lines = fq_arena_array(arena, n, sizeof *f.lines)};
    fq_status status = sorted && f.at && f.numbers && f.lines ? FQ_OK : fq_fail_memory(err);
    for (size_t i = 0; i < n && !status; i++)
        sorted[i] = (sorted_item){.name = items[i].name, .rest = items[i].rest, .index = i};
    if (!status)
        qsort(sorted, n, sizeof *sorted, compare_items);
    for (size_t start = 0, end; start < n && !status; start = end) {
        for (end = start + 1; end < n && is_same_line(&sorted[start], &sorted[end]);)
            end++;
        status = add_lines(&f, &sorted[start], end - start, 0, err);
    }
    if (!status) {
        qsort(f.lines, f.n_lines, sizeof *f.lines, compare_lines);
        *out = f.lines;
        *n_lines = f.n_lines;
    }
    fq_arena_free(&scratch);
    return status;
}

fq_status fq_fold_messages(fq_messages *messages, const char *path, const fq_fold_item *items,
                           size_t n, fq_error *err) {
    fq_arena arena = {0};
    fq_fold_line *lines = NULL;
    size_t n_lines = 0;
    const fq_status status = fq_fold(&lines, &n_lines, &arena, items, n, err);
    for (size_t i = 0; i < n_lines && !status; i++)
        fq_messages_add(messages, "%s: %s: %s", path, lines[i].pattern, lines[i].rest);
    fq_arena_free(&arena);
    return status;
}
