// Globs: one pass with a single point to come back to, since only the last `*` ever needs widening.
#include "glob.h"

#include "names.h"

#include <string.h>

// The `]` that closes the set which starts at glob[0] == '[', or NULL. A `]` in first place is a
// member.
static const char *end_of_set(const char *glob) {
    const char *p = glob + 1;
    if (*p == '!')
        p++;
    if (*p == ']')
        p++;
    return strchr(p, ']');
}

static bool set_holds(const char *set, const char *end, unsigned char byte) {
    const char *p = set + 1;
    const bool inverted = *p == '!';
    if (inverted)
        p++;
    bool found = false;
    while (p < end) {
        const unsigned char low = (unsigned char)*p;
        const bool is_range = end - p >= 3 && p[1] == '-';
        const unsigned char high = is_range ? (unsigned char)p[2] : low;
        found = found || (byte >= low && byte <= high);
        p += is_range ? 3 : 1;
    }
    return found != inverted;
}

// Matches one element of glob other than `*` at text. Returns the bytes of text it takes and moves
// *glob behind it; 0 if it does not match.
static size_t match_one(const char **glob, const char *text, const char *end) {
    const char *g = *glob;
    if (*g == '?') {
        *glob = g + 1;
        return fq_character_nbytes(text, end);
    }
    const char *set_end = *g == '[' ? end_of_set(g) : NULL;
    if (set_end) {
        *glob = set_end + 1;
        return set_holds(g, set_end, (unsigned char)*text);
    }
    *glob = g + 1;
    return *g == *text;
}

bool fq_glob_match_n(const char *glob, const char *text, size_t n) {
    const char *end = text + n;
    const char *star = NULL; // behind the last `*` met
    const char *star_text = NULL;
    while (text < end) {
        if (*glob == '*') {
            star = ++glob;
            star_text = text;
            continue;
        }
        const size_t taken = *glob ? match_one(&glob, text, end) : 0;
        if (taken > 0) {
            text += taken;
        } else if (star) {
            glob = star;
            text = ++star_text;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return *glob == '\0';
}

bool fq_glob_match(const char *glob, const char *text) {
    return strcmp(glob, text) == 0 || fq_glob_match_n(glob, text, strlen(text));
}

bool fq_glob_match_any(const char *const *globs, size_t n, const char *text) {
    for (size_t i = 0; i < n; i++) {
        if (fq_glob_match(globs[i], text))
            return true;
    }
    return false;
}

bool fq_glob_chooses(const char *const *globs, size_t n, const char *text) {
    return n == 0 || fq_glob_match_any(globs, n, text);
}

bool fq_glob_has_wildcard(const char *glob) {
    for (const char *p = glob; *p; p++) {
        if (*p == '*' || *p == '?' || (*p == '[' && end_of_set(p)))
            return true;
    }
    return false;
}
