// Looks names of modules up in a list of those left alone: see module_list.h.
#include "module_list.h"

#include "glob.h"
#include "names.h"

#include <stdlib.h>
#include <string.h>

// Of all patterns and globs together: each is held against each name, so that what a hostile list
// costs has a bound. The lists of real models come to a few hundred globs of 30 bytes.
enum { MAX_NBYTES = 1 << 15 };

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// A name or a glob has none of these, and does not begin with a dot.
static bool is_regular_expression(const char *entry) {
    return *entry == '.' || strpbrk(entry, "\\()|^$+{}");
}

static fq_status add_entry(fq_module_list *list, fq_arena *arena, const char *entry,
                           size_t *left_nbytes, fq_error *err) {
    const bool is_pattern = strncmp(entry, "re:", 3) == 0;
    const bool is_glob = !is_pattern && fq_glob_has_wildcard(entry);
    const size_t nbytes = is_pattern || is_glob ? strlen(entry) : 0;
    fq_pattern *pattern = NULL;
    fq_status status = FQ_OK;
    if (is_pattern && nbytes <= *left_nbytes)
        status = fq_pattern_compile(&pattern, arena, entry + 3, err);
    const bool is_unread =
        is_pattern ? !pattern : is_regular_expression(entry) || nbytes > *left_nbytes;
    if (is_unread)
        list->first_unread = list->n_unread++ == 0 ? entry : list->first_unread;
    else if (is_glob)
        list->globs[list->n_globs++] = entry;
    else if (!is_pattern)
        list->names[list->n_names++] = entry;
    if (pattern) {
        list->pattern_texts[list->n_patterns] = entry;
        list->patterns[list->n_patterns++] = pattern;
    }
    *left_nbytes -= is_unread ? 0 : nbytes;
    return status;
}

fq_status fq_module_list_read(fq_module_list *out, fq_arena *arena, const fq_quant_config *quant,
                              bool names_only, fq_error *err) {
    const size_t n = quant->n_unconverted;
    size_t left_nbytes = MAX_NBYTES;
    fq_module_list list = {.key = *quant->list_key ? quant->list_key : "modules_to_not_convert"};
    list.names = fq_arena_array(arena, n, sizeof *list.names);
    list.globs = fq_arena_array(arena, n, sizeof *list.globs);
    list.patterns = fq_arena_array(arena, n, sizeof *list.patterns);
    list.pattern_texts = fq_arena_array(arena, n, sizeof *list.pattern_texts);
    if (!list.names || !list.globs || !list.patterns || !list.pattern_texts)
        return fq_fail_memory(err);
    fq_status status = FQ_OK;
    for (size_t i = 0; i < n && !status; i++) {
        if (names_only)
            list.names[list.n_names++] = quant->unconverted[i];
        else
            status = add_entry(&list, arena, quant->unconverted[i], &left_nbytes, err);
    }
    qsort(list.names, list.n_names, sizeof *list.names, compare_names);
    *out = list;
    return status;
}

bool fq_module_list_names(const fq_module_list *list, const char *name, size_t n) {
    size_t low = 0, high = list->n_names;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const char *entry = list->names[middle];
        const int order = strncmp(entry, name, n);
        if (order == 0 && entry[n] == '\0')
            return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

bool fq_module_list_names_part(const fq_module_list *list, const char *name, size_t n) {
    for (size_t start = 0; start < n;) {
        for (size_t end = start; end < n;) {
            const char *dot = memchr(name + end, '.', n - end);
            end = dot ? (size_t)(dot - name) : n;
            if (fq_module_list_names(list, name + start, end - start))
                return true;
            end++;
        }
        const char *dot = memchr(name + start, '.', n - start);
        start = dot ? (size_t)(dot - name) + 1 : n;
    }
    return false;
}

static bool glob_takes(const char *glob, const char *name, size_t n) {
    if (fq_glob_match_n(glob, name, n))
        return true;
    if (fq_has_suffix(glob, "*")) // what it takes, it takes with all that is in it
        return false;
    for (const char *dot = memrchr(name, '.', n); dot;
         dot = memrchr(name, '.', (size_t)(dot - name))) {
        if (fq_glob_match_n(glob, name, (size_t)(dot - name)))
            return true;
    }
    return false;
}

const char *fq_module_list_match(const fq_module_list *list, const char *name, size_t n) {
    for (size_t i = 0; i < list->n_patterns; i++) {
        if (fq_pattern_match(list->patterns[i], name, n))
            return list->pattern_texts[i];
    }
    for (size_t i = 0; i < list->n_globs; i++) {
        if (glob_takes(list->globs[i], name, n))
            return list->globs[i];
    }
    return NULL;
}
