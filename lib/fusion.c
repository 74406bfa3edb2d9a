// Fusion groups: found by name, and made uniform by the built-in rules.
#include "fusion.h"

#include "experts.h"
#include "names.h"
#include "scale.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIBLINGS = 3,
    HALVES_UNIT = 2 * FQ_BLOCK_SIZE, // of the rows of a matrix that holds two halves
};

// Projections that stand side by side and are fused in this order. Engines cut the fused matrix at
// their borders, so blocks must end there: rows of all but the last are multiples of 128. The last
// may be ragged unless it holds two halves itself. Members are named as their tensors end.
typedef struct sibling_row {
    const char *members[MAX_SIBLINGS + 1];
    uint64_t last_unit; // of the rows of the last member
    const char *down;   // takes their output: as ragged in its columns as they are in rows
} sibling_row;

static const sibling_row sibling_rows[] = {
    {{"q_proj.weight", "k_proj.weight", "v_proj.weight"}, 1, NULL},
    {{"q_a_proj.weight", "kv_a_proj_with_mqa.weight"}, 1, NULL},
    {{"in_proj_qkv.weight", "in_proj_z.weight"}, 1, NULL},
    {{"gate_proj.weight", "up_proj.weight"}, 1, "down_proj.weight"},
    {{"w1.weight", "w3.weight"}, 1, "w2.weight"},
    {{"gate_up_proj.weight"}, HALVES_UNIT, "down_proj.weight"},
};

// Matrices of one expert whose rows are its intermediate size: engines count the scale rows of
// gate and up apart, so both must be multiples of 128.
static const struct {
    const char *member;
    uint64_t unit;
} expert_units[] = {
    {"gate_proj", FQ_BLOCK_SIZE}, {"up_proj", FQ_BLOCK_SIZE},    {"w1", FQ_BLOCK_SIZE},
    {"w3", FQ_BLOCK_SIZE},        {"gate_up_proj", HALVES_UNIT},
};

typedef struct group_finder {
    fq_policy_draft *draft;
    fq_fusion_groups *groups;
    size_t capacity;
    size_t *members; // [n_tensors]: scratch for the group at hand
} group_finder;

// A matrix of a module of experts.
typedef struct expert_matrix {
    const char *name;
    size_t n_module; // bytes of name: "P.experts"
    size_t position; // in by_name
    bool is_beside;  // lies in the module, but is no expert's
} expert_matrix;

static bool is_component(const char *component, size_t n, const char *text) {
    return strlen(text) == n && memcmp(component, text, n) == 0;
}

// The start of the last component of a module's name of n bytes.
static size_t last_component(const char *name, size_t n) {
    const char *dot = memrchr(name, '.', n);
    return dot ? (size_t)(dot - name) + 1 : 0;
}

// If name is a matrix of a module of experts, "P.experts.NUMBER.COMPONENT.weight" or a fused
// parameter, the bytes of "P.experts"; 0 if not.
static size_t experts_length(const char *name) {
    const size_t fused = fq_experts_module_length(name);
    const size_t n = fq_module_length(name);
    if (fused || n == 0)
        return fused;
    const size_t component = last_component(name, n);
    if (component == 0)
        return 0;
    const size_t number = last_component(name, component - 1);
    if (number == 0 || strspn(name + number, "0123456789") != component - 1 - number ||
        component - 1 == number)
        return 0;
    const size_t module = last_component(name, number - 1);
    return is_component(name + module, number - 1 - module, "experts") ? number - 1 : 0;
}

static fq_status add_group(fq_fusion_group **out, group_finder *f, const char *module,
                           size_t n_module, const size_t *members, size_t n, fq_error *err) {
    fq_arena *arena = f->draft->arena;
    if (f->groups->n == f->capacity) {
        const size_t capacity = f->capacity ? 2 * f->capacity : 64;
        fq_fusion_group *grown = fq_arena_array(arena, capacity, sizeof *grown);
        if (!grown)
            return fq_fail_memory(err);
        if (f->capacity)
            memcpy(grown, f->groups->groups, f->capacity * sizeof *grown);
        f->groups->groups = grown;
        f->capacity = capacity;
    }
    fq_fusion_group *group = *out = &f->groups->groups[f->groups->n];
    group->module = fq_arena_strndup(arena, module, n_module);
    group->members = fq_arena_array(arena, n, sizeof *group->members);
    if (!group->module || !group->members)
        return fq_fail_memory(err);
    memcpy(group->members, members, n * sizeof *members);
    group->n = n;
    f->groups->n++;
    return FQ_OK;
}

const char *fq_fusion_member_name(size_t *n, const fq_fusion_group *group,
                                  const fq_tensor *tensor) {
    const size_t n_module = strlen(group->module), n_name = fq_module_length(tensor->name);
    const size_t behind = n_module ? n_module + 1 : 0;
    const size_t start = group->is_experts ? last_component(group->module, n_module) : behind;
    *n = (n_name ? n_name : strlen(tensor->name)) - start;
    return tensor->name + start;
}

// Keeps what is chosen of a group. The tensor that is to blame keeps the reason that it has.
static fq_status keep_with(fq_policy_draft *draft, const fq_fusion_group *group, size_t culprit,
                           fq_error *err) {
    size_t n;
    const char *name = fq_fusion_member_name(&n, group, draft->decisions[culprit].tensor);
    const char *reason = NULL;
    for (size_t i = 0; i < group->n; i++) {
        if (!draft->decisions[group->members[i]].quantize)
            continue;
        if (!reason)
            reason = fq_arena_printf(draft->arena, "kept with %.*s: %s", (int)n, name,
                                     draft->decisions[culprit].reason);
        const fq_status status = fq_draft_keep(draft, group->members[i], reason, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

// Keeps the whole group if a part of it is kept.
static fq_status make_uniform(fq_policy_draft *draft, const fq_fusion_group *group, fq_error *err) {
    for (size_t i = 0; i < group->n; i++) {
        if (!draft->decisions[group->members[i]].quantize)
            return keep_with(draft, group, group->members[i], err);
    }
    return FQ_OK;
}

// Keeps a member with `rows` of output that are no multiple of unit: one block, or one for each
// half.
static fq_status keep_if_ragged(fq_policy_draft *draft, fq_fusion_group *group, size_t position,
                                uint64_t rows, uint64_t unit, fq_error *err) {
    if (rows % unit == 0)
        return FQ_OK;
    const bool is_halved = unit == HALVES_UNIT;
    const char *why =
        is_halved
            ? fq_arena_printf(draft->arena,
                              "its two halves of %" PRIu64 "%s rows are no multiple "
                              "of 128",
                              rows / 2, rows % 2 ? ".5" : "")
            : fq_arena_printf(draft->arena, "its %" PRIu64 " rows are no multiple of 128", rows);
    if (!why)
        return fq_fail_memory(err);
    if (!group->ragged) {
        size_t n;
        const char *name = fq_fusion_member_name(&n, group, draft->decisions[position].tensor);
        group->ragged = fq_arena_printf(draft->arena, "%.*s: %s", (int)n, name, why);
        if (!group->ragged)
            return fq_fail_memory(err);
    }
    if (!draft->decisions[position].quantize)
        return FQ_OK;
    return fq_draft_keep(
        draft, position,
        is_halved ? why : fq_arena_printf(draft->arena, "%s, and engines fuse it", why), err);
}

static fq_status keep_ragged_expert(fq_policy_draft *draft, fq_fusion_group *group, size_t position,
                                    fq_error *err) {
    const fq_decision *decision = &draft->decisions[position];
    const uint64_t *shape = decision->tensor->shape;
    if (decision->experts == FQ_EXPERTS_GATE_UP)
        return keep_if_ragged(draft, group, position, shape[decision->transposed ? 2 : 1],
                              HALVES_UNIT, err);
    const char *name = decision->tensor->name;
    const size_t n = fq_module_length(name), start = last_component(name, n);
    for (size_t i = 0; i < sizeof expert_units / sizeof expert_units[0]; i++) {
        if (decision->tensor->rank == 2 &&
            is_component(name + start, n - start, expert_units[i].member))
            return keep_if_ragged(draft, group, position, shape[0], expert_units[i].unit, err);
    }
    return FQ_OK;
}

static int compare_modules(const expert_matrix *a, const expert_matrix *b) {
    const size_t n = a->n_module < b->n_module ? a->n_module : b->n_module;
    const int order = memcmp(a->name, b->name, n);
    return order ? order : (a->n_module > b->n_module) - (a->n_module < b->n_module);
}

static int compare_matrices(const void *a, const void *b) {
    const expert_matrix *x = a, *y = b;
    const int order = compare_modules(x, y);
    if (order || x->is_beside != y->is_beside)
        return order ? order : x->is_beside - y->is_beside;
    return (x->position > y->position) - (x->position < y->position);
}

// The group of the n matrices of one module, experts' first. Where these stay, engines skip the
// module, and so what lies beside them stays too.
static fq_status add_experts(group_finder *f, const expert_matrix *matrices, size_t n,
                             fq_error *err) {
    size_t n_experts = 0;
    for (size_t i = 0; i < n; i++) {
        f->members[i] = matrices[i].position;
        n_experts += !matrices[i].is_beside;
    }
    if (n_experts == 0)
        return FQ_OK;
    fq_fusion_group *group;
    fq_status status =
        add_group(&group, f, matrices[0].name, matrices[0].n_module, f->members, n, err);
    if (status)
        return status;
    group->is_experts = true;
    bool all = true;
    for (size_t i = 0; i < n_experts && !status; i++) {
        status = keep_ragged_expert(f->draft, group, group->members[i], err);
        all = all && f->draft->decisions[group->members[i]].quantize;
    }
    group->n_beside = n - n_experts;
    return status || all ? status : make_uniform(f->draft, group, err);
}

// A parameter of all experts that stays as it is, a stack of theirs as a rule: its module is the
// experts' own, and engines are told to skip it.
static bool is_kept_stack(const fq_policy_draft *draft, size_t i) {
    const fq_tensor *tensor = draft->checkpoint->by_name[i];
    const size_t n_module = fq_experts_length(tensor->name);
    if (n_module == 0 || draft->decisions[i].quantize ||
        fq_experts_is_scale(draft->checkpoint, tensor->name))
        return false;
    const bool is_floating = fq_dtype_is_source(tensor->dtype) || tensor->dtype == FQ_F64;
    return fq_experts_stack_length(tensor) > 0 || fq_experts_module_length(tensor->name) > 0 ||
           (is_floating && tensor->rank == 2 && fq_module_length(tensor->name) == n_module);
}

// Writes the modules of experts that a tensor belongs to, or lies in: "a.experts" and
// "a.experts.0.b.experts". Returns how many, at most MAX_MODULES.
enum { MAX_MODULES = 3 };
static size_t list_modules_of(expert_matrix *out, const fq_policy_draft *draft, size_t i) {
    const fq_tensor *tensor = draft->checkpoint->by_name[i];
    if (tensor->rank < 2)
        return 0;
    size_t n = 0, own = experts_length(tensor->name);
    const size_t last = fq_experts_length(tensor->name);
    if (own == 0 && is_kept_stack(draft, i))
        own = last;
    if (own > 0)
        out[n++] = (expert_matrix){tensor->name, own, i, false};
    const bool can_be_fp8 = tensor->rank == 2 && fq_dtype_is_source(tensor->dtype); // by --include
    if (!(draft->decisions[i].quantize || can_be_fp8) ||
        fq_experts_is_scale(draft->checkpoint, tensor->name))
        return n;
    const size_t first = fq_experts_first_length(tensor->name);
    if (last > 0 && last != own)
        out[n++] = (expert_matrix){tensor->name, last, i, true};
    if (first > 0 && first != own && first != last)
        out[n++] = (expert_matrix){tensor->name, first, i, true};
    return n;
}

// Makes a group of the matrices of each module of experts.
static fq_status find_experts(group_finder *f, fq_arena *scratch, fq_error *err) {
    const size_t n_tensors = f->draft->checkpoint->n_tensors;
    expert_matrix *matrices = fq_arena_array(scratch, MAX_MODULES * n_tensors, sizeof *matrices);
    if (!matrices)
        return fq_fail_memory(err);
    size_t n = 0;
    for (size_t i = 0; i < n_tensors; i++)
        n += list_modules_of(&matrices[n], f->draft, i);
    qsort(matrices, n, sizeof *matrices, compare_matrices);
    for (size_t start = 0, end; start < n; start = end) {
        end = start + 1;
        while (end < n && compare_modules(&matrices[start], &matrices[end]) == 0)
            end++;
        const fq_status status = add_experts(f, &matrices[start], end - start, err);
        if (status)
            return status;
    }
    return FQ_OK;
}

// The position of "PARENT.member", where name starts with "PARENT."; SIZE_MAX if absent.
static size_t find_sibling(const group_finder *f, const char *name, size_t n_parent,
                           const char *member) {
    return fq_checkpoint_position_of(f->draft->checkpoint, name, n_parent, member);
}

// A ragged gate and up leave the down projection as ragged in the dimension that tensor
// parallelism splits.
static fq_status keep_down(group_finder *f, const sibling_row *row, const char *name,
                           size_t n_parent, fq_error *err) {
    const size_t down = row->down ? find_sibling(f, name, n_parent, row->down) : SIZE_MAX;
    if (down == SIZE_MAX || !f->draft->decisions[down].quantize)
        return FQ_OK;
    const uint64_t cols = f->draft->decisions[down].tensor->shape[1];
    if (cols % FQ_BLOCK_SIZE == 0)
        return FQ_OK;
    const char *first = row->members[0];
    return fq_draft_keep(f->draft, down,
                         fq_arena_printf(f->draft->arena,
                                         "behind a ragged %.*s: its %" PRIu64
                                         " columns are no multiple of 128",
                                         (int)fq_module_length(first), first, cols),
                         err);
}

static fq_status decide_siblings(group_finder *f, const sibling_row *row, fq_fusion_group *group,
                                 size_t n_parent, fq_error *err) {
    fq_status status = FQ_OK;
    for (size_t i = 0; i < group->n && !status; i++) {
        const fq_tensor *tensor = f->draft->decisions[group->members[i]].tensor;
        const uint64_t unit = i == group->n - 1 ? row->last_unit : FQ_BLOCK_SIZE;
        if (tensor->rank == 2)
            status =
                keep_if_ragged(f->draft, group, group->members[i], tensor->shape[0], unit, err);
    }
    if (!status)
        status = make_uniform(f->draft, group, err);
    if (status || !group->ragged)
        return status;
    const char *first = f->draft->decisions[group->members[0]].tensor->name;
    return keep_down(f, row, first, n_parent, err);
}

// The group that the tensor at `position` opens: it is the first of a row's members that is there.
static fq_status add_siblings(group_finder *f, const sibling_row *row, size_t position,
                              size_t n_parent, fq_error *err) {
    const char *name = f->draft->decisions[position].tensor->name;
    size_t members[MAX_SIBLINGS], n = 0;
    for (size_t i = 0; row->members[i]; i++) {
        const size_t sibling = find_sibling(f, name, n_parent, row->members[i]);
        if (sibling != SIZE_MAX)
            members[n++] = sibling;
    }
    if (n == 0 || members[0] != position || (n == 1 && row->last_unit == 1))
        return FQ_OK;
    fq_fusion_group *group;
    const fq_status status =
        add_group(&group, f, name, n_parent ? n_parent - 1 : 0, members, n, err);
    return status ? status : decide_siblings(f, row, group, n_parent, err);
}

static fq_status find_siblings(group_finder *f, size_t position, fq_error *err) {
    const char *name = f->draft->decisions[position].tensor->name;
    const size_t start = last_component(name, fq_module_length(name));
    for (size_t r = 0; r < sizeof sibling_rows / sizeof sibling_rows[0]; r++) {
        for (size_t i = 0; sibling_rows[r].members[i]; i++) {
            if (strcmp(name + start, sibling_rows[r].members[i]) == 0)
                return add_siblings(f, &sibling_rows[r], position, start, err);
        }
    }
    return FQ_OK;
}

fq_status fq_fusion_decide(fq_fusion_groups *out, fq_policy_draft *draft, fq_error *err) {
    const fq_checkpoint *checkpoint = draft->checkpoint;
    group_finder finder = {.draft = draft, .groups = out};
    fq_arena scratch = {0};
    finder.members = fq_arena_array(&scratch, checkpoint->n_tensors, sizeof *finder.members);
    fq_status status = finder.members ? FQ_OK : fq_fail_memory(err);
    if (!status)
        status = find_experts(&finder, &scratch, err);
    for (size_t i = 0; i < checkpoint->n_tensors && !status; i++) {
        if (experts_length(checkpoint->by_name[i]->name) == 0)
            status = find_siblings(&finder, i, err);
    }
    fq_arena_free(&scratch);
    return status;
}
