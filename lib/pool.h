// Workers side by side over ordered items, with errors that do not depend on how many they are.
#ifndef FQ_POOL_H
#define FQ_POOL_H

#include "error.h"

#include <stdbool.h>
#include <stdint.h>

// The work. Both functions are given the caller's context.
typedef struct fq_pool_work {
    // Makes an item for the worker in the worker's own place for it, and sets *order: which item
    // comes before which. Items may be taken out of order. False when there is none left whose
    // order is under limit. Called by one worker at a time. An error (in err) is the item's.
    bool (*take)(void *context, uint32_t worker, uint64_t limit, uint64_t *order, fq_error *err);
    // Does the item that this worker took last.
    fq_status (*carry_out)(void *context, uint32_t worker, fq_error *err);
} fq_pool_work;

// Runs work in n_workers threads (fewer where the system gives no more; the caller's is one of
// them) until there are no items left. Where an item is FQ_BAD_INPUT, all items before it are still
// done, and no later one is taken; so the error that is returned, that of the first such item, is
// the same for any n_workers. Any other error takes no further item. Cancelling (*cancelled, read
// atomically, not 0; or NULL) neither, and is FQ_CANCELLED unless there is an error.
fq_status fq_pool_run(const fq_pool_work *work, void *context, uint32_t n_workers,
                      const int *cancelled, fq_error *err);

#endif
