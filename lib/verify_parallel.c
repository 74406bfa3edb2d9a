// Which weights do not load when engines cut them into --tp parts. See verify_work.h.
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

// By the last component of the module's name. Others are noted, not checked: engines differ.
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

// False for stacks, too, and for gate and up in one matrix.
static bool find_cut(cut *out, const fq_tensor *weight) {
    const char *module = weight->name;
    const size_t n = weight->rank == 2 ? fq_module_length(module) : 0;
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

// A dimension of a weight that engines cut.
typedef struct cut_side {
    const fq_verify_tensor *tensor;
    bool by_cols;
    uint64_t size, block;
    uint64_t n_heads; // of keys and values; 0: they do not matter
} cut_side;

static bool loads(const cut_side *side, uint64_t n_ranks) {
    const uint64_t part = part_of(side->size, n_ranks, side->n_heads);
    return part > 0 && (n_ranks == 1 || part % side->block == 0);
}

// False for a weight of which every rank has the whole, or that is cut nobody knows how.
static bool find_side(cut_side *out, const fq_verify_tensor *tensor, uint64_t n_kv_heads) {
    const fq_tensor *weight = tensor->tensor;
    cut how;
    if (!tensor->pair || !find_cut(&how, weight) || how == CUT_NOT)
        return false;
    const fq_block block = tensor->pair->block;
    const bool by_cols = how == CUT_COLS;
    *out = (cut_side){.tensor = tensor,
                      .by_cols = by_cols,
                      .size = weight->shape[by_cols ? 1 : 0],
                      .block = by_cols ? block.cols : block.rows,
                      .n_heads = how == CUT_HEADS ? n_kv_heads : 0};
    return true;
}

static bool all_load(const cut_side *sides, size_t n, uint64_t n_ranks) {
    for (size_t i = 0; i < n; i++) {
        if (!loads(&sides[i], n_ranks))
            return false;
    }
    return true;
}

// The greatest number of ranks under n_ranks that the whole model loads at; at 1 all do.
static uint64_t find_most(const cut_side *sides, size_t n, uint64_t n_ranks) {
    uint64_t most = n_ranks - 1;
    while (most > 1 && !all_load(sides, n, most))
        most--;
    return most;
}

// Why it does not load; NULL when out of memory.
static const char *describe(const cut_side *side, uint64_t n_ranks, uint64_t most,
                            fq_arena *arena) {
    const uint64_t part = part_of(side->size, n_ranks, side->n_heads);
    const bool is_expert = strncmp(side->tensor->kind, "experts.", 8) == 0;
    const char *what =
        part > 0 ? fq_arena_printf(arena, "%" PRIu64 " in each, no multiple of a block's %" PRIu64,
                                   part, side->block)
                 : "no equal parts";
    if (!what)
        return NULL;
    return fq_arena_printf(arena,
                           "does not load at --tp %" PRIu64 ": its %" PRIu64
                           " %s are %s; the whole model loads at --tp %" PRIu64 "%s",
                           n_ranks, side->size, side->by_cols ? "columns" : "rows", what, most,
                           is_expert ? ", and these with whole experts on each rank (expert "
                                       "parallelism)"
                                     : "");
}

// items: room for all weights.
static fq_status note_unknown(fq_verify *verify, fq_fold_item *items, fq_error *err) {
    size_t n = 0;
    cut how;
    for (size_t i = 0; i < verify->n_tensors; i++) {
        const fq_tensor *weight = verify->tensors[i].tensor;
        if (verify->tensors[i].pair && !find_cut(&how, weight))
            items[n++] = (fq_fold_item){weight->name, "not checked for --tp: engines differ in "
                                                      "how they cut it"};
    }
    return fq_fold_messages(&verify->notes, verify->checkpoint->path, items, n, err);
}

fq_status fq_verify_check_parallel(fq_verify_draft *draft, fq_error *err) {
    fq_verify *verify = draft->verify;
    const uint64_t n_ranks = verify->options.tensor_parallel;
    fq_arena scratch = {0};
    cut_side *sides = fq_arena_array(&scratch, verify->n_tensors, sizeof *sides);
    fq_fold_item *items = fq_arena_array(&scratch, verify->n_tensors, sizeof *items);
    fq_status status = sides && items ? FQ_OK : fq_fail_memory(err);
    size_t n_sides = 0, n = 0;
    for (size_t i = 0; i < verify->n_tensors && !status; i++)
        n_sides +=
            find_side(&sides[n_sides], &verify->tensors[i], draft->model->num_key_value_heads);
    const bool loads_all = status || all_load(sides, n_sides, n_ranks);
    const uint64_t most = loads_all ? n_ranks : find_most(sides, n_sides, n_ranks);
    for (size_t i = 0; i < n_sides && !loads_all && !status; i++) {
        if (loads(&sides[i], n_ranks))
            continue;
        items[n] = (fq_fold_item){.name = sides[i].tensor->tensor->name,
                                  .rest = describe(&sides[i], n_ranks, most, &scratch)};
        status = items[n++].rest ? FQ_OK : fq_fail_memory(err);
    }
    if (!status)
        status = fq_fold_messages(&verify->problems, verify->checkpoint->path, items, n, err);
    if (!status && n_ranks > 1)
        status = note_unknown(verify, items, err);
    fq_arena_free(&scratch);
    return status;
}
