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

// Bytes of the character at text, [text, end): a lead byte and what continues it.
static inline size_t fq_character_nbytes(const char *text, const char *end) {
    size_t n = 1;
    while (text + n < end && ((unsigned char)text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

#endif
