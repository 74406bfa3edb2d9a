// A CUDA runtime without a GPU: what tests tell it to be, and what they ask it afterwards.
//
// GPU memory is host memory, and kernels are the plain CPU code. Streams do nothing until somebody
// waits for one, so that whoever does not wait gets no results; then all go on side by side, so
// that those that share memory spoil it. It is strict where the real one is: a stream is used with
// its own GPU as the current one, and kernels get memory of that GPU.
#ifndef FQ_TESTS_CUDA_FAKE_CUDA_H
#define FQ_TESTS_CUDA_FAKE_CUDA_H

#include "cuda_runtime_api.h"

#include <stdbool.h>
#include <stdint.h>

enum { FAKE_MAX_GPUS = 4 };

typedef struct fake_settings {
    int n_gpus;             // FAKE_MAX_GPUS at most
    int driver;             // version: 13000, 0 without a driver
    uint64_t memory_nbytes; // of each GPU; 0: enough
    uint64_t fail_at;       // the number of the call that fails, from 1 on; 0: none does
    bool fail_from_then_on; // and all later ones, as after an error that a GPU does not get over
    cudaError_t fail_with;
} fake_settings;

// Starts anew: nothing is alive, no call was made. Without it there are two GPUs and no failures,
// or what FAKE_CUDA_GPUS, FAKE_CUDA_MEMORY (bytes) and FAKE_CUDA_FAIL_AT in the environment say.
void fake_reset(const fake_settings *settings);

// Calls that were made, those that read or clear an error aside.
uint64_t fake_n_calls(void);

// Streams, events, allocations and registrations that were made and not given back.
uint64_t fake_n_alive(void);

// Operations that streams were given and have not done.
uint64_t fake_n_queued(void);

// Kernels that were started on a GPU.
uint64_t fake_n_kernels(int gpu);

// GEMMs that were started since the program's start, and groups of the masked ones that had rows.
// They go to the file that FAKE_CUDA_GEMMS in the environment names when the program ends.
typedef struct fake_gemms {
    uint64_t n_dense, n_masked, n_groups;
} fake_gemms;

fake_gemms fake_count_gemms(void);

// Notes a misuse, for kernels.
void fake_complain(const char *what);

// What stands in for a kernel. It runs when its stream gets so far.
typedef void fake_kernel(const void *arguments);

// Starts one: of nbytes arguments the stream takes a copy. memory: [n] arrays that the kernel uses,
// which must be of the stream's GPU.
cudaError_t fake_launch(cudaStream_t stream, fake_kernel *kernel, const void *arguments,
                        size_t nbytes, const void *const memory[], size_t n);

// What callers did wrong, in words; "" if nothing.
const char *fake_misuse(void);

#endif
