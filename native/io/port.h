/* Threads and clocks, for all systems: a mutex, a condition with a deadline, two clocks.
 *
 * POSIX threads, or Windows' slim locks. All times are int64 nanoseconds. */
#pragma once

#include <stdint.h>

#include "base/atomic.h"

#if defined(_WIN32)

typedef SRWLOCK sc_mutex;
typedef CONDITION_VARIABLE sc_cond;

static inline void sc_mutex_init(sc_mutex *m) { InitializeSRWLock(m); }
static inline void sc_mutex_destroy(sc_mutex *m) { (void)m; }
static inline void sc_mutex_lock(sc_mutex *m) { AcquireSRWLockExclusive(m); }
static inline int sc_mutex_trylock(sc_mutex *m) { return TryAcquireSRWLockExclusive(m) != 0; }
static inline void sc_mutex_unlock(sc_mutex *m) { ReleaseSRWLockExclusive(m); }

static inline void sc_cond_init(sc_cond *c) { InitializeConditionVariable(c); }
static inline void sc_cond_signal(sc_cond *c) { WakeConditionVariable(c); }
static inline void sc_cond_broadcast(sc_cond *c) { WakeAllConditionVariable(c); }

/* Monotonic clock; starts anywhere. */
static inline int64_t sc_now(void) {
    static LARGE_INTEGER frequency; /* every thread writes the same value */
    LARGE_INTEGER counter;
    if (frequency.QuadPart == 0) QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&counter);
    return (int64_t)(counter.QuadPart / frequency.QuadPart * 1000000000LL +
                     counter.QuadPart % frequency.QuadPart * 1000000000LL / frequency.QuadPart);
}

/* Wall clock, since 1970. */
static inline int64_t sc_wall(void) {
    FILETIME t;
    GetSystemTimePreciseAsFileTime(&t);
    int64_t ticks = (int64_t)(((uint64_t)t.dwHighDateTime << 32) | t.dwLowDateTime);
    return (ticks - 116444736000000000LL) * 100;
}

static inline void sc_cond_wait(sc_cond *c, sc_mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }

/* Waits until a signal or the monotonic time `until`; may wake early. */
static inline void sc_cond_wait_until(sc_cond *c, sc_mutex *m, int64_t until) {
    int64_t left = until - sc_now();
    if (left < 0) left = 0;
    int64_t ms = (left + 999999) / 1000000;
    SleepConditionVariableSRW(c, m, ms > 3600000 ? 3600000 : (DWORD)ms, 0);
}

static inline void sc_sleep(int64_t ns) { Sleep((DWORD)((ns + 999999) / 1000000)); }

/* Identifies the calling thread among the living ones; never 0. */
static inline uint64_t sc_thread(void) { return GetCurrentThreadId(); }

#else

#include <pthread.h>
#include <sched.h>
#include <time.h>

typedef pthread_mutex_t sc_mutex;
typedef pthread_cond_t sc_cond;

static inline void sc_mutex_init(sc_mutex *m) { pthread_mutex_init(m, NULL); }
static inline void sc_mutex_destroy(sc_mutex *m) { pthread_mutex_destroy(m); }
static inline void sc_mutex_lock(sc_mutex *m) { pthread_mutex_lock(m); }
static inline int sc_mutex_trylock(sc_mutex *m) { return pthread_mutex_trylock(m) == 0; }
static inline void sc_mutex_unlock(sc_mutex *m) { pthread_mutex_unlock(m); }

static inline void sc_cond_init(sc_cond *c) {
#if defined(__APPLE__)
    pthread_cond_init(c, NULL);
#else
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attributes);
    pthread_condattr_destroy(&attributes);
#endif
}
static inline void sc_cond_signal(sc_cond *c) { pthread_cond_signal(c); }
static inline void sc_cond_broadcast(sc_cond *c) { pthread_cond_broadcast(c); }

/* Monotonic clock; starts anywhere. */
static inline int64_t sc_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Wall clock, since 1970. */
static inline int64_t sc_wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline void sc_cond_wait(sc_cond *c, sc_mutex *m) { pthread_cond_wait(c, m); }

/* Waits until a signal or the monotonic time `until`; may wake early. */
static inline void sc_cond_wait_until(sc_cond *c, sc_mutex *m, int64_t until) {
#if defined(__APPLE__)
    int64_t left = until - sc_now();
    if (left < 0) left = 0;
    struct timespec t = {left / 1000000000LL, left % 1000000000LL};
    pthread_cond_timedwait_relative_np(c, m, &t);
#else
    struct timespec t = {until / 1000000000LL, until % 1000000000LL};
    pthread_cond_timedwait(c, m, &t);
#endif
}

static inline void sc_sleep(int64_t ns) {
    struct timespec t = {ns / 1000000000LL, ns % 1000000000LL};
    nanosleep(&t, NULL);
}

/* Identifies the calling thread among the living ones; never 0. */
static inline uint64_t sc_thread(void) { return (uint64_t)(uintptr_t)pthread_self(); }

#endif

/* Lets another thread have the core, if one wants to run. */
static inline void sc_yield(void) {
#if defined(_WIN32)
    SwitchToThread();
#else
    sched_yield();
#endif
}

/* In a spin loop: lets the core's other hardware thread run. */
static inline void sc_relax(void) {
#if defined(_WIN32)
    YieldProcessor();
#elif defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
