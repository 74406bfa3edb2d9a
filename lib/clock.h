// Time that has passed.
#ifndef FQ_CLOCK_H
#define FQ_CLOCK_H

#include <time.h>

// Seconds on a clock that never jumps; only differences mean something.
static inline double fq_clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
