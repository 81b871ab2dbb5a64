/* The world of the interleaving test: threads as coroutines, virtual time, sockets. See world.c. */
#pragma once

#include "io/sockets.h"

enum { WORLD_READY, WORLD_MUTEX, WORLD_COND, WORLD_POLL, WORLD_SLEEP, WORLD_DONE };

typedef struct thread thread;
struct thread {
    const char *name;
    int state;
    const void *on; /* the awaited mutex or condition */
    int64_t until;
    int off; /* another process has its core */
    const struct pollfd *fds;
    unsigned n_fds;
    void (*work)(thread *);
    void *arg; /* the scenario's */
    int want; /* in sc_drive: SC_WANT_* and its mark */
    uint64_t mark;
    void *context, *stack;
};

/* A new world. `quiet` is called when no thread can run, before time moves to `next`. */
void world_begin(uint64_t seed, void (*quiet)(int64_t next));
void world_end(void);
thread *world_start(const char *name, void (*work)(thread *), void *arg);
void world_run(void); /* until all threads are done */
thread *world_threads(int *n);
int64_t world_time(void); /* without the cost of a look at the clock */
uint64_t world_draw(uint64_t below);
void world_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Opens the sockets of member `id`, 1 or 2. */
void world_open(sc_io *io, uint64_t id);
int world_readable(int fd);
/* The scenario's: a thread is woken from a condition. */
void world_woken(const thread *t);
