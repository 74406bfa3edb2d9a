// The strict JSON scanner: one pass, no tree, a stack of its own instead of recursion.
#include "json.h"

#include "utf8.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct frame {
    bool is_object;
    bool is_empty; // nothing read in it yet
    size_t first_key;
} frame;

// A key of an open object. Equal keys have equal hashes; the tokens themselves decide.
typedef struct key {
    uint32_t hash;
    uint32_t begin; // of its token
} key;

typedef struct scanner {
    const char *text;
    size_t nbytes;
    size_t at;
    const fq_json_options *options;
    fq_json_handler *handler;
    void *context;
    fq_error *err;
    frame frames[FQ_JSON_MAX_DEPTH];
    uint32_t depth;
    key *keys; // [n_keys], of all open objects, the outermost first
    size_t n_keys, keys_capacity;
    fq_json_text string; // the string at hand, unescaped
} scanner;

static fq_status fail_at(const scanner *s, size_t at, const char *what) {
    size_t line = 1, line_begin = 0;
    for (size_t i = 0; i < at; i++) {
        if (s->text[i] == '\n') {
            line++;
            line_begin = i + 1;
        }
    }
    return fq_fail(s->err, FQ_BAD_INPUT,
                   "%s: line %zu, column %zu: %s; repair the file or fetch it again",
                   s->options->file, line, at - line_begin + 1, what);
}

static fq_status emit(const scanner *s, fq_json_kind kind, size_t begin, const char *text,
                      size_t nbytes) {
    const fq_json_event event = {
        .kind = kind,
        .depth = s->depth,
        .text = text,
        .nbytes = nbytes,
        .begin = begin,
        .end = s->at,
    };
    return s->handler(s->context, &event, s->err);
}

static int peek(const scanner *s) { return s->at < s->nbytes ? (unsigned char)s->text[s->at] : -1; }

static void skip_space(scanner *s) {
    while (s->at < s->nbytes && (s->text[s->at] == ' ' || s->text[s->at] == '\n' ||
                                 s->text[s->at] == '\r' || s->text[s->at] == '\t'))
        s->at++;
}

// ---- Strings

static bool read_hex4(uint32_t *out, const char *text, size_t nbytes) {
    if (nbytes < 4)
        return false;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return false;
        value = value << 4 | (uint32_t)digit;
    }
    *out = value;
    return true;
}

// Decodes the escape that text starts with. Returns its length, or 0 where it is none.
static size_t decode_escape(uint32_t *out, const char *text, size_t nbytes) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (nbytes < 2)
        return 0;
    if (text[1] != 'u') {
        const char *letter = memchr(letters, text[1], sizeof letters - 1);
        if (!letter)
            return 0;
        *out = (unsigned char)meanings[letter - letters];
        return 2;
    }
    uint32_t lead, trail;
    if (!read_hex4(&lead, text + 2, nbytes - 2) || (lead >= 0xDC00 && lead <= 0xDFFF))
        return 0;
    *out = lead;
    if (lead < 0xD800 || lead > 0xDBFF)
        return 6;
    if (nbytes < 12 || text[6] != '\\' || text[7] != 'u' || !read_hex4(&trail, text + 8, 4) ||
        trail < 0xDC00 || trail > 0xDFFF)
        return 0;
    *out = 0x10000 + ((lead - 0xD800) << 10) + (trail - 0xDC00);
    return 12;
}

// Decodes one character of a string's inside. Returns its length, or 0 where it is none.
static size_t decode_char(uint32_t *out, const char *text, size_t nbytes) {
    if (*text == '\\')
        return decode_escape(out, text, nbytes);
    if ((unsigned char)*text < 0x20)
        return 0;
    return fq_utf8_decode(out, text, nbytes);
}

// Stands for itself: ASCII that is no control character, quote or backslash.
static bool is_plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

// Reads the string that starts at s->at into s->string.
static fq_status read_string(scanner *s) {
    const size_t begin = s->at++;
    s->string.n = 0;
    for (;;) {
        const size_t run_begin = s->at;
        while (s->at < s->nbytes && is_plain((unsigned char)s->text[s->at]))
            s->at++;
        fq_json_put_bytes(&s->string, s->text + run_begin, s->at - run_begin);
        if (s->at == s->nbytes)
            return fail_at(s, begin, "the string that starts here does not end");
        const char c = s->text[s->at];
        if (c == '"')
            break;
        uint32_t point;
        const size_t n = decode_char(&point, s->text + s->at, s->nbytes - s->at);
        if (n == 0 && c == '\\')
            return fail_at(s, s->at,
                           "the escape is none that JSON knows, or half a surrogate pair");
        if (n == 0 && (unsigned char)c < 0x20)
            return fail_at(s, s->at, "a control character stands in a string without an escape");
        if (n == 0)
            return fail_at(s, s->at, "the bytes are not UTF-8");
        char encoded[4];
        fq_json_put_bytes(&s->string, encoded, fq_utf8_encode(encoded, point));
        s->at += n;
    }
    s->at++;
    return s->string.out_of_memory ? fq_fail_memory(s->err) : FQ_OK;
}

// ---- Keys and duplicates

static fq_status add_key(scanner *s, size_t begin) {
    if (s->n_keys == s->keys_capacity) {
        const size_t capacity = s->keys_capacity ? 2 * s->keys_capacity : 64;
        key *keys = realloc(s->keys, capacity * sizeof *keys);
        if (!keys)
            return fq_fail_memory(s->err);
        s->keys = keys;
        s->keys_capacity = capacity;
    }
    uint32_t hash = 2166136261u; // FNV-1a
    for (size_t i = 0; i < s->string.n; i++)
        hash = (hash ^ (unsigned char)s->string.bytes[i]) * 16777619u;
    s->keys[s->n_keys++] = (key){.hash = hash, .begin = (uint32_t)begin};
    return FQ_OK;
}

static const uint32_t TOKEN_END = UINT32_MAX;

// The next character of a string token that was scanned before.
static uint32_t next_point(const char **at) {
    enum { LONGEST = 12 }; // two escapes of a surrogate pair
    uint32_t point = 0;
    if (**at == '"')
        return TOKEN_END;
    *at += decode_char(&point, *at, LONGEST);
    return point;
}

// Orders the string tokens at two places by their characters.
static int compare_tokens(const char *text, size_t a, size_t b) {
    const char *x = text + a + 1, *y = text + b + 1;
    uint32_t x_point, y_point;
    do {
        x_point = next_point(&x);
        y_point = next_point(&y);
    } while (x_point == y_point && x_point != TOKEN_END);
    return (x_point > y_point) - (x_point < y_point);
}

static int compare_keys(const void *a, const void *b, void *context) {
    const key *x = a, *y = b;
    const scanner *s = context;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    const int order = compare_tokens(s->text, x->begin, y->begin);
    return order != 0 ? order : (x->begin > y->begin) - (x->begin < y->begin);
}

static fq_status fail_duplicate(const scanner *s, size_t begin) {
    enum { LONGEST_SHOWN = 200 };
    const char *inside = s->text + begin + 1, *end = inside;
    while (*end != '"' && end - inside < LONGEST_SHOWN)
        next_point(&end);
    char what[LONGEST_SHOWN + 64];
    snprintf(what, sizeof what, "the key \"%.*s\" is there twice", (int)(end - inside), inside);
    return fail_at(s, begin, what);
}

// Forgets the keys of the innermost object, after checking that they all differ.
static fq_status close_keys(scanner *s, size_t first_key) {
    const size_t n = s->n_keys - first_key;
    s->n_keys = first_key;
    if (n < 2)
        return FQ_OK;
    key *keys = s->keys + first_key;
    qsort_r(keys, n, sizeof *keys, compare_keys, s);
    size_t duplicate = SIZE_MAX; // the first in the text
    for (size_t i = 1; i < n; i++) {
        if (keys[i].hash == keys[i - 1].hash && keys[i].begin < duplicate &&
            compare_tokens(s->text, keys[i].begin, keys[i - 1].begin) == 0)
            duplicate = keys[i].begin;
    }
    return duplicate == SIZE_MAX ? FQ_OK : fail_duplicate(s, duplicate);
}

// ---- Values

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

// Skips digits. False if there is none.
static bool skip_digits(scanner *s) {
    const size_t begin = s->at;
    while (is_digit(peek(s)))
        s->at++;
    return s->at > begin;
}

static fq_status scan_number(scanner *s) {
    const size_t begin = s->at;
    s->at += peek(s) == '-';
    bool ok = true;
    if (peek(s) == '0')
        s->at++;
    else
        ok = skip_digits(s);
    if (ok && peek(s) == '.') {
        s->at++;
        ok = skip_digits(s);
    }
    if (ok && (peek(s) == 'e' || peek(s) == 'E')) {
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        ok = skip_digits(s);
    }
    if (!ok)
        return fail_at(s, begin, "the number is not complete");
    if (!fq_json_number_is_finite(s->text + begin, s->at - begin))
        return fail_at(s, begin, "the number exceeds the range of doubles");
    return emit(s, FQ_JSON_NUMBER, begin, s->text + begin, s->at - begin);
}

static fq_status scan_word(scanner *s) {
    static const struct {
        const char *word;
        fq_json_kind kind;
    } words[] = {
        {"true", FQ_JSON_TRUE},         {"false", FQ_JSON_FALSE},        {"null", FQ_JSON_NULL},
        {"Infinity", FQ_JSON_CONSTANT}, {"-Infinity", FQ_JSON_CONSTANT}, {"NaN", FQ_JSON_CONSTANT},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t n = strlen(words[i].word);
        if (n > s->nbytes - s->at || memcmp(s->text + s->at, words[i].word, n) != 0)
            continue;
        if (words[i].kind == FQ_JSON_CONSTANT && !s->options->allow_constants)
            return fail_at(s, s->at, "Infinity and NaN are no JSON");
        s->at += n;
        return emit(s, words[i].kind, s->at - n, "", 0);
    }
    return fail_at(s, s->at, s->at == s->nbytes ? "the text ends early" : "a value is expected");
}

static fq_status open_container(scanner *s, bool is_object) {
    if (s->depth == FQ_JSON_MAX_DEPTH)
        return fail_at(s, s->at, "more than 127 objects and arrays lie in each other");
    s->at++;
    const fq_status status = emit(s, is_object ? FQ_JSON_OBJECT : FQ_JSON_ARRAY, s->at - 1, "", 0);
    s->frames[s->depth++] =
        (frame){.is_object = is_object, .is_empty = true, .first_key = s->n_keys};
    return status;
}

static fq_status close_container(scanner *s) {
    const frame *closed = &s->frames[--s->depth];
    s->at++;
    if (closed->is_object) {
        const fq_status status = close_keys(s, closed->first_key);
        if (status != FQ_OK)
            return status;
    }
    return emit(s, closed->is_object ? FQ_JSON_OBJECT_END : FQ_JSON_ARRAY_END, s->at - 1, "", 0);
}

// Scans a whole scalar, or opens a container.
static fq_status scan_value(scanner *s) {
    const int c = peek(s);
    if (c == '{' || c == '[')
        return open_container(s, c == '{');
    if (c == '"') {
        const size_t begin = s->at;
        const fq_status status = read_string(s);
        return status != FQ_OK ? status
                               : emit(s, FQ_JSON_STRING, begin, s->string.bytes, s->string.n);
    }
    if (is_digit(c) || (c == '-' && s->nbytes - s->at > 1 && s->text[s->at + 1] != 'I'))
        return scan_number(s);
    return scan_word(s);
}

// Scans a key and the colon behind it.
static fq_status scan_key(scanner *s) {
    const size_t begin = s->at;
    if (peek(s) != '"')
        return fail_at(s, s->at, "a key in double quotes is expected");
    fq_status status = read_string(s);
    if (status == FQ_OK)
        status = add_key(s, begin);
    if (status == FQ_OK)
        status = emit(s, FQ_JSON_KEY, begin, s->string.bytes, s->string.n);
    if (status != FQ_OK)
        return status;
    skip_space(s);
    if (peek(s) != ':')
        return fail_at(s, s->at, "a colon is expected");
    s->at++;
    skip_space(s);
    return FQ_OK;
}

// Scans the next member of the innermost container, or its end.
static fq_status scan_member(scanner *s) {
    frame *innermost = &s->frames[s->depth - 1];
    skip_space(s);
    if (peek(s) == (innermost->is_object ? '}' : ']'))
        return close_container(s);
    if (!innermost->is_empty) {
        if (peek(s) != ',')
            return fail_at(s, s->at,
                           s->at == s->nbytes     ? "the text ends early"
                           : innermost->is_object ? "a comma or } is expected"
                                                  : "a comma or ] is expected");
        s->at++;
        skip_space(s);
    }
    innermost->is_empty = false;
    if (innermost->is_object) {
        const fq_status status = scan_key(s);
        if (status != FQ_OK)
            return status;
    }
    return scan_value(s);
}

fq_status fq_json_scan(const char *text, size_t nbytes, const fq_json_options *options,
                       fq_json_handler *handler, void *context, fq_error *err) {
    assert(nbytes <= UINT32_MAX);
    scanner s = {
        .text = text,
        .nbytes = nbytes,
        .options = options,
        .handler = handler,
        .context = context,
        .err = err,
    };
    skip_space(&s);
    fq_status status = scan_value(&s);
    while (status == FQ_OK && s.depth > 0)
        status = scan_member(&s);
    if (status == FQ_OK) {
        skip_space(&s);
        if (s.at < nbytes)
            status = fail_at(&s, s.at, "the JSON value has ended here, but the text goes on");
    }
    free(s.keys);
    fq_json_text_free(&s.string);
    return status;
}
