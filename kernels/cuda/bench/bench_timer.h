// Times work on a GPU: one start of it alone, and many in a CUDA graph.
#ifndef FQ_KERNELS_CUDA_BENCH_TIMER_H
#define FQ_KERNELS_CUDA_BENCH_TIMER_H

#include "kernels/cuda/gpu.h"

#include <cuda_runtime_api.h>

// A stream of a GPU with what timing takes.
typedef struct fq_cuda_timer {
    uint32_t gpu;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *scratch; // GPU memory, several times what a cache holds; free for any use
} fq_cuda_timer;

// Makes the GPU the thread's current one. name: out, FQ_GPU_NAME bytes. After any outcome
// fq_cuda_timer_close it.
fq_status fq_cuda_timer_open(fq_cuda_timer *out, char *name, uint32_t gpu, fq_error *err);
void fq_cuda_timer_close(fq_cuda_timer *timer); // zeroed is taken

// As fq_gpu_check.
fq_status fq_cuda_timer_check(const fq_cuda_timer *timer, const char *call, unsigned code,
                              fq_error *err);

// Enqueues the i-th start of what is timed, and nothing else.
typedef fq_status fq_cuda_enqueue_fn(const void *context, uint32_t i, cudaStream_t stream,
                                     fq_error *err);

typedef struct fq_cuda_work {
    const void *context;
    fq_cuda_enqueue_fn *enqueue;
} fq_cuda_work;

// The median of the seconds that one start takes, of n_repeats, each after a write over all that a
// cache holds.
fq_status fq_cuda_time_single(double *out, const fq_cuda_timer *timer, const fq_cuda_work *work,
                              uint32_t n_repeats, fq_error *err);

// The same in graphs of many starts, n_least at least, which take about single_seconds each. The
// GPU rests between graphs: what it gives when it is hot is another figure.
fq_status fq_cuda_time_graph(double *out, const fq_cuda_timer *timer, const fq_cuda_work *work,
                             uint32_t n_least, double single_seconds, uint32_t n_repeats,
                             fq_error *err);

#endif
