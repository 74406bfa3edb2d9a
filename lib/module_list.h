// The list of modules that a quantizer left alone: names, globs and patterns.
#ifndef FQ_MODULE_LIST_H
#define FQ_MODULE_LIST_H

#include "model.h"
#include "pattern.h"

typedef struct fq_module_list {
    const char *key;    // in quantization_config
    const char **names; // [n_names], sorted
    size_t n_names;
    const char **globs; // [n_globs]
    size_t n_globs;
    fq_pattern **patterns;      // [n_patterns]
    const char **pattern_texts; // [n_patterns]: their entries
    size_t n_patterns;
    size_t n_unread; // entries that this version does not understand
    const char *first_unread;
} fq_module_list;

// Reads the entries of quant's list. `re:` begins a pattern (compressed-tensors), wildcards make a
// glob (ModelOpt, transformers); what reads as a regular expression without `re:`, a pattern that
// fq_pattern_compile does not take, and what goes beyond 32 KiB of patterns and globs are counted
// in n_unread. names_only: all entries are names, as in fp8q's own list. Memory from arena; quant
// must live as long. FQ_DEVICE when out of memory.
fq_status fq_module_list_read(fq_module_list *out, fq_arena *arena, const fq_quant_config *quant,
                              bool names_only, fq_error *err);

// True if the first n bytes of name are one of the names.
bool fq_module_list_names(const fq_module_list *list, const char *name, size_t n);

// True if one of the names is a run of whole components of name, as SGLang and others read it:
// `mlp.gate` is in `model.layers.0.mlp.gate`, and not in `model.layers.0.mlp.gate_proj`.
bool fq_module_list_names_part(const fq_module_list *list, const char *name, size_t n);

// The entry of the first pattern that matches from the start of name, or of the first glob that
// matches all of name or of a module around it; NULL if none does.
const char *fq_module_list_match(const fq_module_list *list, const char *name, size_t n);

#endif
