// Host memory for the buffers of lanes.
#ifndef FQ_KERNELS_HOST_MEMORY_H
#define FQ_KERNELS_HOST_MEMORY_H

#include <stddef.h>

// Whole pages, huge ones where there are and nbytes is worth them. NULL when there is no memory.
// Free them with free().
void *fq_host_memory_alloc(size_t nbytes);

#endif
