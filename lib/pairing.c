// Pairs FP8 weights with their scales by name, over all shards. See pairing.h.
#include "pairing.h"

#include "foreign.h"
#include "grid.h"
#include "names.h"

#include <stdio.h>
#include <string.h>

// What a scale's name ends in, and what the weight's ends in instead: "X.weight_scale_inv" and
// "X.weight". Looked for in this order.
static const struct {
    const char *scale, *weight;
} suffixes[] = {
    {"_scale_inv", ""}, // of any parameter: "P.experts.gate_up_proj_scale_inv"
    {".weight_scale", ".weight"},
    {".scale", ".weight"},
};

enum { N_SUFFIXES = sizeof suffixes / sizeof suffixes[0], NAME_ROOM = 32 };

typedef struct pairer {
    fq_pairing *out;
    const fq_checkpoint *checkpoint;
    const fq_quant_config *quant;
    fq_messages *faults;
    bool *claimed;    // [n_tensors]: the scale of a weight, sound or not
    char *name;       // scratch: a sibling's name
    size_t name_size; // of it
} pairer;

bool fq_is_runtime_scale(const char *name) {
    const char *dot = strrchr(name, '.');
    const char *component = dot ? dot + 1 : name;
    return strcmp(component, "k_scale") == 0 || strcmp(component, "v_scale") == 0 ||
           strcmp(component, "input_scale") == 0;
}

// True for names that only scales of weights have.
static bool is_scale_name(const char *name) {
    return fq_has_suffix(name, "weight_scale_inv") || fq_has_suffix(name, "weight_scale");
}

// True for tensors that must belong to a weight. Other tensors called ".scale" are ordinary.
static bool is_scale(const fq_tensor *tensor) {
    return is_scale_name(tensor->name) ||
           (tensor->dtype == FQ_F8_E8M0 && fq_has_suffix(tensor->name, ".scale"));
}

// The position of the tensor whose name is `name` with one ending in place of another; SIZE_MAX if
// there is none, or if name does not end so.
static size_t find_other(pairer *p, const char *name, const char *ending, const char *other) {
    if (!fq_has_suffix(name, ending))
        return SIZE_MAX;
    const int n_kept = (int)(strlen(name) - strlen(ending));
    snprintf(p->name, p->name_size, "%.*s%s", n_kept, name, other);
    return fq_checkpoint_position(p->checkpoint, p->name);
}

static size_t find_scale(pairer *p, const fq_tensor *weight) {
    for (size_t i = 0; i < N_SUFFIXES; i++) {
        const size_t scale = find_other(p, weight->name, suffixes[i].weight, suffixes[i].scale);
        if (scale != SIZE_MAX)
            return scale;
    }
    return SIZE_MAX;
}

static const fq_tensor *find_weight(pairer *p, const fq_tensor *scale) {
    for (size_t i = 0; i < N_SUFFIXES; i++) {
        const size_t weight = find_other(p, scale->name, suffixes[i].scale, suffixes[i].weight);
        if (weight != SIZE_MAX)
            return p->checkpoint->by_name[weight];
    }
    const size_t packed = find_other(p, scale->name, ".weight_scale", ".weight_packed");
    return packed == SIZE_MAX ? NULL : p->checkpoint->by_name[packed];
}

static void add_fault(const pairer *p, const fq_tensor *tensor, const char *text) {
    fq_messages_add(p->faults, "%s: %s: %s", fq_tensor_file(p->checkpoint, tensor), tensor->name,
                    text);
}

static void pair_weight(pairer *p, size_t position) {
    fq_pair pair = {.weight = p->checkpoint->by_name[position]};
    const size_t scale = find_scale(p, pair.weight);
    if (scale == SIZE_MAX) {
        add_fault(p, pair.weight,
                  "FP8 weight without a scale: no file holds its weight_scale_inv, weight_scale "
                  "or scale; get the missing file");
        return;
    }
    p->claimed[scale] = true;
    pair.scale = p->checkpoint->by_name[scale];
    fq_error why = {0};
    if ((pair.weight->rank != 2 && pair.weight->rank != 3) || pair.weight->nbytes == 0) {
        add_fault(p, pair.weight,
                  pair.weight->nbytes == 0
                      ? "FP8 weight without elements; the file is damaged, get it again"
                      : "FP8 weight that is no matrix and no stack of matrices; it is not read");
    } else if (fq_grid_match(&pair, p->quant, &why)) {
        add_fault(p, pair.scale, why.text);
    } else {
        fq_pair *added = &p->out->pairs[p->out->n++];
        *added = pair;
        p->out->pair_of[position] = added;
        p->out->pair_of[scale] = added;
    }
}

static void check_orphan(pairer *p, const fq_tensor *scale) {
    const fq_tensor *weight = find_weight(p, scale);
    if (!weight) {
        add_fault(p, scale, "a scale whose weight no file holds; get the missing file");
    } else if (weight->dtype == FQ_F8_E4M3) {
        add_fault(p, scale, "a second scale of a weight that has one; keep the right one only");
    } else if (!fq_foreign_format(p->checkpoint, weight, p->name, p->name_size)) {
        fq_messages_add(p->faults,
                        "%s: %s: a scale whose weight is %s, not FP8; the checkpoint was cast back "
                        "in part, start from the original",
                        fq_tensor_file(p->checkpoint, scale), scale->name,
                        fq_dtype_name(weight->dtype));
    }
}

// FNUZ bytes under the dtype F8_E4M3 would be read as twice their value, and 0x80 as -0.
static void check_fmt(const pairer *p) {
    const char *fmt = p->quant->fmt;
    if (fmt && strstr(fmt, "fnuz"))
        fq_messages_add(p->faults,
                        "config.json: quantization_config: fmt %s is not read; start from an "
                        "unquantized or an e4m3 checkpoint",
                        fmt);
}

static void pair_all(pairer *p) {
    const fq_checkpoint *checkpoint = p->checkpoint;
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        const fq_tensor *tensor = checkpoint->by_name[i];
        const char *foreign = fq_foreign_format(checkpoint, tensor, p->name, p->name_size);
        if (foreign)
            fq_messages_add(p->faults,
                            "%s: %s: is %s, which is not read; start from an unquantized or a "
                            "block-scaled FP8 checkpoint",
                            fq_tensor_file(checkpoint, tensor), tensor->name, foreign);
        else if (tensor->dtype == FQ_F8_E4M3 && !is_scale_name(tensor->name))
            pair_weight(p, i);
    }
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        if (is_scale(checkpoint->by_name[i]) && !p->claimed[i])
            check_orphan(p, checkpoint->by_name[i]);
    }
}

// Counts the weights, and finds the length of the longest name.
static void measure(const fq_checkpoint *checkpoint, size_t *n_weights, size_t *longest) {
    *n_weights = *longest = 0;
    for (size_t i = 0; i < checkpoint->n_tensors; i++) {
        const size_t n = strlen(checkpoint->by_name[i]->name);
        *longest = n > *longest ? n : *longest;
        *n_weights += checkpoint->by_name[i]->dtype == FQ_F8_E4M3;
    }
}

fq_status fq_pair_scales(fq_pairing *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                         const fq_quant_config *quant, fq_messages *faults, fq_error *err) {
    *out = (fq_pairing){0};
    size_t n_weights, longest;
    measure(checkpoint, &n_weights, &longest);
    fq_arena scratch = {0};
    pairer p = {
        .out = out,
        .checkpoint = checkpoint,
        .quant = quant,
        .faults = faults,
        .claimed = fq_arena_array(&scratch, checkpoint->n_tensors, sizeof *p.claimed),
        .name = fq_arena_alloc(&scratch, longest + NAME_ROOM),
        .name_size = longest + NAME_ROOM,
    };
    out->pairs = fq_arena_array(arena, n_weights, sizeof *out->pairs);
    out->pair_of = fq_arena_array(arena, checkpoint->n_tensors, sizeof *out->pair_of);
    if (n_weights > 0)
        check_fmt(&p);
    fq_status status = FQ_OK;
    if (p.claimed && p.name && out->pairs && out->pair_of)
        pair_all(&p);
    else
        status = fq_fail_memory(err);
    fq_arena_free(&scratch);
    return status;
}
