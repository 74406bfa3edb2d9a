// Pinned host memory: pages of our own, registered with the driver.
//
// cudaHostAlloc takes 0.7 s for each GiB, page by page; registering huge pages takes a tenth of it.
#include "kernels/cuda/host_memory.h"

#include <cuda_runtime_api.h>

#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static size_t whole_pages(size_t nbytes) {
    return (nbytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

// Maps whole huge pages: one more than asked for, so that the ends can be cut to alignment.
static void *map_aligned(size_t nbytes) {
    unsigned char *mapped =
        mmap(NULL, nbytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)mapped % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(mapped, before);
    if (before < HUGE_PAGE)
        munmap(mapped + before + nbytes, HUGE_PAGE - before);
    return mapped + before;
}

void *fq_host_memory_alloc(size_t nbytes) {
    if (nbytes > SIZE_MAX - 2 * (size_t)HUGE_PAGE)
        return NULL;
    const size_t mapped_nbytes = whole_pages(nbytes);
    void *memory = map_aligned(mapped_nbytes);
    if (!memory)
        return NULL;
    (void)madvise(memory, mapped_nbytes, MADV_HUGEPAGE); // a wish
    if (cudaHostRegister(memory, mapped_nbytes, cudaHostRegisterPortable) != cudaSuccess)
        (void)cudaGetLastError(); // it is told by nobody else
    return memory;
}

void fq_host_memory_free(void *memory, size_t nbytes) {
    if (!memory)
        return;
    if (cudaHostUnregister(memory) != cudaSuccess)
        (void)cudaGetLastError();
    munmap(memory, whole_pages(nbytes));
}
