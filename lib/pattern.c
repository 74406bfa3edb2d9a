// Regular expressions as machines whose states advance together, so that no pattern takes long.
#include "pattern.h"

#include "names.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

enum {
    MAX_NBYTES = 1000, // of a pattern
    MAX_DEPTH = 50,    // of groups in groups
    ASCII = 128,
    MAX_CHARACTER_NBYTES = 4,
};

typedef enum operation {
    TAKE,  // the character text[n]
    ANY,   // any character but a line break
    SET,   // a character of the set
    SPLIT, // goes on at both next and other
    JUMP,  // goes on at next
    START, // of the text
    END,   // of the text
    FOUND,
} operation;

typedef struct character_set {
    bool holds[ASCII];
    bool inverted; // holds all others, those beyond ASCII too
} character_set;

typedef struct instruction {
    uint8_t operation;
    uint8_t n;           // bytes of text
    int32_t next, other; // relative to the instruction
    union {
        const char *text;
        const character_set *set;
    };
} instruction;

struct fq_pattern {
    instruction *program; // [n]
    size_t n;
    uint32_t *states, *following; // [n]: what waits for this character, and for the one after it
    uint32_t *stack;              // [n]
    uint64_t *visited;            // [n]: in which step last
    uint64_t step;
};

// ---- Compiling

typedef struct parser {
    const char *at;
    fq_pattern *pattern;
    size_t capacity;
    fq_arena *arena;
    uint32_t depth;
    bool is_outside; // something was met that is not read
    bool no_memory;
} parser;

static void insert(parser *p, size_t place, instruction made) {
    fq_pattern *pattern = p->pattern;
    assert(pattern->n < p->capacity);
    instruction *at = pattern->program + place;
    memmove(at + 1, at, (pattern->n - place) * sizeof *at);
    *at = made;
    pattern->n++;
}

static void append(parser *p, instruction made) { insert(p, p->pattern->n, made); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Adds what stands behind a backslash: \d, \w, or one punctuation mark. False for all else.
static bool add_escaped(character_set *set, char c) {
    if (c == 'd' || c == 'w') {
        for (char digit = '0'; digit <= '9'; digit++)
            set->holds[(unsigned char)digit] = true;
        for (int i = 0; i < ASCII && c == 'w'; i++)
            set->holds[i] = set->holds[i] || is_letter((char)i) || i == '_';
        return true;
    }
    const unsigned char byte = (unsigned char)c;
    if (byte <= ' ' || byte >= 0x7F || is_digit(c) || is_letter(c))
        return false;
    set->holds[byte] = true;
    return true;
}

// The character of a set at p->at, or an end of a range; 0 for what is not read as one.
static unsigned char plain_member(const parser *p) {
    const unsigned char c = (unsigned char)*p->at;
    return c < ASCII && c != '\\' && c != '[' ? c : 0;
}

// One member of a set: an escape, a character, or a range of two.
static bool parse_member(parser *p, character_set *set) {
    if (*p->at == '\\') {
        const bool is_read = add_escaped(set, p->at[1]);
        p->at += is_read ? 2 : 0;
        return is_read && !(*p->at == '-' && p->at[1] != ']');
    }
    const unsigned char low = plain_member(p);
    if (!low)
        return false;
    p->at++;
    unsigned char high = low;
    if (*p->at == '-' && p->at[1] != ']') {
        p->at++;
        high = plain_member(p);
        if (high < low)
            return false;
        p->at++;
    }
    for (int c = low; c <= high; c++)
        set->holds[c] = true;
    return true;
}

static character_set *new_set(parser *p) {
    character_set *set = fq_arena_alloc(p->arena, sizeof *set);
    p->no_memory = p->no_memory || !set;
    return set;
}

// A `]` in first place is a member.
static void parse_set(parser *p) {
    character_set *set = new_set(p);
    if (!set)
        return;
    p->at++;
    set->inverted = *p->at == '^';
    p->at += set->inverted;
    do
        p->is_outside = !parse_member(p, set);
    while (!p->is_outside && *p->at != ']');
    p->at += !p->is_outside;
    append(p, (instruction){.operation = SET, .set = set});
}

static void parse_escape(parser *p) {
    character_set *set = new_set(p);
    if (!set)
        return;
    p->is_outside = !add_escaped(set, p->at[1]);
    p->at += p->is_outside ? 0 : 2;
    append(p, (instruction){.operation = SET, .set = set});
}

static void parse_alternatives(parser *p);

static void parse_group(parser *p) {
    p->at++;
    if (*p->at == '?') { // of all that may follow, (?: alone changes nothing
        p->is_outside = p->at[1] != ':';
        p->at += p->is_outside ? 0 : 2;
    }
    if (p->is_outside || p->depth == MAX_DEPTH) {
        p->is_outside = true;
        return;
    }
    p->depth++;
    parse_alternatives(p);
    p->depth--;
    if (*p->at == ')')
        p->at++;
    else
        p->is_outside = true;
}

// What may be repeated, or an anchor, which may not: false.
static bool parse_atom(parser *p) {
    const char c = *p->at;
    if (strchr("*+?{}", c)) {
        p->is_outside = true;
    } else if (c == '^' || c == '$') {
        p->at++;
        append(p, (instruction){.operation = c == '^' ? START : END});
        return false;
    } else if (c == '[') {
        parse_set(p);
    } else if (c == '\\') {
        parse_escape(p);
    } else if (c == '(') {
        parse_group(p);
    } else if (c == '.') {
        p->at++;
        append(p, (instruction){.operation = ANY});
    } else {
        const size_t n = fq_character_nbytes(p->at, p->at + strnlen(p->at, MAX_CHARACTER_NBYTES));
        append(p, (instruction){.operation = TAKE, .text = p->at, .n = (uint8_t)n});
        p->at += n;
    }
    return true;
}

// An atom with `*`, `+` or `?` behind it. A lazy repetition matches what a greedy one does.
static void parse_repetition(parser *p) {
    const size_t start = p->pattern->n;
    const bool is_repeatable = parse_atom(p);
    if (p->is_outside || p->no_memory || !*p->at || !strchr("*+?{", *p->at))
        return;
    const char kind = *p->at++;
    const int32_t n = (int32_t)(p->pattern->n - start);
    p->at += *p->at == '?';
    p->is_outside = !is_repeatable || kind == '{' || (*p->at && strchr("*+?{", *p->at));
    if (p->is_outside)
        return;
    if (kind == '+') {
        append(p, (instruction){.operation = SPLIT, .next = -n, .other = 1});
        return;
    }
    const int32_t behind = kind == '*' ? n + 2 : n + 1;
    insert(p, start, (instruction){.operation = SPLIT, .next = 1, .other = behind});
    if (kind == '*')
        append(p, (instruction){.operation = JUMP, .next = -(n + 1)});
}

static void parse_alternatives(parser *p) {
    const size_t start = p->pattern->n;
    while (*p->at && *p->at != '|' && *p->at != ')' && !p->is_outside && !p->no_memory)
        parse_repetition(p);
    if (*p->at != '|' || p->is_outside || p->no_memory)
        return;
    p->at++;
    const int32_t n = (int32_t)(p->pattern->n - start);
    insert(p, start, (instruction){.operation = SPLIT, .next = 1, .other = n + 2});
    const size_t jump = p->pattern->n;
    append(p, (instruction){.operation = JUMP});
    parse_alternatives(p);
    p->pattern->program[jump].next = (int32_t)(p->pattern->n - jump);
}

fq_status fq_pattern_compile(fq_pattern **out, fq_arena *arena, const char *text, fq_error *err) {
    const size_t n = strnlen(text, MAX_NBYTES + 1);
    const size_t capacity = 2 * n + 1; // a byte makes two instructions at most: `*`, `|`
    *out = NULL;
    if (n > MAX_NBYTES)
        return FQ_OK;
    fq_pattern *pattern = fq_arena_alloc(arena, sizeof *pattern);
    if (!pattern)
        return fq_fail_memory(err);
    pattern->program = fq_arena_array(arena, capacity, sizeof *pattern->program);
    pattern->states = fq_arena_array(arena, capacity, sizeof *pattern->states);
    pattern->following = fq_arena_array(arena, capacity, sizeof *pattern->following);
    pattern->stack = fq_arena_array(arena, capacity, sizeof *pattern->stack);
    pattern->visited = fq_arena_array(arena, capacity, sizeof *pattern->visited);
    if (!pattern->program || !pattern->states || !pattern->following || !pattern->stack ||
        !pattern->visited)
        return fq_fail_memory(err);
    parser p = {.at = text, .pattern = pattern, .capacity = capacity, .arena = arena};
    parse_alternatives(&p);
    if (p.no_memory)
        return fq_fail_memory(err);
    if (p.is_outside || *p.at) // as at a `)` too many
        return FQ_OK;
    append(&p, (instruction){.operation = FOUND});
    *out = pattern;
    return FQ_OK;
}

// ---- Matching

// Adds to states[*n_states] all that wait for a character and can be reached from state without
// one. True if the pattern's end can be.
static bool follow(fq_pattern *pattern, uint32_t *states, size_t *n_states, uint32_t state,
                   bool is_start, bool is_end) {
    size_t n_stack = 0;
    pattern->stack[n_stack++] = state;
    pattern->visited[state] = pattern->step;
    while (n_stack > 0) {
        const uint32_t at = pattern->stack[--n_stack];
        const instruction *i = &pattern->program[at];
        int32_t ways[2] = {1, 0};
        if (i->operation == FOUND)
            return true;
        if (i->operation == TAKE || i->operation == ANY || i->operation == SET) {
            states[(*n_states)++] = at;
            continue;
        }
        if ((i->operation == START && !is_start) || (i->operation == END && !is_end))
            continue;
        if (i->operation == SPLIT || i->operation == JUMP)
            ways[0] = i->next;
        if (i->operation == SPLIT)
            ways[1] = i->other;
        for (int way = 0; way < 2 && ways[way] != 0; way++) {
            const uint32_t to = (uint32_t)((int64_t)at + ways[way]);
            if (pattern->visited[to] != pattern->step)
                pattern->stack[n_stack++] = to;
            pattern->visited[to] = pattern->step;
        }
    }
    return false;
}

static bool takes(const instruction *i, const char *character, size_t n) {
    const unsigned char byte = (unsigned char)*character;
    switch (i->operation) {
    case TAKE:
        return i->n == n && memcmp(i->text, character, n) == 0;
    case SET:
        return (byte < ASCII && i->set->holds[byte]) != i->set->inverted;
    default:
        return byte != '\n';
    }
}

bool fq_pattern_match(fq_pattern *pattern, const char *text, size_t n) {
    const char *end = text + n;
    size_t n_states = 0;
    pattern->step++;
    if (follow(pattern, pattern->states, &n_states, 0, true, n == 0))
        return true;
    while (text < end && n_states > 0) {
        const size_t n_bytes = fq_character_nbytes(text, end);
        size_t n_following = 0;
        pattern->step++;
        for (size_t i = 0; i < n_states; i++) {
            const uint32_t state = pattern->states[i];
            if (!takes(&pattern->program[state], text, n_bytes) ||
                pattern->visited[state + 1] == pattern->step)
                continue;
            if (follow(pattern, pattern->following, &n_following, state + 1, false,
                       text + n_bytes == end))
                return true;
        }
        uint32_t *spent = pattern->states;
        pattern->states = pattern->following;
        pattern->following = spent;
        n_states = n_following;
        text += n_bytes;
    }
    return false;
}
