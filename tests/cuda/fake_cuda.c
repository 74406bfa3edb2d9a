// A CUDA runtime without a GPU: see fake_cuda.h.
#include "fake_cuda.h"

#include "kernels/cpu/steps.h"
#include "kernels/cuda/launch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ALIVE = 256, MAX_QUEUED = 16, POISON = 0xA5 };

typedef enum sort { MEMORY, REGISTERED, STREAM, EVENT } sort;

// Something that was made: memory of a GPU, registered host memory, a stream or an event.
typedef struct thing {
    sort sort;
    char *at;
    size_t nbytes;
    int gpu;
} thing;

typedef enum verb { COPY, SET, QUANTIZE, DEQUANTIZE, COMPARE } verb;

typedef struct operation {
    verb verb;
    void *to;
    const void *from;
    size_t nbytes;
    int value;
    fq_quantize_job quantize;
    fq_dequantize_job dequantize;
    fq_compare_job compare;
    void *counts;
} operation;

struct CUstream_st {
    int gpu;
    size_t n;
    operation queue[MAX_QUEUED];
};

struct CUevent_st {
    cudaStream_t stream; // recorded in; NULL before
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of all that follows
static fake_settings settings;
static bool is_set;
static uint64_t n_calls, n_kernels[FAKE_MAX_GPUS];
static thing things[MAX_ALIVE];
static size_t n_things;
static char misuse[256];

static _Thread_local int current_gpu;
static _Thread_local cudaError_t last_error;

// ---- Settings and books

static uint64_t number_in_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void set_once(void) {
    if (is_set)
        return;
    is_set = true;
    settings = (fake_settings){.n_gpus = (int)number_in_environment("FAKE_CUDA_GPUS", 2),
                               .driver = 13000,
                               .fail_at = number_in_environment("FAKE_CUDA_FAIL_AT", 0),
                               .fail_from_then_on = true,
                               .fail_with = cudaErrorMemoryAllocation};
}

static void drop(size_t i) {
    if (things[i].sort != REGISTERED)
        free(things[i].at);
    things[i] = things[--n_things];
}

void fake_reset(const fake_settings *new_settings) {
    pthread_mutex_lock(&lock);
    while (n_things > 0)
        drop(n_things - 1);
    settings = *new_settings;
    is_set = true;
    n_calls = 0;
    memset(n_kernels, 0, sizeof n_kernels);
    misuse[0] = '\0';
    pthread_mutex_unlock(&lock);
}

uint64_t fake_n_calls(void) { return n_calls; }
uint64_t fake_n_alive(void) { return n_things; }
uint64_t fake_n_kernels(int gpu) { return n_kernels[gpu]; }
const char *fake_misuse(void) { return misuse; }

static cudaError_t complain(const char *what, cudaError_t code) {
    if (!misuse[0])
        snprintf(misuse, sizeof misuse, "%s", what);
    return code;
}

static cudaError_t leave(cudaError_t code) {
    pthread_mutex_unlock(&lock);
    if (code != cudaSuccess)
        last_error = code;
    return code;
}

// Begins a call: with the lock held, cudaSuccess, or the error that is due. leave ends it.
static cudaError_t enter(void) {
    pthread_mutex_lock(&lock);
    set_once();
    n_calls++;
    const bool due =
        settings.fail_at != 0 &&
        (settings.fail_from_then_on ? n_calls >= settings.fail_at : n_calls == settings.fail_at);
    return due ? settings.fail_with : cudaSuccess;
}

static cudaError_t add(sort what, void *at, size_t nbytes) {
    if (n_things == MAX_ALIVE || !at)
        return cudaErrorMemoryAllocation;
    things[n_things++] = (thing){.sort = what, .at = at, .nbytes = nbytes, .gpu = current_gpu};
    return cudaSuccess;
}

static cudaError_t removed(sort what, const void *at, const char *name) {
    for (size_t i = 0; i < n_things; i++) {
        if (things[i].sort == what && things[i].at == at) {
            drop(i);
            return cudaSuccess;
        }
    }
    return complain(name, cudaErrorInvalidValue);
}

// ---- Devices and errors

cudaError_t cudaDriverGetVersion(int *version) {
    const cudaError_t code = enter();
    *version = settings.driver;
    return leave(code);
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n) {
    cudaError_t code = enter();
    *n = settings.n_gpus;
    if (!code && settings.driver < 13000)
        code = cudaErrorInsufficientDriver;
    if (!code && settings.n_gpus == 0)
        code = cudaErrorNoDevice;
    return leave(code);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    const cudaError_t code = enter();
    snprintf(properties->name, sizeof properties->name, "Fake GPU");
    return leave(!code && device >= settings.n_gpus ? cudaErrorInvalidDevice : code);
}

cudaError_t cudaSetDevice(int device) {
    cudaError_t code = enter();
    if (!code && device >= settings.n_gpus)
        code = cudaErrorInvalidDevice;
    if (!code)
        current_gpu = device;
    return leave(code);
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

const char *cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorMemoryAllocation ? "out of memory" : "a fake error";
}

unsigned fq_cuda_load(void) { return leave(enter()); }

// ---- Memory

cudaError_t cudaMalloc(void **memory, size_t nbytes) {
    cudaError_t code = enter();
    if (!code) {
        void *made = malloc(nbytes ? nbytes : 1);
        code = add(MEMORY, made, nbytes);
        if (made)
            memset(made, POISON, nbytes);
        *memory = made;
    }
    return leave(code);
}

cudaError_t cudaFree(void *memory) {
    const cudaError_t code = enter();
    return leave(code || !memory ? code : removed(MEMORY, memory, "freed what is no GPU memory"));
}

cudaError_t cudaMemset(void *memory, int value, size_t nbytes) {
    const cudaError_t code = enter();
    if (!code)
        memset(memory, value, nbytes);
    return leave(code);
}

cudaError_t cudaHostRegister(void *memory, size_t nbytes, unsigned flags) {
    (void)flags;
    const cudaError_t code = enter();
    return leave(code ? code : add(REGISTERED, memory, nbytes));
}

cudaError_t cudaHostUnregister(void *memory) {
    cudaError_t code = enter();
    bool found = false;
    for (size_t i = 0; !code && i < n_things && !found; i++) {
        found = things[i].sort == REGISTERED && things[i].at == memory;
        if (found)
            drop(i);
    }
    return leave(code || found ? code : cudaErrorHostMemoryNotRegistered);
}

// The bytes lie in memory of that GPU.
static bool is_on_gpu(const void *memory, size_t nbytes, int gpu) {
    const char *at = memory;
    for (size_t i = 0; i < n_things; i++) {
        const thing *t = &things[i];
        if (t->sort == MEMORY && t->gpu == gpu && at >= t->at && at + nbytes <= t->at + t->nbytes)
            return true;
    }
    return false;
}

// ---- Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    (void)flags;
    cudaError_t code = enter();
    if (!code) {
        cudaStream_t made = calloc(1, sizeof *made);
        code = add(STREAM, made, 0);
        if (made)
            made->gpu = current_gpu;
        *stream = made;
    }
    return leave(code);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const cudaError_t code = enter();
    return leave(code ? code : removed(STREAM, stream, "destroyed what is no stream"));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    (void)flags;
    cudaError_t code = enter();
    if (!code) {
        *event = calloc(1, sizeof **event);
        code = add(EVENT, *event, 0);
    }
    return leave(code);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const cudaError_t code = enter();
    return leave(code ? code : removed(EVENT, event, "destroyed what is no event"));
}

static cudaError_t queue(cudaStream_t stream, const operation *what) {
    if (stream->n == MAX_QUEUED)
        return complain("a stream that nobody waits for", cudaErrorInvalidValue);
    stream->queue[stream->n++] = *what;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind;
    const operation copy = {.verb = COPY, .to = to, .from = from, .nbytes = nbytes};
    cudaError_t code = enter();
    if (!code && is_on_gpu(to, nbytes, stream->gpu) == is_on_gpu(from, nbytes, stream->gpu))
        code = complain("a copy that is not between host and GPU", cudaErrorInvalidValue);
    return leave(code ? code : queue(stream, &copy));
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t nbytes, cudaStream_t stream) {
    const operation set = {.verb = SET, .to = memory, .value = value, .nbytes = nbytes};
    cudaError_t code = enter();
    if (!code && !is_on_gpu(memory, nbytes, stream->gpu))
        code = complain("set what is no GPU memory", cudaErrorInvalidValue);
    return leave(code ? code : queue(stream, &set));
}

static void run_quantize(const operation *o) {
    static const fq_cuda_quantize_counts zero = {0};
    static fq_cpu_steps steps[FQ_CPU_N_STEPS];
    fq_cuda_quantize_counts *out = o->counts;
    fq_quantize_counts found;
    fq_quantize_job job = o->quantize;
    if (memcmp(out, &zero, sizeof zero) != 0)
        complain("counts that are not zeroed", cudaErrorInvalidValue);
    job.counts = &found;
    fq_cpu_steps_fill(steps);
    fq_cpu_quantize(&fq_cpu_plain, steps, &job);
    *out = (fq_cuda_quantize_counts){
        .saturated = found.saturated,
        .flushed_to_zero = found.flushed_to_zero,
        .zero_blocks = found.zero_blocks,
        .floored_blocks = found.floored_blocks,
        .nonfinite = found.nonfinite,
        .first_nonfinite =
            found.nonfinite ? ~(found.nonfinite_row * job.cols + found.nonfinite_col) : 0,
    };
}

static void run_dequantize(const operation *o) {
    fq_dequantize_job job = o->dequantize;
    fq_dequantize_counts found, *out = o->counts;
    if (out->saturated != 0 || out->nan_codes != 0)
        complain("counts that are not zeroed", cudaErrorInvalidValue);
    job.counts = &found;
    fq_cpu_dequantize(&fq_cpu_plain, &job);
    *out = found;
}

static fq_cuda_finding number_of(const fq_finding *found, uint64_t cols) {
    if (found->n == 0)
        return (fq_cuda_finding){0};
    return (fq_cuda_finding){.n = found->n, .first = ~(found->first.row * cols + found->first.col)};
}

static void run_compare(const operation *o) {
    static const fq_cuda_compare_counts zero = {0};
    static fq_cpu_steps steps[FQ_CPU_N_STEPS];
    fq_compare_job job = o->compare;
    fq_cuda_compare_counts *out = o->counts;
    fq_compare_counts found;
    if (memcmp(out, &zero, sizeof zero) != 0)
        complain("counts that are not zeroed", cudaErrorInvalidValue);
    job.counts = &found;
    fq_cpu_steps_fill(steps);
    fq_cpu_compare_job(&fq_cpu_plain, steps, &job);
    *out = (fq_cuda_compare_counts){
        .saturated = found.saturated,
        .flushed_to_zero = found.flushed_to_zero,
        .nan_codes = number_of(&found.nan_codes, job.cols),
        .codes_differ = number_of(&found.codes_differ, job.cols),
        .out_of_bound = number_of(&found.out_of_bound, job.cols),
        .nonfinite = number_of(&found.nonfinite, job.cols),
    };
}

static void run_operation(const operation *o) {
    switch (o->verb) {
    case COPY:
        memcpy(o->to, o->from, o->nbytes);
        break;
    case SET:
        memset(o->to, o->value, o->nbytes);
        break;
    case QUANTIZE:
        run_quantize(o);
        break;
    case DEQUANTIZE:
        run_dequantize(o);
        break;
    case COMPARE:
        run_compare(o);
    }
}

static void run_first(cudaStream_t stream) {
    if (stream->n == 0)
        return;
    run_operation(&stream->queue[0]);
    memmove(stream->queue, stream->queue + 1, --stream->n * sizeof stream->queue[0]);
}

// All streams go on, one operation after the other, until this one is done.
static void run_queue(cudaStream_t stream) {
    while (stream->n > 0) {
        for (size_t i = 0; i < n_things; i++) {
            if (things[i].sort == STREAM)
                run_first((cudaStream_t)(void *)things[i].at);
        }
    }
}

uint64_t fake_n_queued(void) {
    uint64_t n = 0;
    for (size_t i = 0; i < n_things; i++) {
        if (things[i].sort == STREAM)
            n += ((cudaStream_t)(void *)things[i].at)->n;
    }
    return n;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    cudaError_t code = enter();
    if (!code && stream->gpu != current_gpu)
        code = complain("an event on another GPU's stream", cudaErrorInvalidResourceHandle);
    if (!code)
        event->stream = stream;
    return leave(code);
}

// As on a GPU, the work is done even where waiting fails.
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const cudaError_t code = enter();
    run_queue(event->stream);
    return leave(code);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const cudaError_t code = enter();
    run_queue(stream);
    return leave(code);
}

// ---- Kernels

static cudaError_t launch(cudaStream_t stream, const operation *o, const void *floats,
                          const void *codes, const void *scales) {
    const int gpu = stream->gpu;
    if (gpu != current_gpu)
        return complain("a kernel on another GPU's stream", cudaErrorInvalidResourceHandle);
    if (!is_on_gpu(floats, 1, gpu) || !is_on_gpu(codes, 1, gpu) || !is_on_gpu(scales, 1, gpu) ||
        !is_on_gpu(o->counts, 1, gpu))
        return complain("a kernel on memory of the host", cudaErrorIllegalAddress);
    n_kernels[gpu]++;
    return queue(stream, o);
}

unsigned fq_cuda_quantize(const fq_quantize_job *job, fq_cuda_quantize_counts *counts,
                          struct CUstream_st *stream) {
    const operation o = {.verb = QUANTIZE, .quantize = *job, .counts = counts};
    const cudaError_t code = enter();
    return leave(code ? code : launch(stream, &o, job->source, job->codes, job->scales));
}

unsigned fq_cuda_dequantize(const fq_dequantize_job *job, fq_dequantize_counts *counts,
                            struct CUstream_st *stream) {
    const operation o = {.verb = DEQUANTIZE, .dequantize = *job, .counts = counts};
    const cudaError_t code = enter();
    return leave(code ? code : launch(stream, &o, job->target, job->codes, job->scales));
}

unsigned fq_cuda_compare(const fq_compare_job *job, fq_cuda_compare_counts *counts,
                         struct CUstream_st *stream) {
    const operation o = {.verb = COMPARE, .compare = *job, .counts = counts};
    cudaError_t code = enter();
    if (!code && !is_on_gpu(job->blocks, 1, stream->gpu))
        code = complain("a kernel on memory of the host", cudaErrorIllegalAddress);
    return leave(code ? code : launch(stream, &o, job->source, job->codes, job->scales));
}
