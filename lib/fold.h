// Folds thousands of tensors into a few lines: names that differ only in numbers become one
// pattern.
#ifndef FQ_FOLD_H
#define FQ_FOLD_H

#include "arena.h"
#include "error.h"

#include <stdint.h>

typedef struct fq_fold_item {
    const char *name; // "model.layers.3.mlp.experts.17.up_proj.weight"
    const char *rest; // whatever else must be equal: "[2048, 7168] BF16 -> F8_E4M3"
} fq_fold_item;

typedef struct fq_fold_line {
    const char *pattern; // "model.layers.{3..60}.mlp.experts.{0..255}.up_proj.weight"
    const char *rest;    // of its items
    uint64_t n;          // items folded
    size_t first;        // index of the first of them
} fq_fold_line;

// Groups items whose names are equal but for whole dotted components of digits, and whose rest is
// equal. The numbers met at each such place are written as one number, or as a set of runs:
// {0..2,5}. With up to three numbers in a name a line stands for its items alone: where not all
// combinations of the numbers are there, there are several lines. Lines come in the order of their
// first items. Memory from arena. O(n log n). FQ_DEVICE when out of memory; *out and *n_lines are
// left alone then.
fq_status fq_fold(fq_fold_line **out, size_t *n_lines, fq_arena *arena, const fq_fold_item *items,
                  size_t n, fq_error *err);

// Adds items[n] to messages, folded: "PATH: PATTERN: REST". FQ_DEVICE when out of memory.
fq_status fq_fold_messages(fq_messages *messages, const char *path, const fq_fold_item *items,
                           size_t n, fq_error *err);

#endif
