// Signal handlers: see signals.h.
#include "signals.h"

#include <signal.h>
#include <stddef.h>

int fq_signals_caught;

static const int stopping[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_STOPPING = sizeof stopping / sizeof stopping[0] };

static void stop(int signal_number) {
    __atomic_store_n(&fq_signals_caught, signal_number, __ATOMIC_RELAXED);
    for (size_t i = 0; i < N_STOPPING; i++) {
        struct sigaction old;
        if (sigaction(stopping[i], NULL, &old) == 0 && old.sa_handler == stop)
            signal(stopping[i], SIG_DFL);
    }
}

void fq_signals_catch(void) {
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_STOPPING; i++) {
        struct sigaction old;
        // A signal that the parent ignores stays ignored: nohup, jobs in the background.
        if (sigaction(stopping[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(stopping[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}
