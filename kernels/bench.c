// Finds the benchmark of a device.
#include "kernels/bench.h"

#include "kernels/cpu/bench.h"
#include "kernels/cuda/bench.h"
#include "kernels/kernels.h"

fq_status fq_bench_measure(fq_bench_figures *out, const char *device, const fq_bench_job *job,
                           fq_error *err) {
    // "auto" takes a GPU where there is one: what is asked is how fast it is.
    const fq_device_work work = {.nbytes = UINT64_MAX, .n_threads = 1};
    fq_device_choice choice;
    const fq_status status = fq_device_choose(&choice, device, &work, err);
    if (status)
        return status;
    return choice.n_gpus > 0 ? fq_cuda_bench(out, choice.gpus[0], job, err)
                             : fq_cpu_bench(out, job, err);
}
