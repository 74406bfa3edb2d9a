// Workers take items in order, each once, and the error returned is the first item's that failed.
#include "lib/pool.h"
#include "tests/check.h"

#include <stdlib.h>
#include <time.h>

enum { N_ITEMS = 1000, MAX_WORKERS = 8 };

typedef struct job {
    int next;
    int taken_by[MAX_WORKERS];
    int n_times[N_ITEMS];
    int fails_from; // this item and all later ones fail; -1: none
    int cancel_at;  // sets cancelled when this item is carried out; -1: never
    int cancelled;
} pool_job;

static bool take(void *context, uint32_t worker, uint64_t limit, uint64_t *order, fq_error *err) {
    (void)err;
    pool_job *job = context;
    if (job->next == N_ITEMS || (uint64_t)job->next >= limit)
        return false;
    *order = (uint64_t)job->next;
    job->taken_by[worker] = job->next++;
    return true;
}

static fq_status carry_out(void *context, uint32_t worker, fq_error *err) {
    pool_job *job = context;
    const int item = job->taken_by[worker];
    __atomic_fetch_add(&job->n_times[item], 1, __ATOMIC_RELAXED);
    if (item == job->cancel_at)
        __atomic_store_n(&job->cancelled, 1, __ATOMIC_RELAXED);
    if (job->fails_from < 0 || item < job->fails_from)
        return FQ_OK;
    // The earlier of two failing items ends later: its error must be returned all the same.
    if (item == job->fails_from)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    return fq_fail(err, FQ_IO, "item %d", item);
}

static const fq_pool_work work = {.take = take, .carry_out = carry_out};

static void test_all_once(uint32_t n_workers) {
    pool_job job = {.fails_from = -1, .cancel_at = -1};
    fq_error err = {0};
    CHECK(fq_pool_run(&work, &job, n_workers, NULL, &err) == FQ_OK);
    int wrong = 0;
    for (int i = 0; i < N_ITEMS; i++)
        wrong += job.n_times[i] != 1;
    CHECK_U64(wrong, 0);
}

static void test_first_error(uint32_t n_workers) {
    pool_job job = {.fails_from = 37, .cancel_at = -1};
    fq_error err = {0};
    CHECK(fq_pool_run(&work, &job, n_workers, NULL, &err) == FQ_IO);
    CHECK_STR(err.text, "item 37");
    CHECK(job.next <= 37 + 1 + (int)n_workers);
}

static void test_cancel(uint32_t n_workers) {
    pool_job job = {.fails_from = -1, .cancel_at = 10};
    fq_error err = {0};
    CHECK(fq_pool_run(&work, &job, n_workers, &job.cancelled, &err) == FQ_CANCELLED);
    CHECK(job.next < N_ITEMS);
}

int main(void) {
    for (uint32_t n_workers = 1; n_workers <= MAX_WORKERS; n_workers *= 2) {
        test_all_once(n_workers);
        test_first_error(n_workers);
        test_cancel(n_workers);
    }
    return check_result();
}
