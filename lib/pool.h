// Workers side by side over items in order, with errors that do not depend on how many they are.
#ifndef FQ_POOL_H
#define FQ_POOL_H

#include "error.h"

#include <stdbool.h>
#include <stdint.h>

// The work. Both functions are given the caller's context.
typedef struct fq_pool_work {
    // Makes the next item in the worker's own place for it; false when there are no more. Called
    // by one worker at a time, in the order of the items.
    bool (*take)(void *context, uint32_t worker, fq_error *err);
    // Does the item that this worker took last.
    fq_status (*carry_out)(void *context, uint32_t worker, fq_error *err);
} fq_pool_work;

// Runs work in n_workers threads (fewer where the system gives no more; the caller's is one of
// them) until there are no items left. Where take or carry_out fails, no further item is taken,
// those taken before are done, and the error of the first item that failed is returned: the same
// one whatever n_workers is. Cancelling (*cancelled, read atomically, not 0; or NULL) takes no
// further item either and is FQ_CANCELLED unless there is an error.
fq_status fq_pool_run(const fq_pool_work *work, void *context, uint32_t n_workers,
                      const int *cancelled, fq_error *err);

#endif
