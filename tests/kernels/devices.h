// The CPU backend opened once for each variant that this machine runs, for tests to compare.
#ifndef FQ_TESTS_KERNELS_DEVICES_H
#define FQ_TESTS_KERNELS_DEVICES_H

#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"
#include "tests/check.h"

#include <stdlib.h>

typedef struct devices {
    const fq_backend *backend;
    const fq_cpu_variant *variants[FQ_CPU_MAX_VARIANTS];
    fq_device *opened[FQ_CPU_MAX_VARIANTS];
    size_t n;
} devices;

static inline devices devices_open(void) {
    devices all = {0};
    fq_error err = {0};
    const fq_device_options options = {.n_lanes = 1, .max_elements = (size_t)1 << 24};
    CHECK(fq_backend_find(&all.backend, "cpu", &err) == FQ_OK);
    all.n = fq_cpu_variants(all.variants);
    for (size_t i = 0; i < all.n; i++) {
        setenv("FP8Q_CPU", all.variants[i]->name, 1);
        if (!CHECK(all.backend->open(&all.opened[i], &options, &err) == FQ_OK)) {
            fprintf(stderr, "    %s\n", err.text);
            exit(1);
        }
    }
    unsetenv("FP8Q_CPU");
    return all;
}

static inline void devices_close(devices *all) {
    for (size_t i = 0; i < all->n; i++)
        all->backend->close(all->opened[i]);
}

static inline void devices_quantize(const devices *all, size_t i, const fq_quantize_job *job) {
    fq_error err = {0};
    CHECK(all->backend->quantize(all->opened[i], 0, job, &err) == FQ_OK &&
          all->backend->wait(all->opened[i], 0, &err) == FQ_OK);
}

static inline void devices_dequantize(const devices *all, size_t i, const fq_dequantize_job *job) {
    fq_error err = {0};
    CHECK(all->backend->dequantize(all->opened[i], 0, job, &err) == FQ_OK &&
          all->backend->wait(all->opened[i], 0, &err) == FQ_OK);
}

#endif
