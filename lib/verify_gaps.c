// Experts that are missing among others, where no reference and no index tells of them. See
// verify_work.h.
#include "verify_work.h"

#include "experts.h"
#include "policy_draft.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_NUMBER = 65535, // of an expert
    MAX_NAME = 1024,    // bytes; longer ones are left alone
    MAX_LISTED = 8192,  // weights, folded to few lines
    MAX_LINES = 100,    // those on the index come first, and are no more
};

typedef struct gap_check {
    fq_verify *verify;
    fq_fold_item *items; // [n_items] of MAX_LISTED; NULL before the first
    size_t n_items;
    fq_arena scratch;
} gap_check;

// "P.experts.17.up_proj.weight": P.experts, 17, up_proj.weight.
typedef struct expert_name {
    const char *name;
    size_t n_module;
    uint32_t number;
    const char *rest;
} expert_name;

static bool read_name(expert_name *out, const char *name) {
    const size_t n = fq_experts_length(name);
    *out = (expert_name){.name = name, .n_module = n};
    if (n == 0 || name[n] != '.' || strlen(name) >= MAX_NAME)
        return false;
    const char *first = name + n + 1, *digit = first;
    for (; *digit >= '0' && *digit <= '9' && out->number <= MAX_NUMBER; digit++)
        out->number = 10 * out->number + (uint32_t)(*digit - '0');
    out->rest = digit + 1;
    const bool is_padded = first[0] == '0' && digit - first > 1;
    return digit > first && !is_padded && *digit == '.' && out->number <= MAX_NUMBER;
}

// Whether a line on the index names it already.
static bool is_told(const fq_verify *verify, const char *name) {
    for (size_t i = 0; i < verify->problems.n && i < MAX_LINES; i++)
        if (strstr(verify->problems.lines[i], name))
            return true;
    return false;
}

// Whether the checkpoint holds its sibling in another expert of no greater number, whose name goes
// to out.
static bool holds_sibling(const gap_check *check, char out[MAX_NAME], const expert_name *of,
                          uint32_t number) {
    snprintf(out, MAX_NAME, "%.*s.%u.%s", (int)of->n_module, of->name, number, of->rest);
    return fq_checkpoint_position(check->verify->checkpoint, out) != SIZE_MAX;
}

static fq_status add_item(gap_check *check, const char *name, fq_error *err) {
    if (!check->items)
        check->items = fq_arena_array(&check->scratch, MAX_LISTED, sizeof *check->items);
    const char *copy = fq_arena_strndup(&check->scratch, name, strlen(name));
    if (!check->items || !copy)
        return fq_fail_memory(err);
    check->items[check->n_items++] = (fq_fold_item){
        copy, "is missing, while experts before and after it are there; get its file again, or "
              "give --reference if the original lacks it too"};
    return FQ_OK;
}

// Those right before an expert that is there, if expert 0 is there too: where experts are divided
// among machines, the folder of one of them begins at another.
static fq_status find_gap_before(gap_check *check, const expert_name *expert, fq_error *err) {
    char name[MAX_NAME];
    if (holds_sibling(check, name, expert, expert->number - 1) ||
        !holds_sibling(check, name, expert, 0))
        return FQ_OK;
    fq_status status = FQ_OK;
    for (uint32_t number = expert->number - 1; !status && check->n_items < MAX_LISTED; number--) {
        if (holds_sibling(check, name, expert, number))
            break;
        if (!is_told(check->verify, name))
            status = add_item(check, name, err);
    }
    return status;
}

fq_status fq_verify_check_gaps(fq_verify *verify, fq_error *err) {
    gap_check check = {.verify = verify};
    const fq_checkpoint *checkpoint = verify->checkpoint;
    fq_status status = FQ_OK;
    for (size_t i = 0; i < checkpoint->n_tensors && !status; i++) {
        const char *name = checkpoint->by_name[i]->name;
        expert_name expert;
        if (fq_module_length(name) > 0 && read_name(&expert, name) && expert.number > 0)
            status = find_gap_before(&check, &expert, err);
    }
    if (!status && check.n_items == MAX_LISTED)
        fq_messages_add(&verify->notes, "of the experts that are missing %d weights are listed",
                        MAX_LISTED);
    if (!status)
        status =
            fq_fold_messages(&verify->problems, checkpoint->path, check.items, check.n_items, err);
    fq_arena_free(&check.scratch);
    return status;
}
