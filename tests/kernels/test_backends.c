// Which backend and variant a name gives, and that a wrong one is refused with the choices: a run
// must never compute on something other than what was asked for.
#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"
#include "tests/check.h"

#include <stdlib.h>

static void test_names(void) {
    const fq_device_work little = {.nbytes = 1, .n_threads = 1, .n_files = 1};
    fq_device_choice choice = {0};
    fq_error err = {0};
    CHECK(fq_device_choose(&choice, "cpu", &little, &err) == FQ_OK);
    CHECK_STR(choice.backend->name, "cpu");
    choice.backend = NULL;
    CHECK(fq_device_choose(&choice, "auto", &little, &err) == FQ_OK);
    CHECK_STR(choice.backend->name, "cpu");              // no context is worth a byte
    const char *cuda[] = {"cuda", "cuda:0", "cuda:0,1"}; // not every build or machine has it
    for (size_t i = 0; i < sizeof cuda / sizeof cuda[0]; i++) {
        if (fq_device_choose(&choice, cuda[i], &little, &err) != FQ_OK) {
            CHECK_U64(err.status, FQ_DEVICE);
            CHECK_HAS(err.text, "--device cpu");
        }
    }
    const char *wrong[] = {"", "gpu", "cpu:0", "cpux", "CPU", "cudax"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(fq_device_choose(&choice, wrong[i], &little, &err) == FQ_USAGE);
        CHECK_HAS(err.text, "auto, cpu");
    }
}

static void test_variants(const fq_backend *cpu) {
    const fq_device_options options = {.n_lanes = 1, .max_elements = 1, .max_blocks = 1};
    const fq_cpu_variant *variants[FQ_CPU_MAX_VARIANTS];
    const size_t n = fq_cpu_variants(variants);
    fq_error err = {0};
    fq_device *device = NULL;
    CHECK_STR(variants[n - 1]->name, "plain");
    for (size_t i = 0; i < n; i++) {
        setenv("FP8Q_CPU", variants[i]->name, 1);
        CHECK(cpu->open(&device, &options, &err) == FQ_OK);
        CHECK_STR(cpu->describe(device), variants[i]->title);
        cpu->close(device);
    }
    unsetenv("FP8Q_CPU");
    CHECK(cpu->open(&device, &options, &err) == FQ_OK);
    CHECK_STR(cpu->describe(device), variants[0]->title);
    cpu->close(device);
    cpu->close(NULL);

    setenv("FP8Q_CPU", "sse9", 1);
    device = NULL;
    CHECK(cpu->open(&device, &options, &err) == FQ_USAGE);
    CHECK(!device);
    CHECK_HAS(err.text, "FP8Q_CPU=sse9");
    CHECK_HAS(err.text, "plain");
    unsetenv("FP8Q_CPU");
}

static void test_memory(const fq_backend *cpu) {
    const fq_device_options options = {.n_lanes = 1, .max_elements = 1, .max_blocks = 1};
    const size_t sizes[] = {1, 100, 4096, (2u << 20) - 1, 2u << 20, (5u << 20) + 3};
    fq_error err = {0};
    fq_device *device = NULL;
    CHECK(cpu->open(&device, &options, &err) == FQ_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *memory = cpu->host_alloc(device, sizes[i]);
        if (!CHECK(memory))
            continue;
        CHECK((uintptr_t)memory % 64 == 0);
        memory[0] = memory[sizes[i] - 1] = 1;
        cpu->host_free(device, memory, sizes[i]);
    }
    cpu->host_free(device, NULL, 0);
    cpu->close(device);
}

int main(void) {
    fq_device_choice cpu = {0};
    fq_error err = {0};
    test_names();
    CHECK(fq_device_choose(&cpu, "cpu", NULL, &err) == FQ_OK);
    test_variants(cpu.backend);
    test_memory(cpu.backend);
    return check_result();
}
