// The end of a name: what tells weights, indexes and compressed files apart.
#ifndef FQ_FORMATS_SUFFIX_H
#define FQ_FORMATS_SUFFIX_H

#include <stdbool.h>
#include <string.h>

static inline bool fq_ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

#endif
