// Commands by their names, and what is said of one that is none.
#include "command.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

fq_status fq_reply_check_faults(fq_reply *reply, fq_error *err) {
    fq_messages *faults = &reply->faults;
    if (faults->n + faults->n_lost == 0)
        return FQ_OK;
    if (faults->n != 1 || faults->n_lost > 0)
        return fq_fail(err, FQ_BAD_INPUT, "%zu faults in the input", faults->n + faults->n_lost);
    fq_fail(err, FQ_BAD_INPUT, "%s", faults->lines[0]);
    fq_messages_free(faults);
    return FQ_BAD_INPUT;
}

const fq_command *fq_command_find(const fq_command *const *commands, const char *name) {
    for (; *commands; commands++) {
        if (strcmp((*commands)->name, name) == 0)
            return *commands;
    }
    return NULL;
}

fq_status fq_command_unknown(const fq_command *const *commands, const char *name, fq_error *err) {
    enum { MAX_COMMANDS = 16 };
    const char *names[MAX_COMMANDS];
    size_t n = 0;
    for (; *commands; commands++) {
        assert(n < MAX_COMMANDS);
        names[n++] = (*commands)->name;
    }
    if (*name && access(name, F_OK) == 0)
        return fq_fail(err, FQ_USAGE,
                       "unknown command \"%.64s\"; to convert the model of that name, run fp8q "
                       "convert %s",
                       name, name);
    const char *nearest = fq_opt_nearest(names, n, name);
    if (!nearest)
        return fq_fail(err, FQ_USAGE, "unknown command \"%.64s\"; see fp8q --help", name);
    return fq_fail(err, FQ_USAGE, "unknown command \"%.64s\" (did you mean %s?); see fp8q --help",
                   name, nearest);
}
