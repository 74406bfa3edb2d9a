// The options that all commands share, and what follows from them.
#ifndef FQ_CMD_COMMON_H
#define FQ_CMD_COMMON_H

#include "opt.h"

// The first member of the options struct of every command that takes fq_common_table.
typedef struct fq_common_options {
    const char *device;
    uint32_t n_threads;     // 0: as many as the machine offers this process, 8 at most
    uint64_t memory_nbytes; // 0: DEFAULT_MEMORY of common.c, more for many threads
    bool quiet;
    bool no_progress;
    bool json;
    int color; // fq_color
} fq_common_options;

extern const fq_opt fq_common_table[];

// Their defaults, for the initializer of an options struct.
#define FQ_COMMON_DEFAULTS                                                                         \
    { .device = "auto" }

// How a run is spread over lanes and bands.
typedef struct fq_staging {
    uint32_t n_lanes;
    size_t band_elements; // of the largest band, FQ_MIN_BAND_ELEMENTS at least
} fq_staging;

// The lanes and bands that stay within --memory.
fq_staging fq_common_staging(const fq_common_options *options);

#endif
