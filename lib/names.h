// Small questions about names.
#ifndef FQ_NAMES_H
#define FQ_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// Like fq_has_suffix, for the first n bytes of name.
static inline bool fq_has_suffix_n(const char *name, size_t n, const char *suffix) {
    const size_t n_suffix = strlen(suffix);
    return n >= n_suffix && memcmp(name + n - n_suffix, suffix, n_suffix) == 0;
}

// True if name ends in suffix.
static inline bool fq_has_suffix(const char *name, const char *suffix) {
    return fq_has_suffix_n(name, strlen(name), suffix);
}

#endif
