// Starts a program, waits for it, and takes its time.
#include "process.h"

#include "lib/clock.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

const char fq_process_self[] = "/proc/self/exe";

// Returns 0, or the error of what failed.
static int spawn(pid_t *out, const char *const *argv) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!error)
        error = posix_spawnp(out, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static fq_status status_of(const char *program, int exit_state, fq_error *err) {
    if (WIFEXITED(exit_state) && WEXITSTATUS(exit_state) == 0)
        return FQ_OK;
    if (__atomic_load_n(&fq_signals_caught, __ATOMIC_RELAXED))
        return fq_fail(err, FQ_CANCELLED, "interrupted");
    if (!WIFEXITED(exit_state))
        return fq_fail(err, FQ_IO, "bench: %s was ended by signal %d", program,
                       WTERMSIG(exit_state));
    const int code = WEXITSTATUS(exit_state);
    const bool is_self = strcmp(program, fq_process_self) == 0;
    return fq_fail(err, is_self && code <= FQ_DEVICE ? (fq_status)code : FQ_IO,
                   "bench: %s ended with exit code %d", is_self ? "fp8q" : program, code);
}

fq_status fq_process_run(fq_process_usage *out, const char *const *argv, fq_error *err) {
    pid_t pid;
    int exit_state;
    struct rusage usage;
    const double start = fq_clock_seconds();
    const int error = spawn(&pid, argv);
    if (error)
        return fq_fail_errno(err, error, "bench: %s cannot be started", argv[0]);
    while (wait4(pid, &exit_state, 0, &usage) < 0) {
        if (errno != EINTR)
            return fq_fail_errno(err, errno, "bench: waiting for %s failed", argv[0]);
    }
    out->seconds = fq_clock_seconds() - start;
    out->peak_nbytes = (uint64_t)usage.ru_maxrss * 1024;
    return status_of(argv[0], exit_state, err);
}
