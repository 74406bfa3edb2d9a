// Host memory in whole pages: see host_memory.h.
#include "kernels/host_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

void *fq_host_memory_alloc(size_t nbytes) {
    enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };
    const size_t alignment = nbytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    if (nbytes > SIZE_MAX - alignment)
        return NULL;
    const size_t rounded = (nbytes + alignment - 1) / alignment * alignment;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, rounded) != 0)
        return NULL;
    // A wish: without huge pages it is only slower.
    if (alignment == HUGE_PAGE)
        (void)madvise(memory, rounded, MADV_HUGEPAGE);
    return memory;
}
