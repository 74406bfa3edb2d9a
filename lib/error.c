// Errors and lists of messages: see error.h.
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fq_status fq_fail(fq_error *err, fq_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

fq_status fq_status_of_errno(int errno_value) { return errno_value == ENOMEM ? FQ_DEVICE : FQ_IO; }

fq_status fq_fail_errno(fq_error *err, int errno_value, const char *format, ...) {
    va_list args;
    va_start(args, format);
    err->status = fq_status_of_errno(errno_value);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    const size_t n = strlen(err->text);
    snprintf(err->text + n, sizeof err->text - n, ": %s", strerror(errno_value));
    return err->status;
}

fq_status fq_fail_memory(fq_error *err) {
    return fq_fail(err, FQ_DEVICE, "out of memory; close other programs or use a smaller --memory");
}

static char *format_line(const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (n < 0)
        return NULL;
    char *line = malloc((size_t)n + 1);
    if (line)
        vsnprintf(line, (size_t)n + 1, format, args);
    return line;
}

static int make_room(fq_messages *messages) {
    if (messages->n < messages->capacity)
        return 1;
    const size_t capacity = messages->capacity ? 2 * messages->capacity : 8;
    char **lines = realloc(messages->lines, capacity * sizeof *lines);
    if (!lines)
        return 0;
    messages->lines = lines;
    messages->capacity = capacity;
    return 1;
}

void fq_messages_add(fq_messages *messages, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *line = make_room(messages) ? format_line(format, args) : NULL;
    va_end(args);
    if (line)
        messages->lines[messages->n++] = line;
    else
        messages->n_lost++;
}

void fq_messages_free(fq_messages *messages) {
    for (size_t i = 0; i < messages->n; i++)
        free(messages->lines[i]);
    free(messages->lines);
    memset(messages, 0, sizeof *messages);
}
