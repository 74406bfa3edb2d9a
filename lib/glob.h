// Globs on names, as --include and the built-in rules use them.
#ifndef FQ_GLOB_H
#define FQ_GLOB_H

#include <stdbool.h>
#include <stddef.h>

// True if glob matches all of text. `*` is any run of characters, dots too; `?` is one character
// (of UTF-8); [abc], [a-z] and [!abc] are one byte of a set, or not of it. A `[` that is never
// closed stands for itself, and a glob matches its own text even so: "a[0]" both "a0" and "a[0]".
// O(length of glob × length of text) at worst.
bool fq_glob_match(const char *glob, const char *text);

// Like fq_glob_match, for the first n bytes of text.
bool fq_glob_match_n(const char *glob, const char *text, size_t n);

// True if one of globs[n] matches all of text.
bool fq_glob_match_any(const char *const *globs, size_t n, const char *text);

// Like fq_glob_match_any, but no globs choose everything: --tensor, and --tensor not given.
bool fq_glob_chooses(const char *const *globs, size_t n, const char *text);

// True if glob may match names other than itself: it holds `*`, `?` or a set.
bool fq_glob_has_wildcard(const char *glob);

#endif
