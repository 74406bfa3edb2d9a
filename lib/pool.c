// The workers: see pool.h.
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct pool_state {
    const fq_pool_work *work;
    void *context;
    const int *cancelled;
    pthread_mutex_t lock; // the fields below, and take
    bool was_cancelled;
    uint64_t limit;  // no item of this order or later is taken
    uint64_t failed; // order of the first item that failed, if there is an error
    fq_error error;  // of that item
} pool_state;

typedef struct pool_worker {
    pool_state *pool;
    uint32_t index;
    pthread_t thread;
} pool_worker;

// With the lock held.
static void record_error(pool_state *pool, uint64_t order, const fq_error *error) {
    if (pool->error.status == FQ_OK || order < pool->failed) {
        pool->failed = order;
        pool->error = *error;
    }
    const uint64_t limit = error->status == FQ_BAD_INPUT ? order : 0;
    if (limit < pool->limit)
        pool->limit = limit;
}

static bool take(pool_worker *worker, uint64_t *order) {
    pool_state *pool = worker->pool;
    pthread_mutex_lock(&pool->lock);
    if (pool->cancelled && __atomic_load_n(pool->cancelled, __ATOMIC_RELAXED))
        pool->was_cancelled = true;
    bool taken = false;
    while (!taken && !pool->was_cancelled) {
        fq_error error = {0};
        taken = pool->work->take(pool->context, worker->index, pool->limit, order, &error);
        if (error.status == FQ_OK)
            break;
        record_error(pool, *order, &error);
        taken = false; // an item before it may be left
    }
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

static void *work_until_done(void *argument) {
    pool_worker *worker = argument;
    pool_state *pool = worker->pool;
    uint64_t order;
    while (take(worker, &order)) {
        fq_error error = {0};
        if (pool->work->carry_out(pool->context, worker->index, &error) != FQ_OK) {
            pthread_mutex_lock(&pool->lock);
            record_error(pool, order, &error);
            pthread_mutex_unlock(&pool->lock);
        }
    }
    return NULL;
}

fq_status fq_pool_run(const fq_pool_work *work, void *context, uint32_t n_workers,
                      const int *cancelled, fq_error *err) {
    pool_state pool = {
        .work = work, .context = context, .cancelled = cancelled, .limit = UINT64_MAX};
    pool_worker *workers = calloc(n_workers, sizeof *workers);
    if (!workers)
        return fq_fail_memory(err);
    pthread_mutex_init(&pool.lock, NULL);
    uint32_t n_started = 1;
    for (uint32_t i = 0; i < n_workers; i++)
        workers[i] = (pool_worker){.pool = &pool, .index = i};
    while (n_started < n_workers && pthread_create(&workers[n_started].thread, NULL,
                                                   work_until_done, &workers[n_started]) == 0)
        n_started++;
    work_until_done(&workers[0]);
    for (uint32_t i = 1; i < n_started; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_mutex_destroy(&pool.lock);
    free(workers);
    if (pool.error.status != FQ_OK)
        *err = pool.error;
    else if (pool.was_cancelled)
        fq_fail(err, FQ_CANCELLED, "interrupted");
    return err->status;
}
