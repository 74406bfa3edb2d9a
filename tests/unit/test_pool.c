// Workers do each item once; a fault of the input is the first faulty item's, however many workers
// there are and in whatever order items are taken; other errors and cancelling stop them.
#include "lib/pool.h"
#include "tests/check.h"

#include <stdlib.h>
#include <time.h>

enum { N_ITEMS = 1000, MAX_WORKERS = 8 };

typedef struct job {
    bool backwards; // items are taken from the last to the first
    int n_taken;
    int taken_by[MAX_WORKERS];
    int n_times[N_ITEMS];
    int fails[2];     // these items fail; -1: none
    fq_status status; // with this
    int cancel_at;    // sets cancelled when this item is carried out; -1: never
    int cancelled;
} pool_job;

static const pool_job no_trouble = {.fails = {-1, -1}, .cancel_at = -1};

static bool take(void *context, uint32_t worker, uint64_t limit, uint64_t *order, fq_error *err) {
    (void)err;
    pool_job *job = context;
    while (job->n_taken < N_ITEMS) {
        const int item = job->backwards ? N_ITEMS - 1 - job->n_taken : job->n_taken;
        job->n_taken++;
        if ((uint64_t)item >= limit)
            continue;
        *order = (uint64_t)item;
        job->taken_by[worker] = item;
        return true;
    }
    return false;
}

static void sleep_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

static fq_status carry_out(void *context, uint32_t worker, fq_error *err) {
    pool_job *job = context;
    const int item = job->taken_by[worker];
    __atomic_fetch_add(&job->n_times[item], 1, __ATOMIC_RELAXED);
    if (item == job->cancel_at)
        __atomic_store_n(&job->cancelled, 1, __ATOMIC_RELAXED);
    // Others wait for it, so that no machine is so slow that there is nothing left to cancel.
    while (job->cancel_at >= 0 && item > job->cancel_at &&
           !__atomic_load_n(&job->cancelled, __ATOMIC_RELAXED))
        sleep_a_little();
    if (item != job->fails[0] && item != job->fails[1])
        return FQ_OK;
    // The earlier of two failing items ends later: its error must be returned all the same.
    if (item == job->fails[0])
        sleep_a_little();
    return fq_fail(err, job->status, "item %d", item);
}

static const fq_pool_work work = {.take = take, .carry_out = carry_out};

static int n_done_once(const pool_job *job, int end) {
    int n = 0;
    for (int i = 0; i < end; i++)
        n += job->n_times[i] == 1;
    return n;
}

static void test_all_once(uint32_t n_workers) {
    pool_job job = no_trouble;
    fq_error err = {0};
    CHECK(fq_pool_run(&work, &job, n_workers, NULL, &err) == FQ_OK);
    CHECK_U64(n_done_once(&job, N_ITEMS), N_ITEMS);
}

static void test_first_fault(uint32_t n_workers, bool backwards) {
    pool_job job = no_trouble;
    job.backwards = backwards;
    job.fails[0] = 37;
    job.fails[1] = 39;
    job.status = FQ_BAD_INPUT;
    fq_error err = {0};
    CHECK(fq_pool_run(&work, &job, n_workers, NULL, &err) == FQ_BAD_INPUT);
    CHECK_STR(err.text, "item 37");
    CHECK_U64(n_done_once(&job, 38), 38);
}

// One worker: of several, the others may be quick.
static void test_other_errors_stop(void) {
    pool_job job = no_trouble;
    job.backwards = true;
    job.fails[0] = N_ITEMS - 5;
    job.status = FQ_IO;
    fq_error err = {0};
    CHECK(fq_pool_run(&work, &job, 1, NULL, &err) == FQ_IO);
    CHECK_STR(err.text, "item 995");
    CHECK_U64(n_done_once(&job, N_ITEMS - 5), 0);
}

static void test_cancel(uint32_t n_workers) {
    pool_job job = no_trouble;
    job.cancel_at = 10;
    fq_error err = {0};
    CHECK(fq_pool_run(&work, &job, n_workers, &job.cancelled, &err) == FQ_CANCELLED);
    CHECK_U64(job.n_times[N_ITEMS - 1], 0);
}

int main(void) {
    test_other_errors_stop();
    for (uint32_t n_workers = 1; n_workers <= MAX_WORKERS; n_workers *= 2) {
        test_all_once(n_workers);
        test_first_fault(n_workers, false);
        test_first_fault(n_workers, true);
        test_cancel(n_workers);
    }
    return check_result();
}
