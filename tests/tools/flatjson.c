// Prints JSON from stdin as one line per value, "summary.n_kept 4", for scripts to look at; exits 1
// unless it is strict JSON and pure ASCII.
#include "formats/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct level {
    bool is_object;
    size_t index;         // of the next element; arrays
    size_t prefix_nbytes; // of the path up to this container
} level;

static level levels[FQ_JSON_MAX_DEPTH + 1];
static char path[1 << 16];

static void append(size_t at, const char *text) {
    snprintf(path + at, sizeof path - at, "%s%s", at > 0 ? "." : "", text);
}

// Extends the path by the index where the value at hand is an element of an array.
static void enter_element(uint32_t depth) {
    char digits[24];
    if (depth == 0 || levels[depth].is_object)
        return;
    snprintf(digits, sizeof digits, "%zu", levels[depth].index++);
    append(levels[depth].prefix_nbytes, digits);
}

static fq_status print_event(void *context, const fq_json_event *event, fq_error *err) {
    (void)err;
    const char *text = context;
    switch (event->kind) {
    case FQ_JSON_OBJECT_END:
    case FQ_JSON_ARRAY_END:
        return FQ_OK;
    case FQ_JSON_KEY:
        append(levels[event->depth].prefix_nbytes, event->text);
        return FQ_OK;
    case FQ_JSON_OBJECT:
    case FQ_JSON_ARRAY:
        enter_element(event->depth);
        levels[event->depth + 1] = (level){
            .is_object = event->kind == FQ_JSON_OBJECT,
            .prefix_nbytes = strlen(path),
        };
        return FQ_OK;
    default:
        enter_element(event->depth);
        printf("%s %.*s\n", path, (int)(event->end - event->begin), text + event->begin);
        return FQ_OK;
    }
}

int main(void) {
    static char text[64 << 20];
    const size_t nbytes = fread(text, 1, sizeof text, stdin);
    for (size_t i = 0; i < nbytes; i++) {
        if ((text[i] < 0x20 && text[i] != '\n') || text[i] == 0x7F) {
            fprintf(stderr, "flatjson: byte %zu is not printable ASCII\n", i);
            return 1;
        }
    }
    const fq_json_options options = {.file = "stdin"};
    fq_error err = {0};
    if (fq_json_scan(text, nbytes, &options, print_event, text, &err) == FQ_OK)
        return 0;
    fprintf(stderr, "flatjson: %s\n", err.text);
    return 1;
}
