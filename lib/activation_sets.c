// A list of activations on a device, the one that was used last first: see activation_sets.h.
#include "activation_sets.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct entry {
    fq_activation_set set; // first: the two are cast into each other
    fq_activations_key key;
    size_t nbytes;
    uint32_t n_users;
    struct entry *next;
} entry;

struct fq_activation_sets {
    const fq_gemm *gemm;
    const fq_activations_options *options;
    size_t max_nbytes;
    pthread_mutex_t lock; // of what follows; held while a set is made
    entry *first;
    size_t nbytes; // of all
};

fq_status fq_activation_sets_open(fq_activation_sets **out, const fq_gemm *gemm,
                                  const fq_activations_options *options, size_t max_nbytes,
                                  fq_error *err) {
    fq_activation_sets *sets = malloc(sizeof *sets);
    if (!sets)
        return fq_fail_memory(err);
    *sets = (fq_activation_sets){.gemm = gemm, .options = options, .max_nbytes = max_nbytes};
    pthread_mutex_init(&sets->lock, NULL);
    *out = sets;
    return FQ_OK;
}

static bool is_same(const fq_activations_key *a, const fq_activations_key *b) {
    return a->cols == b->cols && a->tensor == b->tensor && a->pow2_scales == b->pow2_scales;
}

// Takes the entry at *link out of the list and frees it.
static void drop(fq_activation_sets *sets, entry **link, fq_device *device) {
    entry *dropped = *link;
    *link = dropped->next;
    sets->nbytes -= dropped->nbytes;
    sets->gemm->unload(device, dropped->set.operand);
    free(dropped);
}

// Drops what was not used for longest until nbytes more fit, or all that is left is in use.
static void make_room(fq_activation_sets *sets, size_t nbytes, fq_device *device) {
    while (sets->nbytes + nbytes > sets->max_nbytes) {
        entry **last_idle = NULL;
        for (entry **link = &sets->first; *link; link = &(*link)->next)
            last_idle = (*link)->n_users == 0 ? link : last_idle;
        if (!last_idle)
            return;
        drop(sets, last_idle, device);
    }
}

static fq_status make(entry **out, fq_activation_sets *sets, const fq_activations_key *key,
                      const fq_activations_place *place, fq_error *err) {
    enum { ELEMENT_NBYTES = 6 }; // a code in FP32 and a value in BF16: what the CPU keeps
    fq_activations made = {.values = NULL};
    entry *fresh = calloc(1, sizeof *fresh);
    fq_status status = fresh ? FQ_OK : fq_fail_memory(err);
    if (!status)
        status = fq_activations_make(&made, sets->options, key, place, err);
    if (!status) {
        const fq_gemm_activations view = fq_activations_view(&made);
        fresh->key = *key;
        fresh->set.tokens = made.tokens;
        fresh->nbytes = made.tokens * made.cols * ELEMENT_NBYTES;
        make_room(sets, fresh->nbytes, place->device);
        status = sets->gemm->load(&fresh->set.operand, place->device, &view, err);
    }
    fq_activations_free(&made);
    if (status) {
        free(fresh);
        return status;
    }
    sets->nbytes += fresh->nbytes;
    *out = fresh;
    return FQ_OK;
}

// Takes the entry of that key out of the list; NULL if there is none.
static entry *take_out(fq_activation_sets *sets, const fq_activations_key *key) {
    for (entry **link = &sets->first; *link; link = &(*link)->next) {
        entry *found = *link;
        if (is_same(&found->key, key)) {
            *link = found->next;
            return found;
        }
    }
    return NULL;
}

fq_status fq_activation_sets_take(const fq_activation_set **out, fq_activation_sets *sets,
                                  const fq_activations_key *key, const fq_activations_place *place,
                                  fq_error *err) {
    fq_status status = FQ_OK;
    pthread_mutex_lock(&sets->lock);
    entry *taken = take_out(sets, key);
    if (!taken)
        status = make(&taken, sets, key, place, err);
    if (!status) {
        taken->n_users++;
        taken->next = sets->first;
        sets->first = taken;
        *out = &taken->set;
    }
    pthread_mutex_unlock(&sets->lock);
    return status;
}

void fq_activation_sets_give_back(fq_activation_sets *sets, const fq_activation_set *set) {
    pthread_mutex_lock(&sets->lock);
    ((entry *)(uintptr_t)set)->n_users--;
    pthread_mutex_unlock(&sets->lock);
}

void fq_activation_sets_close(fq_activation_sets *sets, fq_device *device) {
    if (!sets)
        return;
    while (sets->first)
        drop(sets, &sets->first, device);
    pthread_mutex_destroy(&sets->lock);
    free(sets);
}
