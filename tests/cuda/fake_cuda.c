// A CUDA runtime without a GPU: see fake_cuda.h.
#include "fake_cuda.h"

#include "kernels/cuda/launch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ALIVE = 256, MAX_QUEUED = 32, MAX_ARGUMENTS = 256, POISON = 0xA5 };

typedef enum sort { MEMORY, REGISTERED, STREAM, EVENT } sort;

// Something that was made: memory of a GPU, registered host memory, a stream or an event.
typedef struct thing {
    sort sort;
    char *at;
    size_t nbytes;
    int gpu;
} thing;

typedef enum verb { COPY, SET, CALL } verb;

typedef struct operation {
    verb verb;
    void *to;
    const void *from;
    size_t nbytes; // of a row, of which there is one but for copies in 2D
    size_t n_rows, to_stride, from_stride;
    int value;
    fake_kernel *kernel;
    _Alignas(16) unsigned char arguments[MAX_ARGUMENTS];
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
static bool is_zeroing[FAKE_MAX_GPUS]; // without a stream, and nobody has waited for it
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
                               .memory_nbytes = number_in_environment("FAKE_CUDA_MEMORY", 0),
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
    memset(is_zeroing, 0, sizeof is_zeroing);
    misuse[0] = '\0';
    pthread_mutex_unlock(&lock);
}

uint64_t fake_n_calls(void) { return n_calls; }
uint64_t fake_n_alive(void) { return n_things; }
uint64_t fake_n_kernels(int gpu) { return n_kernels[gpu]; }
const char *fake_misuse(void) { return misuse; }

void fake_complain(const char *what) {
    if (!misuse[0])
        snprintf(misuse, sizeof misuse, "%s", what);
}

static cudaError_t complain(const char *what, cudaError_t code) {
    fake_complain(what);
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

// Bytes that are left on the current GPU.
static size_t count_free(void) {
    const size_t enough = (size_t)1 << 40;
    size_t n = settings.memory_nbytes ? settings.memory_nbytes : enough;
    for (size_t i = 0; i < n_things; i++) {
        if (things[i].sort == MEMORY && things[i].gpu == current_gpu)
            n -= things[i].nbytes;
    }
    return n;
}

cudaError_t cudaMemGetInfo(size_t *free_nbytes, size_t *all) {
    const cudaError_t code = enter();
    *free_nbytes = *all = count_free();
    return leave(code);
}

cudaError_t cudaMalloc(void **memory, size_t nbytes) {
    cudaError_t code = enter();
    if (!code && nbytes > count_free())
        code = cudaErrorMemoryAllocation;
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
    if (!code) {
        memset(memory, value, nbytes);
        is_zeroing[current_gpu] = true;
    }
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
    if (is_zeroing[stream->gpu])
        return complain("a stream does not wait for cudaMemset", cudaErrorInvalidValue);
    if (stream->n == MAX_QUEUED)
        return complain("a stream that nobody waits for", cudaErrorInvalidValue);
    stream->queue[stream->n++] = *what;
    return cudaSuccess;
}

static void run_copy(const operation *o) {
    for (size_t row = 0; row < o->n_rows; row++)
        memcpy((char *)o->to + row * o->to_stride, (const char *)o->from + row * o->from_stride,
               o->nbytes);
}

// Between the host and that GPU.
static cudaError_t check_copy(const operation *o, int gpu) {
    const size_t n = o->n_rows - 1;
    if (is_on_gpu(o->to, n * o->to_stride + o->nbytes, gpu) ==
        is_on_gpu(o->from, n * o->from_stride + o->nbytes, gpu))
        return complain("a copy that is not between host and GPU", cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    (void)kind;
    const operation copy = {.verb = COPY,
                            .to = to,
                            .from = from,
                            .nbytes = width,
                            .n_rows = height,
                            .to_stride = to_stride,
                            .from_stride = from_stride};
    cudaError_t code = enter();
    if (!code)
        code = check_copy(&copy, stream->gpu);
    return leave(code ? code : queue(stream, &copy));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return cudaMemcpy2DAsync(to, nbytes, from, nbytes, nbytes, 1, kind, stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_stride, const void *from, size_t from_stride,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    (void)kind;
    const operation copy = {.to = to,
                            .from = from,
                            .nbytes = width,
                            .n_rows = height,
                            .to_stride = to_stride,
                            .from_stride = from_stride};
    cudaError_t code = enter();
    if (!code)
        code = check_copy(&copy, current_gpu);
    if (!code)
        run_copy(&copy);
    return leave(code);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, enum cudaMemcpyKind kind) {
    return cudaMemcpy2D(to, nbytes, from, nbytes, nbytes, 1, kind);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t nbytes, cudaStream_t stream) {
    const operation set = {.verb = SET, .to = memory, .value = value, .nbytes = nbytes};
    cudaError_t code = enter();
    if (!code && !is_on_gpu(memory, nbytes, stream->gpu))
        code = complain("set what is no GPU memory", cudaErrorInvalidValue);
    return leave(code ? code : queue(stream, &set));
}

static void run_operation(const operation *o) {
    switch (o->verb) {
    case COPY:
        run_copy(o);
        break;
    case SET:
        memset(o->to, o->value, o->nbytes);
        break;
    case CALL:
        o->kernel(o->arguments);
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
    if (stream == cudaStreamLegacy)
        is_zeroing[current_gpu] = false;
    else
        run_queue(stream);
    return leave(code);
}

// ---- Kernels

static cudaError_t check_kernel(cudaStream_t stream, const void *const memory[], size_t n) {
    if (stream->gpu != current_gpu)
        return complain("a kernel on another GPU's stream", cudaErrorInvalidResourceHandle);
    for (size_t i = 0; i < n; i++) {
        if (!is_on_gpu(memory[i], 1, stream->gpu))
            return complain("a kernel on memory of the host", cudaErrorIllegalAddress);
    }
    return cudaSuccess;
}

cudaError_t fake_launch(cudaStream_t stream, fake_kernel *kernel, const void *arguments,
                        size_t nbytes, const void *const memory[], size_t n) {
    operation o = {.verb = CALL, .kernel = kernel};
    cudaError_t code = enter();
    if (nbytes > sizeof o.arguments)
        return leave(complain("more arguments than there is room for", cudaErrorInvalidValue));
    memcpy(o.arguments, arguments, nbytes);
    if (!code)
        code = check_kernel(stream, memory, n);
    n_kernels[stream->gpu] += !code;
    return leave(code ? code : queue(stream, &o));
}
