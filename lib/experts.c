// The layout of fused experts follows from the pair of tensors: gate and up doubled in one, the
// hidden size common to both. See experts.h.
#include "experts.h"

#include "fold.h"
#include "names.h"
#include "scale.h"

#include <inttypes.h>
#include <string.h>

typedef struct expert_pair {
    size_t gate_up, down;  // positions in by_name; SIZE_MAX if absent
    const char *name;      // of one of them: starts with the module's, "P.experts"
    size_t n_module;       // bytes of that
    uint64_t intermediate; // I
    uint64_t hidden;       // H
    bool transposed;
} expert_pair;

static const char gate_up_name[] = ".gate_up_proj";
static const char down_name[] = ".down_proj";

size_t fq_experts_module_length(const char *name) {
    static const char component[] = "experts";
    size_t n = strlen(name);
    if (fq_has_suffix_n(name, n, gate_up_name))
        n -= strlen(gate_up_name);
    else if (fq_has_suffix_n(name, n, down_name))
        n -= strlen(down_name);
    else
        return 0;
    if (!fq_has_suffix_n(name, n, component))
        return 0;
    const size_t start = n - strlen(component);
    return start == 0 || name[start - 1] == '.' ? n : 0;
}

// The next component `experts` from `at` on; NULL without one.
static const char *find_component(const char *name, const char *at) {
    static const char component[] = "experts";
    const size_t n_component = strlen(component);
    for (; (at = strstr(at, component)); at += n_component) {
        const bool starts = at == name || at[-1] == '.';
        const bool ends = at[n_component] == '.' || at[n_component] == '\0';
        if (starts && ends)
            return at;
    }
    return NULL;
}

size_t fq_experts_first_length(const char *name) {
    const char *at = find_component(name, name);
    return at ? (size_t)(at - name) + strlen("experts") : 0;
}

size_t fq_experts_length(const char *name) {
    size_t length = 0;
    for (const char *at = name; (at = find_component(name, at)); at = name + length)
        length = (size_t)(at - name) + strlen("experts");
    return length;
}

size_t fq_experts_stack_length(const fq_tensor *tensor) {
    const bool is_floating = fq_dtype_is_source(tensor->dtype) || tensor->dtype == FQ_F64;
    // Biases and depthwise convolutions have a dimension of 1.
    if (tensor->rank != 3 || !is_floating || tensor->shape[1] <= 1 || tensor->shape[2] <= 1)
        return 0;
    const size_t n_experts = fq_experts_length(tensor->name);
    const size_t n_module = fq_module_length(tensor->name);
    if (n_experts > 0)
        return n_experts;
    return fq_policy_rule_for(tensor->name, n_module) ? 0 : n_module;
}

bool fq_experts_is_scale(const fq_checkpoint *checkpoint, const char *name) {
    static const char *const endings[] = {"_scale_inv", "_scale"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (fq_has_suffix(name, endings[i]) &&
            fq_checkpoint_position_of(checkpoint, name, n - strlen(endings[i]), "") != SIZE_MAX)
            return true;
    }
    return false;
}

const char *fq_experts_why_not_2d(const fq_tensor *tensor) {
    if (fq_experts_stack_length(tensor) == 0)
        return "not 2-D";
    return fq_experts_length(tensor->name) > 0
               ? "fused experts: only gate_up_proj and down_proj have a known layout"
               : "not 2-D, but a stack of matrices";
}

// The position of the module's tensor with that end of its name, or SIZE_MAX.
static size_t find_sibling(const fq_policy_draft *draft, const expert_pair *pair,
                           const char *suffix) {
    return fq_checkpoint_position_of(draft->checkpoint, pair->name, pair->n_module, suffix);
}

// Why a layout read off the shapes cannot be trusted, by what config.json says; NULL if it can.
static const char *why_contradicted(const expert_pair *pair, const fq_model *model) {
    if (model->hidden_size != 0 && model->hidden_size != pair->hidden)
        return "fused experts: the shape contradicts hidden_size of config.json";
    if (model->moe_intermediate_size != 0 && model->moe_intermediate_size != pair->intermediate)
        return "fused experts: the shape contradicts moe_intermediate_size of config.json";
    return NULL;
}

// Reads the sizes off [E, 2I, H] and [E, H, I], or [E, H, 2I] and [E, I, H]: no pair of shapes
// fits both, not even square ones. Returns why that fails, or NULL.
static const char *read_layout(expert_pair *pair, const fq_tensor *gate_up, const fq_tensor *down) {
    if (gate_up->rank != 3 || down->rank != 3)
        return "fused experts: not 3-D";
    const uint64_t *g = gate_up->shape, *d = down->shape;
    if (g[0] != d[0])
        return "fused experts: gate_up_proj and down_proj differ in the number of experts";
    const bool is_normal = g[2] == d[1] && g[1] % 2 == 0 && g[1] / 2 == d[2];
    const bool is_transposed = g[1] == d[2] && g[2] % 2 == 0 && g[2] / 2 == d[1];
    if (!is_normal && !is_transposed)
        return "fused experts: the shapes of gate_up_proj and down_proj fit no known layout";
    pair->transposed = is_transposed;
    pair->hidden = is_normal ? d[1] : d[2];
    pair->intermediate = is_normal ? d[2] : d[1];
    return NULL;
}

// gpt-oss stores gate and up rows in turns, and biases beside them.
static bool is_interleaved(const fq_policy_draft *draft, const expert_pair *pair) {
    const char *type = draft->model->model_type;
    return (type && strcmp(type, "gpt_oss") == 0) ||
           find_sibling(draft, pair, ".gate_up_proj_bias") != SIZE_MAX ||
           find_sibling(draft, pair, ".down_proj_bias") != SIZE_MAX;
}

// True if the checkpoint holds a tensor "P.experts.NUMBER.…": where the split ones would go.
static bool has_split_experts(const fq_checkpoint *checkpoint, const expert_pair *pair) {
    const size_t n = pair->n_module;
    size_t low = 0, high = checkpoint->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const char *name = checkpoint->by_name[middle]->name;
        const int order = strncmp(name, pair->name, n);
        // Looks for the first name that is not before "P.experts.0": no digit is before 0.
        if (order < 0 || (order == 0 && strcmp(name + n, ".0") < 0))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == checkpoint->n_tensors)
        return false;
    const char *name = checkpoint->by_name[low]->name;
    return strncmp(name, pair->name, n) == 0 && name[n] == '.' && name[n + 1] >= '0' &&
           name[n + 1] <= '9';
}

// Why the pair must stay fused whatever the user says, or NULL: its layout is then filled in.
static const char *why_refused(const fq_policy_draft *draft, expert_pair *pair) {
    if (draft->options->keep_fused_experts)
        return "fused experts: by --experts keep";
    if (pair->gate_up == SIZE_MAX || pair->down == SIZE_MAX)
        return pair->gate_up == SIZE_MAX ? "fused experts: gate_up_proj is missing"
                                         : "fused experts: down_proj is missing";
    if (is_interleaved(draft, pair))
        return "fused experts: gate and up are interleaved";
    const char *why = read_layout(pair, draft->decisions[pair->gate_up].tensor,
                                  draft->decisions[pair->down].tensor);
    if (!why)
        why = why_contradicted(pair, draft->model);
    if (!why && has_split_experts(draft->checkpoint, pair))
        why = "fused experts: the same module has per-expert tensors too";
    return why;
}

// Why the rules on names and sizes keep the pair, or NULL. FQ_DEVICE when out of memory.
static fq_status why_kept(const char **out, const fq_policy_draft *draft, const expert_pair *pair,
                          fq_error *err) {
    const fq_component_rule *rule = fq_policy_rule_for(pair->name, pair->n_module);
    *out = rule ? rule->reason : fq_why_small(pair->intermediate, pair->hidden);
    if (*out || pair->intermediate % FQ_BLOCK_SIZE == 0)
        return FQ_OK;
    *out = fq_arena_printf(draft->arena,
                           "fused experts: %" PRIu64 " rows of gate and up are no multiple of 128",
                           pair->intermediate);
    return *out ? FQ_OK : fq_fail_memory(err);
}

static fq_status decide_tensor(fq_policy_draft *draft, size_t position, const expert_pair *pair,
                               const char *refused, const char *kept, fq_error *err) {
    if (position == SIZE_MAX)
        return FQ_OK;
    fq_decision *decision = &draft->decisions[position];
    const char *unfit = fq_why_unfit(decision->tensor);
    if (unfit || refused)
        return fq_draft_refuse(draft, position, unfit ? unfit : refused, err);
    const bool is_gate_up = position == pair->gate_up;
    draft->possible[position] = true;
    decision->experts = is_gate_up ? FQ_EXPERTS_GATE_UP : FQ_EXPERTS_DOWN;
    decision->transposed = pair->transposed;
    if (kept)
        return fq_draft_keep(draft, position, kept, err);
    return is_gate_up ? fq_draft_choose(draft, position, pair->intermediate, pair->hidden, err)
                      : fq_draft_choose(draft, position, pair->hidden, pair->intermediate, err);
}

static fq_status decide_pair(fq_policy_draft *draft, const expert_pair *found, fq_error *err) {
    expert_pair pair = *found;
    const char *refused = why_refused(draft, &pair), *kept = NULL;
    fq_status status = refused ? FQ_OK : why_kept(&kept, draft, &pair, err);
    if (!status)
        status = decide_tensor(draft, pair.gate_up, &pair, refused, kept, err);
    if (!status)
        status = decide_tensor(draft, pair.down, &pair, refused, kept, err);
    return status;
}

fq_status fq_experts_decide(fq_policy_draft *draft, fq_error *err) {
    for (size_t i = 0; i < draft->checkpoint->n_tensors; i++) {
        const char *name = draft->decisions[i].tensor->name;
        const size_t n = fq_experts_module_length(name);
        if (n == 0)
            continue;
        expert_pair pair = {.name = name, .n_module = n};
        pair.gate_up = find_sibling(draft, &pair, gate_up_name);
        pair.down = find_sibling(draft, &pair, down_name);
        // A pair is decided once, at its first tensor in the order of names: down_proj.
        if (i != pair.down && pair.down != SIZE_MAX)
            continue;
        const fq_status status = decide_pair(draft, &pair, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

// True for a tensor of fused experts that is kept. Other stacks are taken for such where no rule
// explains them and their matrices are worth it: convolutions have only a few columns.
static bool is_left_fused(const fq_decision *decision) {
    const fq_tensor *tensor = decision->tensor;
    if (decision->quantize)
        return false;
    if (fq_experts_module_length(tensor->name) > 0)
        return true;
    return fq_experts_stack_length(tensor) > 0 &&
           !fq_policy_rule_for(tensor->name, strlen(tensor->name)) &&
           !fq_why_small(tensor->shape[1], tensor->shape[2]);
}

fq_status fq_experts_warn(const fq_policy_draft *draft, fq_error *err) {
    const size_t n_tensors = draft->checkpoint->n_tensors;
    fq_arena scratch = {0};
    fq_fold_item *items = fq_arena_array(&scratch, n_tensors, sizeof *items);
    size_t n = 0;
    fq_status status = items ? FQ_OK : fq_fail_memory(err);
    for (size_t i = 0; i < n_tensors && !status; i++) {
        const fq_decision *decision = &draft->decisions[i];
        if (!is_left_fused(decision))
            continue;
        const char *text = fq_arena_printf(&scratch, "stays unquantized: %s", decision->reason);
        items[n++] = (fq_fold_item){.name = decision->tensor->name, .rest = text};
        status = text ? FQ_OK : fq_fail_memory(err);
    }
    if (!status)
        status = fq_fold_messages(draft->warnings, draft->checkpoint->path, items, n, err);
    fq_arena_free(&scratch);
    return status;
}
