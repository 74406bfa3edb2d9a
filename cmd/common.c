// The common options: their rows, and how threads and memory become lanes and bands.
#include "common.h"

#include "lib/band.h"

#include <sched.h>
#include <string.h>

#define ROW(member) offsetof(fq_common_options, member)

const fq_opt fq_common_table[] = {
    {"device", 0, "DEVICE", FQ_OPT_STRING, ROW(device),
     "where the arithmetic runs: auto (default), cpu, cuda, or cuda:N[,M...]"},
    {"threads", 0, "N", FQ_OPT_COUNT, ROW(n_threads),
     "threads that read, compute and write side by side (default: one per core, 8 at most)"},
    {"memory", 0, "SIZE", FQ_OPT_SIZE, ROW(memory_nbytes),
     "bound for the staging buffers, such as 512M or 2G (default: 128M)"},
    {"quiet", 'q', NULL, FQ_OPT_FLAG, ROW(quiet),
     "no progress and no summary; warnings and errors stay"},
    {"no-progress", 0, NULL, FQ_OPT_FLAG, ROW(no_progress), "no progress"},
    {"json", 0, NULL, FQ_OPT_FLAG, ROW(json), "the result as JSON on standard output"},
    {"color", 0, "auto|always|never", FQ_OPT_CHOICE, ROW(color),
     "colours (default: auto, on a terminal unless NO_COLOR is set)"},
    {0},
};

enum {
    DEFAULT_MAX_LANES = 8, // what it takes to saturate a disk or the page cache
    // An element of a band takes up to 4 bytes as it is read and 4 as it is written.
    ELEMENT_NBYTES = 8,
    DEFAULT_MEMORY = 128 << 20,
    // 4 MiB of BF16: long sequential reads, and small beside any matrix worth splitting.
    MAX_BAND_ELEMENTS = 2 << 20,
};

static uint32_t count_cores(void) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1;
    return (uint32_t)CPU_COUNT(&cores);
}

fq_status fq_common_staging(fq_staging *out, const fq_common_options *options, fq_error *err) {
    const uint64_t least = (uint64_t)FQ_MIN_BAND_ELEMENTS * ELEMENT_NBYTES; // of one lane
    uint64_t n_lanes = options->n_threads;
    if (n_lanes == 0)
        n_lanes = count_cores() < DEFAULT_MAX_LANES ? count_cores() : DEFAULT_MAX_LANES;
    uint64_t memory = options->memory_nbytes;
    if (memory == 0)
        memory = DEFAULT_MEMORY > n_lanes * least ? DEFAULT_MEMORY : n_lanes * least;
    if (memory < least)
        return fq_fail(err, FQ_USAGE, "--memory: too small for one thread; take %uM or more",
                       (unsigned)(least >> 20));
    if (n_lanes > memory / least)
        n_lanes = memory / least;
    const uint64_t elements = memory / n_lanes / ELEMENT_NBYTES;
    out->n_lanes = (uint32_t)n_lanes;
    out->band_elements = elements < MAX_BAND_ELEMENTS ? (size_t)elements : MAX_BAND_ELEMENTS;
    return FQ_OK;
}

// "0", "0,1,3": numbers joined by commas.
static bool is_number_list(const char *text) {
    for (;;) {
        const size_t n = strspn(text, "0123456789");
        if (n == 0)
            return false;
        if (text[n] != ',')
            return text[n] == '\0';
        text += n + 1;
    }
}

fq_status fq_common_check_device(const fq_common_options *options, fq_error *err) {
    const char *device = options->device;
    if (strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0 || strcmp(device, "cuda") == 0)
        return FQ_OK;
    if (strncmp(device, "cuda:", 5) == 0 && is_number_list(device + 5))
        return FQ_OK;
    return fq_fail(err, FQ_USAGE, "--device takes auto, cpu, cuda or cuda:N[,M...], not \"%s\"",
                   device);
}
