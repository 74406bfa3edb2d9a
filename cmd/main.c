// fp8q: finds the command, parses its options, runs it, prints what went wrong, and exits.
#include "command.h"
#include "help.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

// In the order of help.
static const fq_command *const commands[] = {
    &fq_command_convert,
    &fq_command_verify,
    &fq_command_dequant,
    &fq_command_inspect,
    &fq_command_bench,
    &fq_command_help,
    NULL,
};

static void print_messages(const fq_printer *printer, const char *prefix, fq_style style,
                           const fq_messages *messages) {
    for (size_t i = 0; i < messages->n; i++) {
        fq_print(printer, style, "%s", prefix);
        fq_print_line(printer, " %s", messages->lines[i]);
    }
    if (messages->n_lost > 0)
        fq_print_line(printer, "%s %zu more message%s found no memory", prefix, messages->n_lost,
                      fq_plural(messages->n_lost));
}

static void print_reply(const fq_reply *reply, const fq_error *err) {
    const fq_printer printer = fq_printer_make(stderr, reply->color);
    print_messages(&printer, "fp8q: warning:", FQ_YELLOW, &reply->warnings);
    print_messages(&printer, "fp8q:", FQ_RED, &reply->faults);
    if (err->status) {
        fq_print(&printer, FQ_RED, "fp8q:");
        fq_print_line(&printer, " %s", err->text);
    }
    print_messages(&printer, "fp8q:", FQ_PLAIN, &reply->notes);
    fflush(stderr);
}

static fq_status run_command(const fq_command *command, int argc, char **argv, fq_reply *reply,
                             fq_error *err) {
    fq_arena arena = {0};
    fq_opt_parsed parsed = {0};
    fq_status status = FQ_OK;
    void *options = fq_arena_alloc(&arena, command->options_nbytes);
    if (!options) {
        status = fq_fail_memory(err);
        goto out;
    }
    memcpy(options, command->defaults, command->options_nbytes);
    status = fq_opt_parse(&parsed, command, options, &arena, argc, argv, err);
    if (status)
        goto out;
    if (parsed.help) {
        const fq_printer printer = fq_printer_make(stdout, FQ_COLOR_NEVER);
        fq_help_command(stdout, command, fq_printer_width(&printer));
    } else {
        const fq_call call = {.options = options, .operand = parsed.operand, .commands = commands};
        status = command->run(&call, reply, err);
    }
out:
    fq_arena_free(&arena);
    return status;
}

static fq_status dispatch(int argc, char **argv, fq_reply *reply, fq_error *err) {
    if (argc < 2)
        return fq_fail(err, FQ_USAGE, "a command is missing; see fp8q --help");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        puts("fp8q " FQ_VERSION);
        return FQ_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return run_command(&fq_command_help, argc - 2, argv + 2, reply, err);
    if (name[0] == '-')
        return fq_fail(err, FQ_USAGE, "%.64s: the command comes first; see fp8q --help", name);
    const fq_command *command = fq_command_find(commands, name);
    if (!command)
        return fq_command_unknown(commands, name, err);
    return run_command(command, argc - 2, argv + 2, reply, err);
}

// Results that do not reach their reader are an error; a reader that went away is none to tell.
static fq_status flush_results(fq_error *err) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return fq_print_was_cut() ? fq_fail_memory(err) : FQ_OK;
    const int cause = errno;
    if (cause == EPIPE)
        __atomic_store_n(&fq_signals_caught, SIGPIPE, __ATOMIC_RELAXED);
    return cause == EPIPE ? FQ_CANCELLED : fq_fail_errno(err, cause, "standard output");
}

// Where the caller closed standard streams, files would be opened in their places and messages be
// written into them.
static void occupy_standard_streams(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv) {
    static char buffers[2][1 << 16];
    fq_reply reply = {0};
    fq_error err = {0}, lost = {0};
    occupy_standard_streams();
    setvbuf(stdout, buffers[0], _IOFBF, sizeof buffers[0]);
    setvbuf(stderr, buffers[1], _IOFBF, sizeof buffers[1]);
    fq_signals_catch();
    fq_status status = dispatch(argc, argv, &reply, &err);
    const fq_status flushed = flush_results(&lost);
    if (!status) {
        status = flushed;
        err = lost;
    }
    print_reply(&reply, &err);
    fq_messages_free(&reply.warnings);
    fq_messages_free(&reply.faults);
    fq_messages_free(&reply.notes);
    if (status != FQ_CANCELLED)
        return (int)status;
    return 128 + __atomic_load_n(&fq_signals_caught, __ATOMIC_RELAXED);
}
