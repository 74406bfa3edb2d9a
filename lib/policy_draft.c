// How the parts of the policy put their decisions down: see policy_draft.h.
#include "policy_draft.h"

#include "names.h"
#include "scale.h"

#include <inttypes.h>
#include <string.h>

size_t fq_module_length(const char *name) {
    static const char suffix[] = ".weight";
    return fq_has_suffix(name, suffix) ? strlen(name) - (sizeof suffix - 1) : 0;
}

fq_status fq_draft_keep(fq_policy_draft *draft, size_t position, const char *reason,
                        fq_error *err) {
    if (!reason)
        return fq_fail_memory(err);
    draft->decisions[position].quantize = false;
    draft->decisions[position].reason = reason;
    return FQ_OK;
}

fq_status fq_draft_refuse(fq_policy_draft *draft, size_t position, const char *reason,
                          fq_error *err) {
    draft->possible[position] = false;
    return fq_draft_keep(draft, position, reason, err);
}

fq_status fq_draft_choose(fq_policy_draft *draft, size_t position, uint64_t rows, uint64_t cols,
                          fq_error *err) {
    const bool ragged_rows = rows % FQ_BLOCK_SIZE != 0, ragged_cols = cols % FQ_BLOCK_SIZE != 0;
    const char *note = "";
    if (ragged_rows && ragged_cols)
        note = fq_arena_printf(draft->arena, "ragged: %" PRIu64 " rows, %" PRIu64 " columns", rows,
                               cols);
    else if (ragged_rows)
        note = fq_arena_printf(draft->arena, "ragged: %" PRIu64 " rows", rows);
    else if (ragged_cols)
        note = fq_arena_printf(draft->arena, "ragged: %" PRIu64 " columns", cols);
    if (!note)
        return fq_fail_memory(err);
    draft->decisions[position].quantize = true;
    draft->decisions[position].reason = note;
    return FQ_OK;
}

const char *fq_why_unfit(const fq_tensor *tensor) {
    if (!fq_dtype_is_source(tensor->dtype))
        return "not BF16, F16 or F32";
    return tensor->nbytes == 0 ? "empty" : NULL;
}

const char *fq_why_small(uint64_t rows, uint64_t cols) {
    return rows < FQ_BLOCK_SIZE || cols < FQ_BLOCK_SIZE ? "smaller than a block of 128 x 128"
                                                        : NULL;
}
