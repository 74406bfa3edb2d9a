// Sets of activations are made once, shared, and dropped when they are idle and there is no room:
// else a model of many widths would fill the memory, or wait for its activations again and again.
#include "kernels/kernels.h"
#include "lib/activation_sets.h"
#include "lib/band.h"
#include "tests/check.h"

#include <stdlib.h>

// A GEMM that counts what it is given. It is the only one at work.
static uint32_t n_loaded, n_unloaded;
static bool fails;

struct fq_gemm_operand {
    uint64_t cols;
};

static fq_status load(fq_gemm_operand **out, fq_device *device,
                      const fq_gemm_activations *activations, fq_error *err) {
    (void)device;
    if (fails)
        return fq_fail(err, FQ_DEVICE, "no room on the device");
    *out = malloc(sizeof **out);
    (*out)->cols = activations->cols;
    n_loaded++;
    return FQ_OK;
}

static void unload(fq_device *device, fq_gemm_operand *activations) {
    (void)device;
    free(activations);
    n_unloaded++;
}

static const fq_gemm gemm = {.load = load, .unload = unload};
static const fq_activations_options options = {.kind = FQ_ACTIVATIONS_NORMAL, .tokens = 2};

enum { SET_NBYTES = 2 * 100 * 6 }; // of 100 columns

static fq_activations_place open_place(void) {
    const fq_device_options of_device = {.n_lanes = 1,
                                         .max_elements = FQ_MIN_BAND_ELEMENTS,
                                         .max_blocks = fq_band_max_blocks(FQ_MIN_BAND_ELEMENTS)};
    fq_activations_place place = {.lane = 0};
    fq_device_choice cpu = {0};
    fq_error err = {0};
    CHECK(fq_device_choose(&cpu, "cpu", NULL, &err) == FQ_OK);
    place.backend = cpu.backend;
    CHECK(place.backend->open(&place.device, &of_device, &err) == FQ_OK);
    n_loaded = n_unloaded = 0;
    return place;
}

static const fq_activation_set *take(fq_activation_sets *sets, const fq_activations_place *place,
                                     uint64_t cols, bool pow2) {
    const fq_activations_key key = {.cols = cols, .pow2_scales = pow2};
    const fq_activation_set *set = NULL;
    fq_error err = {0};
    CHECK(fq_activation_sets_take(&set, sets, &key, place, &err) == FQ_OK);
    CHECK_U64(set->operand->cols, cols);
    CHECK_U64(set->tokens, 2);
    return set;
}

static void test_shared(void) {
    fq_activations_place place = open_place();
    fq_activation_sets *sets = NULL;
    fq_error err = {0};
    CHECK(fq_activation_sets_open(&sets, &gemm, &options, SIZE_MAX / 2, &err) == FQ_OK);
    const fq_activation_set *first = take(sets, &place, 100, false);
    const fq_activation_set *pow2 = take(sets, &place, 100, true);
    const fq_activation_set *wide = take(sets, &place, 101, false);
    CHECK(first != pow2 && first != wide);
    CHECK(take(sets, &place, 100, false) == first);
    CHECK(take(sets, &place, 100, true) == pow2);
    CHECK_U64(n_loaded, 3);
    CHECK_U64(n_unloaded, 0);
    fq_activation_sets_close(sets, place.device);
    CHECK_U64(n_unloaded, 3);
    place.backend->close(place.device);
}

// Room for two: the one that is idle and was not used for longest goes.
static void test_room(void) {
    fq_activations_place place = open_place();
    fq_activation_sets *sets = NULL;
    fq_error err = {0};
    CHECK(fq_activation_sets_open(&sets, &gemm, &options, 2 * SET_NBYTES + 100, &err) == FQ_OK);
    fq_activation_sets_give_back(sets, take(sets, &place, 98, false));
    fq_activation_sets_give_back(sets, take(sets, &place, 99, false));
    fq_activation_sets_give_back(sets, take(sets, &place, 98, false));
    const fq_activation_set *used = take(sets, &place, 100, false); // in the place of 99
    CHECK_U64(n_unloaded, 1);
    fq_activation_sets_give_back(sets, take(sets, &place, 98, false));
    CHECK_U64(n_loaded, 3);
    const fq_activation_set *too = take(sets, &place, 97, false); // in the place of 98
    CHECK_U64(n_unloaded, 2);
    take(sets, &place, 96, false); // both others are in use: there must be room
    CHECK_U64(n_unloaded, 2);
    CHECK_U64(used->operand->cols, 100);
    CHECK_U64(too->operand->cols, 97);
    fq_activation_sets_close(sets, place.device);
    CHECK_U64(n_unloaded, 5);
    place.backend->close(place.device);
}

static void test_failure(void) {
    fq_activations_place place = open_place();
    fq_activation_sets *sets = NULL;
    const fq_activation_set *set = NULL;
    const fq_activations_key key = {.cols = 100};
    fq_error err = {0};
    CHECK(fq_activation_sets_open(&sets, &gemm, &options, 0, &err) == FQ_OK);
    fails = true;
    CHECK(fq_activation_sets_take(&set, sets, &key, &place, &err) == FQ_DEVICE);
    fails = false;
    CHECK(fq_activation_sets_take(&set, sets, &key, &place, &err) == FQ_OK);
    fq_activation_sets_close(sets, place.device);
    CHECK_U64(n_unloaded, 1);
    fq_activation_sets_close(NULL, place.device);
    place.backend->close(place.device);
}

int main(void) {
    test_shared();
    test_room();
    test_failure();
    return check_result();
}
