// Every implementation of the arithmetic that this machine can run, opened as a device.
//
// Tests of the kernels loop over these: one test body per operation, whatever is tested.
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

// Opens one device for each variant of the CPU backend. Ends the program if one does not open: a
// variant that is left out would be a test that passes without a reason.
static inline void subjects_open(subjects *out, const fq_device_options *options) {
    const fq_cpu_variant *variants[FQ_CPU_MAX_VARIANTS];
    const fq_backend *cpu = NULL;
    fq_error err = {0};
    fq_status status = fq_backend_find(&cpu, "cpu", &err);
    out->n = fq_cpu_variants(variants);
    for (size_t i = 0; !status && i < out->n; i++) {
        subject *s = &out->all[i];
        *s = (subject){.name = variants[i]->name, .backend = cpu};
        setenv("FP8Q_CPU", s->name, 1);
        status = cpu->open(&s->device, options, &err);
    }
    unsetenv("FP8Q_CPU");
    if (status) {
        fprintf(stderr, "no device: %s\n", err.text);
        exit(1);
    }
}

static inline void subjects_close(subjects *them) {
    for (size_t i = 0; i < them->n; i++)
        them->all[i].backend->close(them->all[i].device);
    *them = (subjects){.n = 0};
}

#endif
