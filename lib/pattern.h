// Regular expressions on names of modules, as the lists of other quantizers hold them behind "re:".
#ifndef FQ_PATTERN_H
#define FQ_PATTERN_H

#include "arena.h"
#include "error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct fq_pattern fq_pattern;

// Compiles the part of Python's syntax in which such lists are written: characters, `.`, `\d`,
// `\w` (of ASCII), a backslash before punctuation, sets such as [a-z_] and [^0-9], groups, also
// (?:…), with `|`, the repetitions `*`, `+` and `?`, lazy ones too, and the anchors `^` and `$`.
// *out is NULL where text holds anything else, or more than 1,000 bytes: what it would mean is not
// guessed. Memory from arena; text must live as long. FQ_DEVICE when out of memory.
fq_status fq_pattern_compile(fq_pattern **out, fq_arena *arena, const char *text, fq_error *err);

// True if the pattern matches at the start of text[n], wherever it ends: Python's re.match.
// O(n × length of the pattern), whatever the pattern. One thread at a time.
bool fq_pattern_match(fq_pattern *pattern, const char *text, size_t n);

#endif
