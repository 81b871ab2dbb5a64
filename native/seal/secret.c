/* Memory for secrets. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "seal/secret.h"

void sc_secret_overwrite(void *p, size_t bytes) {
    volatile uint8_t *each = p; /* so that no compiler drops the call */
    while (bytes--) *each++ = 0;
}

/* More than the calls of a cipher or a hash take, of a stack that each thread has. Inlined, it would overwrite the
 * frame of its caller alone. */
#define STACK 6144
#if defined(_MSC_VER)
__declspec(noinline) void sc_secret_clean_stack(void) {
    uint8_t left[STACK];
    sc_secret_overwrite(left, sizeof left);
}
#else
__attribute__((noinline)) void sc_secret_clean_stack(void) {
    uint8_t left[STACK];
    memset(left, 0, sizeof left);
    __asm__ __volatile__("" : : "r"(left) : "memory"); /* so that no compiler drops the call */
}
#endif

#if defined(_WIN32)

void *sc_secret_new(size_t bytes) { return calloc(1, bytes); }

void sc_secret_free(void *p, size_t bytes) {
    if (p) sc_secret_overwrite(p, bytes);
    free(p);
}

#else

#include <sys/mman.h>

#if !defined(MAP_ANONYMOUS)
#define MAP_ANONYMOUS MAP_ANON
#endif

/* Each of these may fail, by a limit or on an older system: the secret is then as safe as the rest of the process. */
static void keep_to_itself(void *p, size_t bytes) {
    (void)!mlock(p, bytes);
#if defined(MADV_DONTDUMP)
    (void)!madvise(p, bytes, MADV_DONTDUMP);
#endif
#if defined(MADV_WIPEONFORK)
    (void)!madvise(p, bytes, MADV_WIPEONFORK);
#endif
}

void *sc_secret_new(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    keep_to_itself(p, bytes);
    return p;
}

void sc_secret_free(void *p, size_t bytes) {
    if (!p) return;
    sc_secret_overwrite(p, bytes);
    munmap(p, bytes);
}

#endif
