// The workers: see pool.h.
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct pool_state {
    const fq_pool_work *work;
    void *context;
    const int *cancelled;
    pthread_mutex_t lock; // the fields below, and take
    uint64_t n_taken;
    bool stopped, was_cancelled;
    uint64_t failed_item; // the first one that failed, while stopped by an error
    fq_error error;
} pool_state;

typedef struct pool_worker {
    pool_state *pool;
    uint32_t index;
    pthread_t thread;
} pool_worker;

// With the lock held.
static void record_error(pool_state *pool, uint64_t item, const fq_error *error) {
    if (pool->error.status == FQ_OK || item < pool->failed_item) {
        pool->failed_item = item;
        pool->error = *error;
    }
    pool->stopped = true;
}

static bool take(pool_worker *worker, uint64_t *item) {
    pool_state *pool = worker->pool;
    fq_error error = {0};
    pthread_mutex_lock(&pool->lock);
    if (!pool->stopped && pool->cancelled && __atomic_load_n(pool->cancelled, __ATOMIC_RELAXED))
        pool->stopped = pool->was_cancelled = true;
    bool taken = false;
    if (!pool->stopped) {
        *item = pool->n_taken++;
        taken = pool->work->take(pool->context, worker->index, &error);
        if (error.status != FQ_OK)
            record_error(pool, *item, &error);
        if (!taken)
            pool->stopped = true;
    }
    pthread_mutex_unlock(&pool->lock);
    return taken && error.status == FQ_OK;
}

static void *work_until_done(void *argument) {
    pool_worker *worker = argument;
    pool_state *pool = worker->pool;
    uint64_t item;
    while (take(worker, &item)) {
        fq_error error = {0};
        if (pool->work->carry_out(pool->context, worker->index, &error) != FQ_OK) {
            pthread_mutex_lock(&pool->lock);
            record_error(pool, item, &error);
            pthread_mutex_unlock(&pool->lock);
        }
    }
    return NULL;
}

fq_status fq_pool_run(const fq_pool_work *work, void *context, uint32_t n_workers,
                      const int *cancelled, fq_error *err) {
    pool_state pool = {.work = work, .context = context, .cancelled = cancelled};
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
