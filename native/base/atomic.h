/* Atomics, for all systems. */
#pragma once

#include <stdint.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <winsock2.h>
#include <windows.h>

/* Flags that are read outside any lock; sequentially consistent. */
typedef volatile LONG64 sc_atomic;
static inline int64_t sc_load(const sc_atomic *a) { return InterlockedCompareExchange64((sc_atomic *)a, 0, 0); }
static inline void sc_store(sc_atomic *a, int64_t v) { InterlockedExchange64(a, v); }
static inline int64_t sc_exchange(sc_atomic *a, int64_t v) { return InterlockedExchange64(a, v); }
static inline void sc_or(sc_atomic *a, int64_t v) { InterlockedOr64(a, v); }
static inline void sc_add(sc_atomic *a, int64_t v) { InterlockedAdd64(a, v); }
static inline void sc_count(uint64_t *c, uint64_t n) { *(volatile uint64_t *)c = *(volatile uint64_t *)c + n; }
static inline uint64_t sc_counted(const uint64_t *c) { return *(const volatile uint64_t *)c; }
#else
typedef int64_t sc_atomic;
static inline int64_t sc_load(const sc_atomic *a) { return __atomic_load_n(a, __ATOMIC_SEQ_CST); }
static inline void sc_store(sc_atomic *a, int64_t v) { __atomic_store_n(a, v, __ATOMIC_SEQ_CST); }
static inline int64_t sc_exchange(sc_atomic *a, int64_t v) { return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST); }
static inline void sc_or(sc_atomic *a, int64_t v) { __atomic_fetch_or(a, v, __ATOMIC_SEQ_CST); }
static inline void sc_add(sc_atomic *a, int64_t v) { __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST); }
/* Counters that one thread at a time writes (under a lock, or with a role) and that any thread may read. */
static inline void sc_count(uint64_t *c, uint64_t n) {
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}
static inline uint64_t sc_counted(const uint64_t *c) { return __atomic_load_n(c, __ATOMIC_RELAXED); }
#endif
