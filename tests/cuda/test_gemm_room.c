// Groups of strips take what memory they may, and no more: where a group is larger it is launched
// in as few parts as there is room for, each strip once, and where there is next to none its strips
// are multiplied by themselves. The runtime without a GPU counts the launches.
#include "fake_cuda.h"
#include "kernels/cuda/backend.h"
#include "tests/check.h"

enum { TOKENS = 2, ROWS = 128, COLS = 256, MAX_LANES = 4 };

// Of a strip, as group.h has it: codes, scales, three products, sums, and the rows of A.
enum { PLACE_NBYTES = ROWS * COLS + 2 * 4 + ROWS * TOKENS * (8 + 8 + 4) + ROWS * 40 + 4 };

static uint16_t values[TOKENS * COLS];
static uint8_t x_codes[TOKENS * COLS], codes[ROWS * COLS];
static float x_scales[TOKENS * 2] = {1.0f, 1.0f, 1.0f, 1.0f}, scales[2] = {1.0f, 1.0f};

typedef struct use {
    const fq_backend *cuda;
    const fq_gemm *gemm;
    fq_device *device;
    fq_gemm_operand *x;
    uint32_t n_taken;
    fake_gemms before;
} use;

// n_places: that a group may have on a GPU.
static use open_use(int n_gpus, uint32_t n_lanes, uint64_t n_places) {
    static const uint32_t gpus[] = {0, 1};
    const uint64_t of_group = n_places * PLACE_NBYTES + PLACE_NBYTES / 2;
    const uint64_t of_lanes = (uint64_t)1 << 16; // less, but not much beside a place
    const fake_settings settings = {
        .n_gpus = n_gpus, .driver = 13000, .memory_nbytes = 16 * of_group + of_lanes};
    const fq_device_options options = {.n_lanes = n_lanes,
                                       .max_elements = 1,
                                       .max_blocks = 1,
                                       .for_checks = true,
                                       .gpus = gpus,
                                       .n_gpus = (uint32_t)n_gpus};
    const fq_gemm_activations activations = {
        .tokens = TOKENS, .cols = COLS, .values = values, .codes = x_codes, .scales = x_scales};
    use u = {.gemm = fq_cuda_verify_gemm(), .before = fake_count_gemms()};
    uint32_t n = 0;
    fq_error err = {0};
    fake_reset(&settings);
    CHECK(fq_cuda_find(&u.cuda, &n, &err) == FQ_OK);
    CHECK(u.cuda->open(&u.device, &options, &err) == FQ_OK);
    CHECK(u.gemm->load(&u.x, u.device, &activations, &err) == FQ_OK);
    return u;
}

static void close_use(use *u) {
    u->gemm->unload(u->device, u->x);
    u->cuda->close(u->device);
    CHECK_STR(fake_misuse(), "");
    CHECK_U64(fake_n_alive(), 0);
}

static uint64_t n_masked(const use *u) { return fake_count_gemms().n_masked - u->before.n_masked; }
static uint64_t n_groups(const use *u) { return fake_count_gemms().n_groups - u->before.n_groups; }

static void take(void *taker, const fq_gemm_sums *sums, uint64_t rows) {
    use *u = taker;
    u->n_taken++;
    CHECK_U64(rows, ROWS);
    CHECK_U64(sums[ROWS - 1].n, TOKENS);
}

static fq_gemm_group *open_group(use *u, uint64_t n_strips) {
    const fq_gemm_group_options options = {
        .activations = u->x, .rows = ROWS, .n_strips = n_strips, .take = take};
    fq_gemm_group *group = NULL;
    fq_error err = {0};
    CHECK(u->gemm->open_group(&group, u->device, &options, &err) == FQ_OK);
    return group;
}

static void begin(use *u, uint32_t lane, fq_gemm_group *group) {
    const fq_gemm_strip strip = {.activations = u->x, .rows = ROWS, .group = group, .taker = u};
    const fq_gemm_piece piece = {.rows = ROWS, .cols = COLS, .codes = codes, .scales = scales};
    fq_error err = {0};
    CHECK(u->gemm->begin(u->device, lane, &strip, &err) == FQ_OK);
    CHECK(u->gemm->add(u->device, lane, &piece, &err) == FQ_OK);
    CHECK(u->cuda->wait(u->device, lane, &err) == FQ_OK);
}

static void end(use *u, uint32_t lane) {
    fq_error err = {0};
    CHECK(u->gemm->end(u->device, lane, NULL, &err) == FQ_OK);
}

static void launch(use *u, fq_gemm_group *group) {
    fq_error err = {0};
    CHECK(u->gemm->launch(u->device, group, &err) == FQ_OK);
}

// Strips one after the other, in turns on all lanes.
static void multiply(use *u, fq_gemm_group *group, uint32_t n_strips, uint32_t n_lanes) {
    for (uint32_t i = 0; i < n_strips; i++) {
        begin(u, i % n_lanes, group);
        end(u, i % n_lanes);
    }
}

static void test_enough(void) {
    use u = open_use(1, 3, 20);
    fq_gemm_group *group = open_group(&u, 20);
    multiply(&u, group, 20, 3);
    CHECK_U64(n_masked(&u), 0);
    launch(&u, group);
    CHECK_U64(n_masked(&u), 1);
    CHECK_U64(n_groups(&u), 20);
    CHECK_U64(u.n_taken, 20);
    u.gemm->close_group(u.device, group);
    close_use(&u);
}

// A launch on each GPU, of the strips of its lanes.
static void test_two_gpus(void) {
    use u = open_use(2, 4, 20);
    fq_gemm_group *group = open_group(&u, 20);
    multiply(&u, group, 20, 4);
    const uint64_t before[2] = {fake_n_kernels(0), fake_n_kernels(1)};
    launch(&u, group);
    CHECK_U64(n_masked(&u), 2);
    CHECK_U64(n_groups(&u), 20);
    CHECK_U64(fake_n_kernels(0) - before[0], 2); // the GEMM, and its sums
    CHECK_U64(fake_n_kernels(1) - before[1], 2);
    CHECK_U64(u.n_taken, 20);
    u.gemm->close_group(u.device, group);
    close_use(&u);
}

// 20 strips in 8 places: the 9th and the 17th find none.
static void test_less(void) {
    use u = open_use(1, 3, 8);
    fq_gemm_group *group = open_group(&u, 20);
    multiply(&u, group, 20, 3);
    CHECK_U64(n_masked(&u), 2);
    CHECK_U64(u.n_taken, 16);
    launch(&u, group);
    CHECK_U64(n_masked(&u), 3);
    CHECK_U64(n_groups(&u), 20);
    CHECK_U64(u.n_taken, 20);
    u.gemm->close_group(u.device, group);
    close_use(&u);
}

// What a lane is still at work on is left for a later launch.
static void test_under_way(void) {
    use u = open_use(1, 3, 8);
    fq_gemm_group *group = open_group(&u, 20);
    begin(&u, 0, group);
    begin(&u, 1, group);
    for (uint32_t i = 0; i < 7; i++) {
        begin(&u, 2, group);
        end(&u, 2);
    }
    CHECK_U64(n_masked(&u), 1);
    CHECK_U64(n_groups(&u), 6);
    CHECK_U64(u.n_taken, 6);
    end(&u, 1);
    end(&u, 0);
    launch(&u, group);
    CHECK_U64(n_groups(&u), 9);
    CHECK_U64(u.n_taken, 9);
    u.gemm->close_group(u.device, group);
    close_use(&u);
}

// As many places as lanes would be too few, but for as many strips.
static void test_too_little(void) {
    use u = open_use(1, 3, 3);
    CHECK(open_group(&u, 20) == NULL);
    fq_gemm_group *group = open_group(&u, 3);
    multiply(&u, group, 3, 3);
    launch(&u, group);
    CHECK_U64(n_masked(&u), 1);
    CHECK_U64(u.n_taken, 3);
    u.gemm->close_group(u.device, group);
    launch(&u, NULL);
    u.gemm->close_group(u.device, NULL);
    close_use(&u);
}

// Four groups at one time; the room of one that is closed is another's.
static void test_many_groups(void) {
    use u = open_use(1, 3, 8);
    fq_gemm_group *groups[4];
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            groups[i] = open_group(&u, 20);
            CHECK(groups[i] != NULL);
        }
        CHECK(open_group(&u, 20) == NULL);
        multiply(&u, groups[round], 8, 3);
        launch(&u, groups[round]);
        CHECK_U64(u.n_taken, 8 * (round + 1));
        for (uint32_t i = 0; i < 4; i++)
            u.gemm->close_group(u.device, groups[i]);
    }
    CHECK_U64(n_masked(&u), 3);
    close_use(&u);
}

// A strip that an error ended leaves its place when the lane begins another, in whatever group; or
// with its group.
static void test_left(void) {
    use u = open_use(1, 3, 8);
    fq_gemm_group *first = open_group(&u, 20), *second = open_group(&u, 20);
    begin(&u, 0, first);
    begin(&u, 0, second);
    end(&u, 0);
    multiply(&u, first, 8, 3);
    CHECK_U64(n_masked(&u), 0);
    begin(&u, 1, second);
    u.gemm->close_group(u.device, second);
    begin(&u, 1, first); // the 9th
    CHECK_U64(n_masked(&u), 1);
    CHECK_U64(u.n_taken, 8);
    u.gemm->close_group(u.device, first);
    close_use(&u);
}

int main(void) {
    test_enough();
    test_two_gpus();
    test_less();
    test_under_way();
    test_too_little();
    test_many_groups();
    test_left();
    return check_result();
}
