// The common options: their rows, and how threads and memory become lanes and bands.
#include "common.h"

#include "lib/band.h"

#include <assert.h>
#include <sched.h>

#define ROW(member) offsetof(fq_common_options, member)

const fq_opt fq_common_table[] = {
    {"device", 0, "DEVICE", FQ_OPT_DEVICE, ROW(device),
     "where the arithmetic runs: auto (default: GPUs if that is sooner done, else the CPU), cpu, "
     "cuda (all GPUs) or cuda:N[,M...] (these)"},
    {"threads", 0, "N", FQ_OPT_COUNT, ROW(n_threads),
     "threads that read, compute and write side by side (default: one per core, 8 at most)"},
    {"memory", 0, "SIZE", FQ_OPT_SIZE, ROW(memory_nbytes),
     "bound for the staging buffers, such as 512M or 2G (default: 128M)"},
    {"quiet", 'q', NULL, FQ_OPT_FLAG, ROW(quiet),
     "no progress, and no summary of a run; what was asked for (inspect, --dry-run, --json), "
     "warnings "
     "and errors stay"},
    {"no-progress", 0, NULL, FQ_OPT_FLAG, ROW(no_progress), "no progress"},
    {"json", 0, NULL, FQ_OPT_FLAG, ROW(json), "the result as JSON on standard output"},
    {"color", 0, "auto|always|never", FQ_OPT_CHOICE, ROW(color),
     "colours (default: auto, on a terminal unless NO_COLOR is set)"},
    {0},
};

enum {
    DEFAULT_MAX_LANES = 8, // what it takes to saturate a disk or the page cache
    DEFAULT_MEMORY = 128 << 20,
    // 4 MiB of BF16: long sequential reads, and small beside any matrix worth splitting.
    MAX_BAND_ELEMENTS = 2 << 20,
};

static_assert((uint64_t)FQ_MIN_BAND_ELEMENTS * FQ_BAND_ELEMENT_NBYTES == FQ_OPT_MIN_SIZE,
              "the least --memory is what one lane takes");

static uint32_t count_cores(void) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1;
    return (uint32_t)CPU_COUNT(&cores);
}

fq_staging fq_common_staging(const fq_common_options *options) {
    const uint64_t least = FQ_OPT_MIN_SIZE; // of one lane
    uint64_t n_lanes = options->n_threads;
    if (n_lanes == 0)
        n_lanes = count_cores() < DEFAULT_MAX_LANES ? count_cores() : DEFAULT_MAX_LANES;
    uint64_t memory = options->memory_nbytes;
    if (memory == 0)
        memory = DEFAULT_MEMORY > n_lanes * least ? DEFAULT_MEMORY : n_lanes * least;
    if (n_lanes > memory / least)
        n_lanes = memory / least;
    const uint64_t elements = memory / n_lanes / FQ_BAND_ELEMENT_NBYTES;
    return (fq_staging){
        .n_lanes = (uint32_t)n_lanes,
        .band_elements = elements < MAX_BAND_ELEMENTS ? (size_t)elements : MAX_BAND_ELEMENTS,
    };
}
