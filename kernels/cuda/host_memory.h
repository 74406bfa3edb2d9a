// Host memory that GPUs read and write at the full speed of the bus.
#ifndef FQ_KERNELS_CUDA_HOST_MEMORY_H
#define FQ_KERNELS_CUDA_HOST_MEMORY_H

#include <stddef.h>

// Zeroed pages, huge ones where there are, pinned for all GPUs where the driver lets us: pages that
// it does not pin work too, at a fraction of the speed. NULL when there is no memory. A GPU is the
// thread's current one.
void *fq_host_memory_alloc(size_t nbytes);

// nbytes: as in fq_host_memory_alloc. NULL is taken.
void fq_host_memory_free(void *memory, size_t nbytes);

#endif
