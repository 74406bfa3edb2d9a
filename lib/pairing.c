// Pairs FP8 weights with their scales by name, over all shards. See pairing.h.
#include "pairing.h"

#include "foreign.h"
#include "grid.h"
#include "names.h"

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

enum { N_SUFFIXES = sizeof suffixes / sizeof suffixes[0] };

// One cause may spoil every tensor of a model: of each kind of fault the first ones are listed.
typedef enum fault_kind {
    FOREIGN,
    NO_SCALE,
    NO_MATRIX,
    MISFIT,
    ORPHAN,
    SECOND_SCALE,
    CAST_BACK,
    N_FAULT_KINDS,
} fault_kind;

enum { MAX_LISTED = 20 };

// Of a stack. Each takes memory of its own in a plan, which a few bytes of a header must not ask
// for; models have hundreds.
enum { MAX_MATRICES = 16384 };

// What the faults that are not listed are called.
static const char *const kind_names[N_FAULT_KINDS] = {
    [FOREIGN] = "tensors of a format that is not read",
    [NO_SCALE] = "FP8 weights without a scale",
    [NO_MATRIX] = "FP8 weights that are no matrices",
    [MISFIT] = "scales that do not fit their weights",
    [ORPHAN] = "scales whose weight no file holds",
    [SECOND_SCALE] = "second scales of a weight",
    [CAST_BACK] = "scales whose weight is not FP8",
};

typedef struct pairer {
    fq_pairing *out;
    const fq_checkpoint *checkpoint;
    const fq_quant_config *quant;
    fq_messages *faults;
    bool *claimed; // [n_tensors]: the scale of a weight, sound or not
    size_t n_faults[N_FAULT_KINDS];
} pairer;

bool fq_is_runtime_scale(const char *name) {
    const char *dot = strrchr(name, '.');
    const char *component = dot ? dot + 1 : name;
    return strcmp(component, "k_scale") == 0 || strcmp(component, "v_scale") == 0 ||
           strcmp(component, "input_scale") == 0;
}

bool fq_is_scale_name(const char *name) {
    return fq_has_suffix(name, "weight_scale_inv") || fq_has_suffix(name, "weight_scale");
}

// True for tensors that must belong to a weight. Other tensors called ".scale" are ordinary.
static bool is_scale(const fq_tensor *tensor) {
    return fq_is_scale_name(tensor->name) ||
           (tensor->dtype == FQ_F8_E8M0 && fq_has_suffix(tensor->name, ".scale"));
}

// The position of the tensor whose name is `name` with one ending in place of another; SIZE_MAX if
// there is none, or if name does not end so.
static size_t find_other(const fq_checkpoint *checkpoint, const char *name, const char *ending,
                         const char *other) {
    if (!fq_has_suffix(name, ending))
        return SIZE_MAX;
    return fq_checkpoint_position_of(checkpoint, name, strlen(name) - strlen(ending), other);
}

static size_t find_scale(const fq_checkpoint *checkpoint, const fq_tensor *weight) {
    for (size_t i = 0; i < N_SUFFIXES; i++) {
        const size_t scale =
            find_other(checkpoint, weight->name, suffixes[i].weight, suffixes[i].scale);
        if (scale != SIZE_MAX)
            return scale;
    }
    return SIZE_MAX;
}

static const fq_tensor *find_weight(const fq_checkpoint *checkpoint, const fq_tensor *scale) {
    for (size_t i = 0; i < N_SUFFIXES; i++) {
        const size_t weight =
            find_other(checkpoint, scale->name, suffixes[i].scale, suffixes[i].weight);
        if (weight != SIZE_MAX)
            return checkpoint->by_name[weight];
    }
    const size_t packed = find_other(checkpoint, scale->name, ".weight_scale", ".weight_packed");
    return packed == SIZE_MAX ? NULL : checkpoint->by_name[packed];
}

static void add_fault(pairer *p, fault_kind kind, const fq_tensor *tensor, const char *text) {
    if (p->n_faults[kind]++ < MAX_LISTED)
        fq_messages_add(p->faults, "%s: %s: %s", fq_tensor_file(p->checkpoint, tensor),
                        tensor->name, text);
}

// Like add_fault, for a text of three parts.
static void add_fault_on(pairer *p, fault_kind kind, const fq_tensor *tensor, const char *before,
                         const char *what, const char *after) {
    fq_error text = {0};
    fq_fail(&text, FQ_BAD_INPUT, "%s%s%s", before, what, after);
    add_fault(p, kind, tensor, text.text);
}

static void count_unlisted(const pairer *p) {
    for (size_t i = 0; i < N_FAULT_KINDS; i++) {
        if (p->n_faults[i] > MAX_LISTED)
            fq_messages_add(p->faults, "%s: and %zu more %s", p->checkpoint->path,
                            p->n_faults[i] - MAX_LISTED, kind_names[i]);
    }
}

// Why a weight cannot be read, whatever its scale; NULL if it can.
static const char *flaw_of_shape(const fq_tensor *weight) {
    if (weight->nbytes == 0)
        return "FP8 weight without elements; the file is damaged, get it again";
    if (weight->rank != 2 && weight->rank != 3)
        return "FP8 weight that is no matrix and no stack of matrices; it is not read";
    if (weight->rank == 3 && weight->shape[0] > MAX_MATRICES)
        return "FP8 weight that is a stack of more than 16384 matrices; it is not read";
    return NULL;
}

static void pair_weight(pairer *p, size_t position) {
    fq_pair pair = {.weight = p->checkpoint->by_name[position]};
    const size_t scale = find_scale(p->checkpoint, pair.weight);
    if (scale == SIZE_MAX) {
        add_fault(p, NO_SCALE, pair.weight,
                  "FP8 weight without a scale: no file holds its weight_scale_inv, weight_scale "
                  "or scale; get the missing file");
        return;
    }
    p->claimed[scale] = true;
    pair.scale = p->checkpoint->by_name[scale];
    fq_error why = {0};
    const char *flaw = flaw_of_shape(pair.weight);
    if (flaw) {
        add_fault(p, NO_MATRIX, pair.weight, flaw);
    } else if (fq_grid_match(&pair, p->quant, &why)) {
        add_fault(p, MISFIT, pair.scale, why.text);
    } else {
        fq_pair *added = &p->out->pairs[p->out->n++];
        *added = pair;
        p->out->pair_of[position] = added;
        p->out->pair_of[scale] = added;
    }
}

static void check_orphan(pairer *p, const fq_tensor *scale) {
    const fq_tensor *weight = find_weight(p->checkpoint, scale);
    // "P.experts.gate_up_proj_scale_inv" is one only beside its parameter.
    if (!is_scale(scale) && !(weight && fq_has_suffix(scale->name, suffixes[0].scale)))
        return;
    if (!weight)
        add_fault(p, ORPHAN, scale, "a scale whose weight no file holds; get the missing file");
    else if (weight->dtype == FQ_F8_E4M3)
        add_fault(p, SECOND_SCALE, scale,
                  "a second scale of a weight that has one; keep the right one only");
    else if (!fq_foreign_format(p->checkpoint, weight))
        add_fault_on(p, CAST_BACK, scale, "a scale whose weight is ", fq_dtype_name(weight->dtype),
                     ", not FP8; the checkpoint was cast back in part, start from the original");
}

static void check_orphans(pairer *p) {
    for (size_t i = 0; i < p->checkpoint->n_tensors; i++) {
        if (!p->claimed[i])
            check_orphan(p, p->checkpoint->by_name[i]);
    }
}

// FNUZ bytes under the dtype F8_E4M3 would be read as twice their value, and 0x80 as -0.
static void check_fmt(const pairer *p) {
    const char *fmt = p->quant->fmt;
    if (!fmt || !*fmt || strcasecmp(fmt, "e4m3") == 0 || strcasecmp(fmt, "float8_e4m3fn") == 0)
        return;
    const bool is_other_format = strcasestr(fmt, "fnuz") || strcasestr(fmt, "e5m2");
    fq_messages_add(p->faults, "%s: quantization_config: fmt %s is not %s",
                    p->checkpoint->is_folder ? "config.json" : "metadata", fmt,
                    is_other_format
                        ? "read; start from an unquantized or an e4m3 checkpoint"
                        : "known; this version reads e4m3 only: write that if it is what the "
                          "weights are, or start from another checkpoint");
}

// True for a tensor of a format that is not read.
static bool refuse_foreign(pairer *p, const fq_tensor *tensor) {
    const char *foreign = fq_foreign_format(p->checkpoint, tensor);
    if (foreign)
        add_fault_on(p, FOREIGN, tensor, "is ", foreign,
                     ", which is not read; start from an unquantized or a block-scaled FP8 "
                     "checkpoint");
    return foreign != NULL;
}

static void pair_all(pairer *p) {
    for (size_t i = 0; i < p->checkpoint->n_tensors; i++) {
        const fq_tensor *tensor = p->checkpoint->by_name[i];
        if (!refuse_foreign(p, tensor) && tensor->dtype == FQ_F8_E4M3 &&
            !fq_is_scale_name(tensor->name))
            pair_weight(p, i);
    }
}

static size_t count_weights(const fq_checkpoint *checkpoint) {
    size_t n = 0;
    for (size_t i = 0; i < checkpoint->n_tensors; i++)
        n += checkpoint->by_name[i]->dtype == FQ_F8_E4M3;
    return n;
}

// Memory from scratch. FQ_DEVICE when out of memory.
static fq_status start(pairer *out, fq_arena *scratch, const fq_checkpoint *checkpoint,
                       fq_messages *faults, fq_error *err) {
    *out = (pairer){
        .checkpoint = checkpoint,
        .faults = faults,
        .claimed = fq_arena_array(scratch, checkpoint->n_tensors, sizeof *out->claimed),
    };
    return out->claimed ? FQ_OK : fq_fail_memory(err);
}

fq_status fq_pair_scales(fq_pairing *out, fq_arena *arena, const fq_checkpoint *checkpoint,
                         const fq_quant_config *quant, fq_messages *faults, fq_error *err) {
    const size_t n_weights = count_weights(checkpoint);
    *out = (fq_pairing){
        .pairs = fq_arena_array(arena, n_weights, sizeof *out->pairs),
        .pair_of = fq_arena_array(arena, checkpoint->n_tensors, sizeof *out->pair_of),
    };
    if (!out->pairs || !out->pair_of)
        return fq_fail_memory(err);
    fq_arena scratch = {0};
    pairer p;
    const fq_status status = start(&p, &scratch, checkpoint, faults, err);
    if (!status) {
        p.out = out;
        p.quant = quant;
        if (n_weights > 0)
            check_fmt(&p);
        pair_all(&p);
        check_orphans(&p);
        count_unlisted(&p);
    }
    fq_arena_free(&scratch);
    return status;
}

fq_status fq_pair_nothing(const fq_checkpoint *checkpoint, fq_messages *faults, fq_error *err) {
    fq_arena scratch = {0};
    pairer p;
    const fq_status status = start(&p, &scratch, checkpoint, faults, err);
    if (!status) {
        for (size_t i = 0; i < checkpoint->n_tensors; i++)
            refuse_foreign(&p, checkpoint->by_name[i]);
        check_orphans(&p);
        count_unlisted(&p);
    }
    fq_arena_free(&scratch);
    return status;
}

const char *fq_pair_format(const fq_pair *pair, const char *f32_format) {
    if (pair->storage == FQ_STORED_PACKED)
        return "packed";
    if (pair->storage == FQ_STORED_U8)
        return "u8";
    switch (pair->scale->dtype) {
    case FQ_BF16:
        return "bf16";
    case FQ_F16:
        return "f16";
    case FQ_F8_E8M0:
        return "e8m0";
    default:
        return f32_format;
    }
}
