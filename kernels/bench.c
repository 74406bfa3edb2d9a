// Finds the benchmarks of a device.
#include "kernels/bench.h"

#include "kernels/bench_gemm.h"
#include "kernels/cpu/bench.h"
#include "kernels/cuda/bench/bench.h"
#include "kernels/kernels.h"

#include <math.h>

// "auto" takes a GPU where there is one: what is asked is how fast it is.
static fq_status choose(fq_device_choice *out, const char *device, fq_error *err) {
    const fq_device_work work = {.nbytes = UINT64_MAX, .n_threads = 1};
    return fq_device_choose(out, device, &work, err);
}

fq_status fq_bench_measure(fq_bench_figures *out, const char *device, const fq_bench_job *job,
                           fq_error *err) {
    fq_device_choice choice;
    const fq_status status = choose(&choice, device, err);
    if (status)
        return status;
    return choice.n_gpus > 0 ? fq_cuda_bench(out, choice.gpus[0], job, err)
                             : fq_cpu_bench(out, job, err);
}

fq_status fq_bench_gemm_measure(fq_bench_gemm_figures *out, const char *device,
                                const fq_bench_gemm_job *job, fq_error *err) {
    fq_device_choice choice;
    const fq_status status = choose(&choice, device, err);
    if (status)
        return status;
    if (choice.n_gpus > 0)
        return fq_cuda_bench_gemm(out, choice.gpus[0], job, err);
    if (job->grouping != FQ_BENCH_DENSE)
        return fq_fail(err, FQ_USAGE,
                       "bench: groups are multiplied on GPUs alone; use --grouping dense");
    return fq_cpu_bench_gemm(out, job, err);
}

fq_status fq_bench_gemm_peak(double *out, const char *device, fq_error *err) {
    fq_device_choice choice;
    const fq_status status = choose(&choice, device, err);
    *out = (double)NAN;
    if (status || choice.n_gpus == 0)
        return status;
    return fq_cuda_bench_gemm_peak(out, choice.gpus[0], err);
}
