// Which weights do not load when engines cut them into --tp parts: docs/formats.md has the rules.
// See verify_work.h.
#include "verify_work.h"

#include "policy_draft.h"

#include <inttypes.h>
#include <string.h>

// How an engine cuts a module's weight [N, K].
typedef enum cut {
    CUT_NOT,   // every rank has the whole
    CUT_ROWS,  // N: column-parallel, in engines' words
    CUT_HEADS, // N, but no head of keys and values is cut: ranks share heads if there are more
               // ranks
    CUT_COLS,  // K: row-parallel
} cut;

// By the last component of the module's name. Others are not checked: engines differ.
static const struct {
    const char *component;
    cut cut;
} cuts[] = {
    {"q_proj", CUT_ROWS},    {"k_proj", CUT_HEADS},      {"v_proj", CUT_HEADS},
    {"o_proj", CUT_COLS},    {"q_a_proj", CUT_NOT},      {"kv_a_proj_with_mqa", CUT_NOT},
    {"q_b_proj", CUT_ROWS},  {"kv_b_proj", CUT_ROWS},    {"gate_proj", CUT_ROWS},
    {"up_proj", CUT_ROWS},   {"down_proj", CUT_COLS},    {"w1", CUT_ROWS},
    {"w3", CUT_ROWS},        {"w2", CUT_COLS},           {"in_proj_qkv", CUT_ROWS},
    {"in_proj_z", CUT_ROWS}, {"in_proj_qkvz", CUT_ROWS}, {"out_proj", CUT_COLS},
};

static bool find_cut(cut *out, const char *module, size_t n) {
    const char *dot = memrchr(module, '.', n);
    const char *component = dot ? dot + 1 : module;
    const size_t n_component = n - (size_t)(component - module);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        *out = cuts[i].cut;
        if (strlen(cuts[i].component) == n_component &&
            memcmp(cuts[i].component, component, n_component) == 0)
            return true;
    }
    return false;
}

// What one of n_ranks has of a dimension; 0 if it cannot be cut so.
static uint64_t part_of(uint64_t size, uint64_t n_ranks, uint64_t n_heads) {
    if (n_heads > 0 && n_ranks > n_heads)
        return n_ranks % n_heads == 0 && size % n_heads == 0 ? size / n_heads : 0;
    return size % n_ranks == 0 ? size / n_ranks : 0;
}

static bool loads(uint64_t size, uint64_t n_ranks, uint64_t n_heads, uint64_t block) {
    const uint64_t part = part_of(size, n_ranks, n_heads);
    return part > 0 && (n_ranks == 1 || part % block == 0);
}

// Why the weight does not load, NULL if it does. *ok is false when out of memory.
static const char *why_not(const fq_verify_tensor *tensor, uint64_t n_ranks, uint64_t n_kv_heads,
                           fq_arena *arena, bool *ok) {
    const fq_tensor *weight = tensor->tensor;
    cut how;
    if (!tensor->pair || weight->rank != 2 ||
        !find_cut(&how, weight->name, fq_module_length(weight->name)) || how == CUT_NOT)
        return NULL;
    const bool by_cols = how == CUT_COLS;
    const uint64_t size = weight->shape[by_cols ? 1 : 0];
    const uint64_t block = by_cols ? tensor->pair->block.cols : tensor->pair->block.rows;
    const uint64_t n_heads = how == CUT_HEADS ? n_kv_heads : 0;
    if (loads(size, n_ranks, n_heads, block))
        return NULL;
    uint64_t most = n_ranks - 1;
    while (most > 1 && !loads(size, most, n_heads, block))
        most--;
    const uint64_t part = part_of(size, n_ranks, n_heads);
    const char *cure = most > 1 ? fq_arena_printf(arena, "--tp %" PRIu64 " loads", most)
                                : "keep it whole, or exclude it";
    const char *what =
        part > 0 ? fq_arena_printf(arena, "%" PRIu64 " in each, no multiple of a block's %" PRIu64,
                                   part, block)
                 : "no equal parts";
    const char *text =
        cure && what
            ? fq_arena_printf(arena,
                              "does not load at --tp %" PRIu64 ": its %" PRIu64 " %s are %s; %s%s",
                              n_ranks, size, by_cols ? "columns" : "rows", what, cure,
                              strncmp(tensor->kind, "experts.", 8) == 0
                                  ? ", and so do whole experts (expert parallelism)"
                                  : "")
            : NULL;
    *ok = *ok && text;
    return text;
}

fq_status fq_verify_check_parallel(fq_verify_draft *draft, fq_error *err) {
    fq_verify *verify = draft->verify;
    fq_arena scratch = {0};
    fq_fold_item *items = fq_arena_array(&scratch, verify->n_tensors, sizeof *items);
    bool ok = items != NULL;
    size_t n = 0;
    for (size_t i = 0; i < verify->n_tensors && ok; i++) {
        const fq_verify_tensor *tensor = &verify->tensors[i];
        const char *why = why_not(tensor, verify->options.tensor_parallel,
                                  draft->model->num_key_value_heads, &scratch, &ok);
        if (why)
            items[n++] = (fq_fold_item){.name = tensor->tensor->name, .rest = why};
    }
    const fq_status status =
        ok ? fq_fold_messages(&verify->problems, verify->checkpoint->path, items, n, err)
           : fq_fail_memory(err);
    fq_arena_free(&scratch);
    return status;
}
