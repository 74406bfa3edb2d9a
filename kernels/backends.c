// Which backend and GPUs a run uses: what --device names, or what is done sooner.
#include "kernels/kernels.h"

#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char cuda_prefix[] = "cuda:";

// Seconds that making a context takes. FP8Q_CUDA_CONTEXT_SECONDS says otherwise, for tests.
static double context_seconds(void) {
    const double measured = 0.3;
    const char *text = getenv("FP8Q_CUDA_CONTEXT_SECONDS");
    return text ? strtod(text, NULL) : measured;
}

static double least(double a, double b) { return a < b ? a : b; }

// How long the work is likely to take with so many GPUs; 0: on the CPU. A thread reads, computes
// and writes; with a GPU it only reads and writes. Besides, there is what a file and the bus of a
// GPU let through.
static double estimate_seconds(const fq_device_work *work, uint32_t n_gpus) {
    // Bytes read and written in a second, as measured in memory, the fastest place for files.
    const double thread_with_cpu = 3e9, thread_with_gpu = 4e9, file = 3.5e9, bus = 75e9;
    const double n_threads = (double)work->n_threads;
    double rate = n_threads * (n_gpus > 0 ? thread_with_gpu : thread_with_cpu);
    if (work->n_files > 0)
        rate = least(rate, least(n_threads, (double)work->n_files) * file);
    if (n_gpus > 0)
        rate = least(rate, n_gpus * bus);
    // Products in a second, of which there are three for each; a GPU does them while files are
    // read.
    const double thread_products = 7e9;
    const double products = n_gpus > 0 ? 0 : work->n_products / (n_threads * thread_products);
    return (double)work->nbytes / rate + products + n_gpus * context_seconds();
}

// The number of GPUs, n_max at most, with which the work is done soonest; 0: the CPU.
static uint32_t choose_n_gpus(const fq_device_work *work, uint32_t n_max) {
    uint32_t best = 0;
    if (work->nbytes == 0 && work->n_products == 0)
        return 0;
    for (uint32_t n = 1; n <= n_max; n++) {
        if (estimate_seconds(work, n) < estimate_seconds(work, best))
            best = n;
    }
    return best;
}

static void choose_cpu(fq_device_choice *out) {
    *out = (fq_device_choice){.backend = &fq_cpu_backend};
}

// The first n GPUs.
static void choose_gpus(fq_device_choice *out, const fq_backend *cuda, uint32_t n) {
    *out = (fq_device_choice){.backend = cuda};
    for (; out->n_gpus < n && out->n_gpus < FQ_MAX_GPUS; out->n_gpus++)
        out->gpus[out->n_gpus] = out->n_gpus;
}

static bool has_gpu(const fq_device_choice *choice, uint64_t ordinal) {
    for (uint32_t i = 0; i < choice->n_gpus; i++) {
        if (choice->gpus[i] == ordinal)
            return true;
    }
    return false;
}

static fq_status fail_name(const char *device, fq_error *err) {
    return fq_fail(err, FQ_USAGE,
                   "--device %s: no such device; use auto, cpu, cuda or cuda:N[,M...]", device);
}

// Reads "cuda:0,1". Any ordinals will do that are numbers, and named once.
static fq_status parse_gpus(fq_device_choice *out, const char *device, fq_error *err) {
    const char *at = device + strlen(cuda_prefix);
    *out = (fq_device_choice){0};
    for (;;) {
        char *end = NULL;
        if (*at < '0' || *at > '9')
            return fail_name(device, err);
        const uint64_t ordinal = strtoull(at, &end, 10);
        if (*end != ',' && *end != '\0')
            return fail_name(device, err);
        if (has_gpu(out, ordinal))
            return fq_fail(err, FQ_USAGE,
                           "--device %s: GPU %" PRIu64 " is named twice; name it once", device,
                           ordinal);
        if (out->n_gpus == FQ_MAX_GPUS || ordinal > UINT32_MAX)
            return fq_fail(err, FQ_USAGE, "--device %s: GPUs beyond the first %d; leave them out",
                           device, FQ_MAX_GPUS);
        out->gpus[out->n_gpus++] = (uint32_t)ordinal;
        if (*end == '\0')
            return FQ_OK;
        at = end + 1;
    }
}

static fq_status check_ordinals(const fq_device_choice *choice, const char *device, uint32_t n,
                                fq_error *err) {
    for (uint32_t i = 0; i < choice->n_gpus; i++) {
        if (choice->gpus[i] >= n)
            return fq_fail(err, FQ_DEVICE,
                           "--device %s: there is no GPU %u, for this machine has %u, counted from "
                           "0; use --device cuda for all, or --device cpu",
                           device, (unsigned)choice->gpus[i], (unsigned)n);
    }
    return FQ_OK;
}

// "cuda", or "cuda:" and a list.
static fq_status choose_cuda(fq_device_choice *out, const char *device, fq_error *err) {
    const bool listed = strncmp(device, cuda_prefix, strlen(cuda_prefix)) == 0;
    const fq_backend *cuda = NULL;
    uint32_t n = 0;
    fq_error why_not = {0};
    fq_status status = listed ? parse_gpus(out, device, err) : FQ_OK;
    if (status)
        return status;
    if (fq_cuda_find(&cuda, &n, &why_not) != FQ_OK)
        return fq_fail(err, FQ_DEVICE, "--device %s: %s; use --device cpu", device, why_not.text);
    if (listed)
        status = check_ordinals(out, device, n, err);
    else
        choose_gpus(out, cuda, n);
    out->backend = cuda;
    return status;
}

static void choose_auto(fq_device_choice *out, const fq_device_work *work) {
    const fq_backend *cuda = NULL;
    uint32_t n = 0;
    fq_error ignored = {0};
    if (choose_n_gpus(work, FQ_MAX_GPUS) > 0 && fq_cuda_find(&cuda, &n, &ignored) == FQ_OK)
        n = choose_n_gpus(work, n < FQ_MAX_GPUS ? n : FQ_MAX_GPUS);
    if (n > 0)
        choose_gpus(out, cuda, n);
    else
        choose_cpu(out);
}

fq_status fq_device_choose(fq_device_choice *out, const char *device, const fq_device_work *work,
                           fq_error *err) {
    if (strcmp(device, "cuda") == 0 || strncmp(device, cuda_prefix, strlen(cuda_prefix)) == 0)
        return choose_cuda(out, device, err);
    if (strcmp(device, "cpu") == 0)
        choose_cpu(out);
    else if (strcmp(device, FQ_DEVICE_AUTO) == 0)
        choose_auto(out, work);
    else
        return fail_name(device, err);
    return FQ_OK;
}

const fq_checker *fq_checker_find(const fq_backend *backend) {
    return backend == &fq_cpu_backend ? &fq_cpu_checker : fq_cuda_checker();
}

const fq_gemm *fq_gemm_find(const fq_backend *backend) {
    return backend == &fq_cpu_backend ? &fq_cpu_gemm : fq_cuda_verify_gemm();
}
