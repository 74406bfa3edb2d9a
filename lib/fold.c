// Folding: sorts the names with every number taken for the same symbol, then lists the numbers met
// at each place.
#include "fold.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 18 }; // what fits an uint64_t for certain

typedef struct sorted_item {
    const char *name, *rest;
    size_t index;
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

static int compare_items(const void *a, const void *b) {
    const sorted_item *x = a, *y = b;
    int order = compare_patterns(x->name, y->name);
    if (order == 0)
        order = strcmp(x->rest, y->rest);
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

// Writes the pattern of n items of one line, walking all their names side by side. at[n] and
// numbers[n] are scratch.
static bool append_pattern(text_buffer *text, const sorted_item *items, size_t n, const char **at,
                           uint64_t *numbers) {
    for (size_t i = 0; i < n; i++)
        at[i] = items[i].name;
    for (;;) {
        if (number_length(at[0])) {
            for (size_t i = 0; i < n; i++) {
                char *end;
                numbers[i] = strtoull(at[i], &end, 10);
                at[i] = end;
            }
            qsort(numbers, n, sizeof *numbers, compare_numbers);
            if (!append_numbers(text, numbers, n))
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

static fq_status make_line(fq_fold_line *out, fq_arena *arena, const sorted_item *items, size_t n,
                           const char **at, uint64_t *numbers, fq_error *err) {
    text_buffer text = {0};
    char *pattern = NULL;
    if (append_pattern(&text, items, n, at, numbers))
        pattern = fq_arena_strndup(arena, text.n ? text.bytes : "", text.n);
    free(text.bytes);
    if (!pattern)
        return fq_fail_memory(err);
    *out =
        (fq_fold_line){.pattern = pattern, .rest = items[0].rest, .n = n, .first = items[0].index};
    return FQ_OK;
}

static fq_status make_lines(fq_fold_line **out, size_t *n_lines, fq_arena *arena,
                            const sorted_item *sorted, size_t n, const char **at, uint64_t *numbers,
                            fq_error *err) {
    size_t n_groups = 0, n_made = 0;
    for (size_t i = 0; i < n; i++)
        n_groups += i == 0 || !is_same_line(&sorted[i - 1], &sorted[i]);
    fq_fold_line *lines = fq_arena_array(arena, n_groups, sizeof *lines);
    if (!lines)
        return fq_fail_memory(err);
    for (size_t start = 0, end; start < n; start = end) {
        end = start + 1;
        while (end < n && is_same_line(&sorted[start], &sorted[end]))
            end++;
        const fq_status status =
            make_line(&lines[n_made], arena, &sorted[start], end - start, at, numbers, err);
        if (status)
            return status;
        n_made++;
    }
    qsort(lines, n_made, sizeof *lines, compare_lines);
    *out = lines;
    *n_lines = n_made;
    return FQ_OK;
}

fq_status fq_fold(fq_fold_line **out, size_t *n_lines, fq_arena *arena, const fq_fold_item *items,
                  size_t n, fq_error *err) {
    fq_arena scratch = {0};
    sorted_item *sorted = fq_arena_array(&scratch, n, sizeof *sorted);
    const char **at = fq_arena_array(&scratch, n, sizeof *at);
    uint64_t *numbers = fq_arena_array(&scratch, n, sizeof *numbers);
    fq_status status = sorted && at && numbers ? FQ_OK : fq_fail_memory(err);
    if (!status) {
        for (size_t i = 0; i < n; i++)
            sorted[i] = (sorted_item){.name = items[i].name, .rest = items[i].rest, .index = i};
        qsort(sorted, n, sizeof *sorted, compare_items);
        status = make_lines(out, n_lines, arena, sorted, n, at, numbers, err);
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
