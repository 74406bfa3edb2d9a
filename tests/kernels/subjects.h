// Every implementation of the arithmetic that is to be tested, opened as a device.
//
// Tests of the kernels loop over these: one test body per operation, whatever is tested. These are
// the variants of the CPU backend; with FP8Q_TEST_DEVICE=cuda in the environment they are the CUDA
// backend on all GPUs.
#ifndef FQ_TESTS_KERNELS_SUBJECTS_H
#define FQ_TESTS_KERNELS_SUBJECTS_H

#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct subject {
    const char *name;
    const fq_backend *backend;
    fq_device *device;
} subject;

typedef struct subjects {
    subject all[FQ_CPU_MAX_VARIANTS];
    size_t n;
} subjects;

static inline bool subjects_are_gpus(void) { return getenv("FP8Q_TEST_DEVICE") != NULL; }

static inline void subjects_require(fq_status status, const fq_error *err) {
    if (status) {
        fprintf(stderr, "no device: %s\n", err->text);
        exit(1);
    }
}

// Opens one device for each variant of the CPU backend.
static inline void subjects_open_cpu(subjects *out, const fq_device_options *options) {
    const fq_cpu_variant *variants[FQ_CPU_MAX_VARIANTS];
    fq_device_choice choice;
    fq_error err = {0};
    fq_status status = fq_device_choose(&choice, "cpu", NULL, &err);
    out->n = fq_cpu_variants(variants);
    for (size_t i = 0; !status && i < out->n; i++) {
        subject *s = &out->all[i];
        *s = (subject){.name = variants[i]->name, .backend = choice.backend};
        setenv("FP8Q_CPU", s->name, 1);
        status = s->backend->open(&s->device, options, &err);
    }
    unsetenv("FP8Q_CPU");
    subjects_require(status, &err);
}

// Opens one device with all GPUs. Ends the program with 77, "skipped", if there are none.
static inline void subjects_open_gpus(subjects *out, fq_device_options options) {
    enum { SKIPPED = 77 };
    fq_device_choice choice;
    fq_error err = {0};
    if (fq_device_choose(&choice, getenv("FP8Q_TEST_DEVICE"), NULL, &err) != FQ_OK) {
        printf("skipped: %s\n", err.text);
        exit(SKIPPED);
    }
    options.gpus = choice.gpus;
    options.n_gpus = choice.n_gpus;
    out->n = 1;
    out->all[0] = (subject){.name = choice.backend->name, .backend = choice.backend};
    subjects_require(choice.backend->open(&out->all[0].device, &options, &err), &err);
}

// Ends the program if a device does not open: a variant that is left out would be a test that
// passes without a reason.
static inline void subjects_open(subjects *out, const fq_device_options *options) {
    if (subjects_are_gpus())
        subjects_open_gpus(out, *options);
    else
        subjects_open_cpu(out, options);
}

static inline void subjects_close(subjects *them) {
    for (size_t i = 0; i < them->n; i++)
        them->all[i].backend->close(them->all[i].device);
    *them = (subjects){.n = 0};
}

#endif
