/* The port layer of the interleaving test, in place of native/io/port.h: one real thread runs all others as coroutines,
 * and each function here is a point at which another one may go on. Time is virtual. See world.c. */
#pragma once

#include <stdint.h>

typedef struct {
    int held;
} sc_mutex;
typedef struct {
    char unused;
} sc_cond;
typedef int64_t sc_atomic;

void world_point(const char *what, const char *file, int line); /* others may run now */
void world_lock(sc_mutex *m);
int world_trylock(sc_mutex *m);
void world_unlock(sc_mutex *m);
void world_wait(sc_cond *c, sc_mutex *m, int64_t until);
void world_wake(sc_cond *c, int all);
int64_t world_now(void);
void world_sleep(int64_t ns);
uint64_t world_thread(void);
void world_leave_core(void);

#define WORLD_POINT(what) world_point(what, __FILE__, __LINE__)

#define sc_mutex_init(m) ((void)(m))
#define sc_mutex_destroy(m) ((void)(m))
#define sc_mutex_lock(m) (WORLD_POINT("lock " #m), world_lock(m))
#define sc_mutex_trylock(m) (WORLD_POINT("trylock " #m), world_trylock(m))
#define sc_mutex_unlock(m) (WORLD_POINT("unlock " #m), world_unlock(m), WORLD_POINT("unlocked " #m))
#define sc_cond_init(c) ((void)(c))
#define sc_cond_signal(c) (WORLD_POINT("signal " #c), world_wake(c, 0))
#define sc_cond_broadcast(c) (WORLD_POINT("broadcast " #c), world_wake(c, 1))
#define sc_cond_wait(c, m) (WORLD_POINT("wait " #c), world_wait(c, m, INT64_MAX))
#define sc_cond_wait_until(c, m, until) (WORLD_POINT("wait until " #c), world_wait(c, m, until))
#define sc_now() world_now()
#define sc_wall() (world_now() + 1000000000000LL)
#define sc_sleep(ns) (WORLD_POINT("sleep"), world_sleep(ns))
#define sc_thread() world_thread()
#define sc_yield() world_leave_core()
#define sc_relax() world_leave_core()

#define sc_load(a) (WORLD_POINT("load " #a), *(const sc_atomic *)(a))
#define sc_store(a, v) (WORLD_POINT("store " #a), (void)(*(a) = (v)))
#define sc_exchange(a, v) (WORLD_POINT("exchange " #a), world_exchange(a, v))
#define sc_or(a, v) (WORLD_POINT("or " #a), (void)(*(a) |= (v)))
#define sc_add(a, v) (WORLD_POINT("add " #a), (void)(*(a) += (v)))
#define sc_count(c, n) ((void)(*(c) += (n)))
#define sc_counted(c) (*(c))

static inline int64_t world_exchange(sc_atomic *a, int64_t v) {
    int64_t old = *a;
    *a = v;
    return old;
}
