// Which device a --device means on machines of all kinds: without a driver, with an old one,
// without a GPU, with several. A run must use what was asked for, or say why it cannot.
#include "fake_cuda.h"
#include "kernels/kernels.h"
#include "tests/check.h"

#include <stdlib.h>

static const fq_device_work little = {.nbytes = 1 << 20, .n_threads = 2, .n_files = 4};
static const fq_device_work much = {.nbytes = (uint64_t)1 << 40, .n_threads = 2, .n_files = 4};

static void set_machine(int n_gpus, int driver) {
    const fake_settings settings = {.n_gpus = n_gpus, .driver = driver};
    fake_reset(&settings);
}

static void check_refused(const char *device, fq_status status, const char *why) {
    fq_device_choice choice;
    fq_error err = {0};
    CHECK(fq_device_choose(&choice, device, &much, &err) == status);
    CHECK_HAS(err.text, device);
    CHECK_HAS(err.text, why);
}

static void check_choice(const char *device, const fq_device_work *work, const char *backend,
                         uint32_t n_gpus, uint32_t first) {
    fq_device_choice choice;
    fq_error err = {0};
    if (!CHECK(fq_device_choose(&choice, device, work, &err) == FQ_OK)) {
        CHECK_NOTE("%s\n", err.text);
        return;
    }
    CHECK_STR(choice.backend->name, backend);
    CHECK_U64(choice.n_gpus, n_gpus);
    CHECK(n_gpus == 0 || choice.gpus[0] == first);
}

static void test_no_gpu(int n_gpus, int driver, const char *why) {
    set_machine(n_gpus, driver);
    check_refused("cuda", FQ_DEVICE, why);
    check_refused("cuda:0", FQ_DEVICE, why);
    check_refused("cuda", FQ_DEVICE, "use --device cpu");
    check_choice("auto", &much, "cpu", 0, 0);
    check_choice("cpu", &much, "cpu", 0, 0);
}

static void test_lists(void) {
    set_machine(3, 13000);
    check_choice("cuda", NULL, "cuda", 3, 0);
    check_choice("cuda:2", NULL, "cuda", 1, 2);
    check_choice("cuda:1,0", NULL, "cuda", 2, 1);
    check_choice("cuda:2,1,0", NULL, "cuda", 3, 2);
    check_refused("cuda:3", FQ_DEVICE, "there is no GPU 3");
    check_refused("cuda:0,7", FQ_DEVICE, "has 3, counted from 0");
    check_refused("cuda:1,0,1", FQ_USAGE, "GPU 1 is named twice");
    const char *wrong[] = {"cuda:",   "cuda:,",   "cuda:0,", "cuda:,0", "cuda:-1", "cuda: 1",
                           "cuda:1x", "cuda:0;1", "cudax",   "cuda0",   "gpu",     ""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_refused(wrong[i], FQ_USAGE, "no such device");
    check_refused("cuda:4294967296", FQ_USAGE, "leave them out");
    check_refused("cuda:99999999999999999999999", FQ_USAGE, "leave them out");
}

static void test_auto(void) {
    set_machine(3, 13000);
    check_choice("auto", &much, "cuda", 1, 0);
    const uint64_t n_calls = fake_n_calls();
    check_choice("auto", &little, "cpu", 0, 0);
    CHECK_U64(fake_n_calls(), n_calls); // a little work is not worth looking for a GPU
    // 8.6 GB of weights, quantized by eight threads: measured to take as long without a GPU.
    const fq_device_work model = {.nbytes = 12900000000, .n_threads = 8, .n_files = 4};
    check_choice("auto", &model, "cpu", 0, 0);
    CHECK_U64(fake_n_calls(), n_calls);
    // So many threads want more than the bus of one GPU gives, but not more than two do.
    const fq_device_work wide = {.nbytes = (uint64_t)1 << 40, .n_threads = 32, .n_files = 32};
    check_choice("auto", &wide, "cuda", 2, 0);
    // To multiply them with 128 tokens takes the CPU seconds, but with one no longer than a
    // context.
    const fq_device_work products = {
        .nbytes = 12900000000, .n_products = 4.3e9 * 128, .n_threads = 8};
    check_choice("auto", &products, "cuda", 1, 0);
    const fq_device_work few = {.nbytes = 12900000000, .n_products = 4.3e9, .n_threads = 8};
    check_choice("auto", &few, "cpu", 0, 0);
    setenv("FP8Q_CUDA_CONTEXT_SECONDS", "-1", 1);
    check_choice("auto", &little, "cuda", 3, 0);
    setenv("FP8Q_CUDA_CONTEXT_SECONDS", "1e9", 1);
    check_choice("auto", &much, "cpu", 0, 0);
    unsetenv("FP8Q_CUDA_CONTEXT_SECONDS");
}

int main(void) {
    test_no_gpu(0, 13000, "there is no GPU");
    test_no_gpu(1, 0, "there is no NVIDIA driver");
    test_no_gpu(1, 11080, "the NVIDIA driver knows CUDA up to 11.8, this build needs 13.0");
    test_lists();
    test_auto();
    return check_result();
}
