// Reads the sides of matrices and blocks.
#include "benchmark.h"

#include <stdlib.h>

size_t fq_benchmark_sides(uint64_t *out, size_t n, const char *text) {
    const uint64_t most = (uint64_t)1 << 31;
    for (size_t i = 0; i < n; i++) {
        char *end;
        if (*text < '0' || *text > '9')
            return 0;
        out[i] = strtoull(text, &end, 10);
        if (out[i] < 1 || out[i] > most)
            return 0;
        if (*end == '\0')
            return i + 1;
        if (*end != 'x')
            return 0;
        text = end + 1;
    }
    return 0;
}
