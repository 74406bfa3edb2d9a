// What libFuzzer calls, and what the targets demand of accepted inputs.
#ifndef FQ_TESTS_FUZZ_H
#define FQ_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Reads one input. Always 0; a broken promise ends the program.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Ends the program where a promise does not hold, in any build.
#define DEMAND(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

// Marks a function of a target that looks at every element: its branches tell the fuzzer nothing.
#if defined(__clang__)
#define UNTRACED __attribute__((no_sanitize("coverage")))
#else
#define UNTRACED
#endif

#endif
