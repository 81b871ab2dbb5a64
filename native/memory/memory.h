/* Memory that is scanned from end to end: on huge pages if the system has them, as a copy through 4 KiB pages spends
 * much of its time on address translation, above all in a virtual machine. Released with free(). */
#pragma once

#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#define SC_HUGE_PAGE ((size_t)2 << 20)

static inline void *sc_large_alloc(size_t bytes) {
#if defined(__linux__)
    if (bytes >= SC_HUGE_PAGE / 2) {
        void *p = aligned_alloc(SC_HUGE_PAGE, (bytes + SC_HUGE_PAGE - 1) & ~(SC_HUGE_PAGE - 1));
        if (p) madvise(p, (bytes + SC_HUGE_PAGE - 1) & ~(SC_HUGE_PAGE - 1), MADV_HUGEPAGE);
        return p;
    }
#endif
    return malloc(bytes);
}
