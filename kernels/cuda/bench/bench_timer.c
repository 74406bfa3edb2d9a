// Times work on a GPU by events: see bench_timer.h.
#include "kernels/cuda/bench/bench_timer.h"

#include "kernels/bench.h"

#include <stdlib.h>
#include <time.h>

enum { SCRATCH_NBYTES = 256 << 20 };

fq_status fq_cuda_timer_check(const fq_cuda_timer *timer, const char *call, unsigned code,
                              fq_error *err) {
    return fq_gpu_check(timer->gpu, call, code, err);
}

fq_status fq_cuda_timer_open(fq_cuda_timer *out, char *name, uint32_t gpu, fq_error *err) {
    *out = (fq_cuda_timer){.gpu = gpu};
    fq_status status = fq_gpu_use(gpu, err);
    if (!status)
        status = fq_gpu_name(name, gpu, err);
    if (!status)
        status = fq_gpu_check(gpu, "cudaStreamCreate",
                              cudaStreamCreateWithFlags(&out->stream, cudaStreamNonBlocking), err);
    if (!status)
        status = fq_gpu_check(gpu, "cudaEventCreate", cudaEventCreate(&out->begin), err);
    if (!status)
        status = fq_gpu_check(gpu, "cudaEventCreate", cudaEventCreate(&out->end), err);
    if (!status)
        status = fq_gpu_check(gpu, "cudaMalloc", cudaMalloc(&out->scratch, SCRATCH_NBYTES), err);
    return status;
}

void fq_cuda_timer_close(fq_cuda_timer *timer) {
    (void)cudaFree(timer->scratch);
    if (timer->end)
        (void)cudaEventDestroy(timer->end);
    if (timer->begin)
        (void)cudaEventDestroy(timer->begin);
    if (timer->stream)
        (void)cudaStreamDestroy(timer->stream);
}

// Seconds between the two events, once the second is past.
static fq_status read_clock(double *out, const fq_cuda_timer *timer, fq_error *err) {
    float milliseconds = 0;
    fq_status status =
        fq_gpu_check(timer->gpu, "cudaEventSynchronize", cudaEventSynchronize(timer->end), err);
    if (!status)
        status = fq_gpu_check(timer->gpu, "cudaEventElapsedTime",
                              cudaEventElapsedTime(&milliseconds, timer->begin, timer->end), err);
    *out = 1e-3 * (double)milliseconds;
    return status;
}

static fq_status record(const fq_cuda_timer *timer, cudaEvent_t event, fq_error *err) {
    return fq_gpu_check(timer->gpu, "cudaEventRecord", cudaEventRecord(event, timer->stream), err);
}

static fq_status time_once(double *out, const fq_cuda_timer *timer, const fq_cuda_work *work,
                           uint32_t i, fq_error *err) {
    fq_status status =
        fq_gpu_check(timer->gpu, "cudaMemsetAsync",
                     cudaMemsetAsync(timer->scratch, (int)i, SCRATCH_NBYTES, timer->stream), err);
    if (!status)
        status = record(timer, timer->begin, err);
    if (!status)
        status = work->enqueue(work->context, i, timer->stream, err);
    if (!status)
        status = record(timer, timer->end, err);
    return status ? status : read_clock(out, timer, err);
}

fq_status fq_cuda_time_single(double *out, const fq_cuda_timer *timer, const fq_cuda_work *work,
                              uint32_t n_repeats, fq_error *err) {
    double *seconds = calloc(n_repeats, sizeof *seconds), first;
    fq_status status = seconds ? FQ_OK : fq_fail_memory(err);
    if (!status)
        status = time_once(&first, timer, work, 0, err); // loads the kernel
    for (uint32_t i = 0; i < n_repeats && !status; i++)
        status = time_once(&seconds[i], timer, work, i, err);
    if (!status)
        *out = fq_bench_median(seconds, n_repeats);
    free(seconds);
    return status;
}

// Records n starts.
static fq_status capture(cudaGraphExec_t *out, const fq_cuda_timer *timer, const fq_cuda_work *work,
                         uint32_t n, fq_error *err) {
    cudaGraph_t graph = NULL;
    fq_status status =
        fq_gpu_check(timer->gpu, "cudaStreamBeginCapture",
                     cudaStreamBeginCapture(timer->stream, cudaStreamCaptureModeThreadLocal), err);
    if (status)
        return status;
    for (uint32_t i = 0; i < n && !status; i++)
        status = work->enqueue(work->context, i, timer->stream, err);
    const unsigned code = cudaStreamEndCapture(timer->stream, &graph);
    if (!status)
        status = fq_gpu_check(timer->gpu, "cudaStreamEndCapture", code, err);
    if (!status)
        status = fq_gpu_check(timer->gpu, "cudaGraphInstantiate",
                              cudaGraphInstantiate(out, graph, 0), err);
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

static fq_status time_launch(double *out, const fq_cuda_timer *timer, cudaGraphExec_t graph,
                             fq_error *err) {
    const struct timespec rest = {.tv_nsec = 2000000};
    nanosleep(&rest, NULL);
    fq_status status = record(timer, timer->begin, err);
    if (!status)
        status =
            fq_gpu_check(timer->gpu, "cudaGraphLaunch", cudaGraphLaunch(graph, timer->stream), err);
    if (!status)
        status = record(timer, timer->end, err);
    return status ? status : read_clock(out, timer, err);
}

fq_status fq_cuda_time_graph(double *out, const fq_cuda_timer *timer, const fq_cuda_work *work,
                             uint32_t n_least, double single_seconds, uint32_t n_repeats,
                             fq_error *err) {
    const double graph_seconds = 2e-3, most = 200;
    const double wanted = graph_seconds / single_seconds;
    const uint32_t n = wanted > most      ? (uint32_t)most
                       : wanted > n_least ? (uint32_t)wanted
                                          : n_least;
    cudaGraphExec_t graph = NULL;
    double *seconds = calloc(n_repeats, sizeof *seconds), first;
    fq_status status = seconds ? capture(&graph, timer, work, n, err) : fq_fail_memory(err);
    if (!status)
        status = time_launch(&first, timer, graph, err); // brings the graph to the GPU
    for (uint32_t i = 0; i < n_repeats && !status; i++)
        status = time_launch(&seconds[i], timer, graph, err);
    if (!status)
        *out = fq_bench_median(seconds, n_repeats) / n;
    if (graph)
        (void)cudaGraphExecDestroy(graph);
    free(seconds);
    return status;
}
