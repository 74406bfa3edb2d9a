// What the parts of verify's page share.
#ifndef FQ_CMD_VERIFY_HTML_H
#define FQ_CMD_VERIFY_HTML_H

#include "html.h"
#include "verify_report.h"

// A page being written. Nothing but the arena is owned.
typedef struct fq_page {
    const fq_verify_report *report;
    const fq_verify *verify; // of report
    FILE *file;
    fq_arena arena;
    fq_verify_columns shown;
    const fq_verify_tensor **worst; // [verify->n_tensors], the worst first
} fq_page;

// What rounding costs, as plots mark it: docs/numerics.md derives both.
#define FQ_PAGE_FLOOR 0.0265 // error of E4M3 on normal weights with scales in FP32
#define FQ_PAGE_MOST 0.0588  // of rounding alone, in any block

// "4096 × 2048".
void fq_page_shape(const fq_page *page, const fq_tensor *tensor);

// Why a weight fails, as a list.
void fq_page_reasons(const fq_page *page, const fq_verify_tensor *tensor);

// The parts, in the order of the page. Each is a section, or nothing where it has nothing to show.

// What is wrong with the checkpoint and with weights, and what to do.
void fq_page_failures(const fq_page *page);

// The table of kinds of layers, and a plot of each by the number of the layer. FQ_DEVICE when out
// of memory.
fq_status fq_page_layers(fq_page *page, fq_error *err);

// Blocks by their error.
void fq_page_block_errors(const fq_page *page);

// The blocks of the worst weights, as pictures.
void fq_page_maps(const fq_page *page);

// Scales by their octave.
void fq_page_scales(const fq_page *page);

// The table of weights: all, or the worst of them; the others are named below it. FQ_DEVICE when
// out of memory.
fq_status fq_page_weights(fq_page *page, fq_error *err);

// The table of kinds[n], which fq_page_layers begins with.
void fq_page_kinds(const fq_page *page, const fq_verify_kind *kinds, size_t n);

#endif
