/* Event loops, which watch one descriptor. The I/O thread makes the descriptor readable when something is deliverable.
 * While messages come in quick succession, the loop watches the sockets as well and receives by itself: a message then
 * wakes one thread, not two. */
#include "io/driver_internal.h"

int sc_driver_watch_open(sc_driver *d) {
    sc_mutex_lock(&d->role.lock);
    sc_mutex_lock(d->lock);
    int failed = d->waits.watch[0] == SC_NO_FD && sc_signal_open(d->waits.watch) != 0;
    if (!failed && d->waits.set == SC_NO_FD) failed = sc_set_open(&d->waits.set, d->waits.watch[1]);
    if (failed) sc_signal_close(d->waits.watch);
    sc_mutex_unlock(d->lock);
    sc_mutex_unlock(&d->role.lock);
    return failed ? -1 : 0;
}

void sc_driver_watch_close(sc_driver *d) {
    sc_mutex_lock(&d->role.lock);
    sc_loop_receives(d, 0);
    sc_mutex_lock(d->lock);
    d->waits.watched = 0;
    sc_set_close(&d->waits.set);
    sc_signal_close(d->waits.watch);
    sc_mutex_unlock(d->lock);
    sc_mutex_unlock(&d->role.lock);
}

enum { SC_TALKS = 2 }; /* this thread has answered, and waits for the next message of a conversation */

/* Sets a watch unless something is there, or this thread talks. Returns whether something is, or SC_TALKS. */
static int watch(sc_driver *d, int may_poll) {
    sc_mutex_lock(d->lock);
    int there = sc_load(&d->stop) || sc_has(d, SC_WANT_DELIVERY, 0);
    int talks = !there && may_poll && d->turn.talks == sc_thread();
    d->waits.watched = !there && !talks;
    sc_mutex_unlock(d->lock);
    return talks ? SC_TALKS : there;
}

#define POLLS_MAX 4 /* other tasks of the loop wait meanwhile */

/* That message often comes sooner than a thread is woken; its place in the order may come in another datagram. */
int sc_driver_watch(sc_driver *d) {
    int there = watch(d, 1);
    for (int left = POLLS_MAX; there == SC_TALKS; left--) {
        int found = sc_role_take_in_loop(d);
        if (found) {
            found = sc_round_poll(d);
            sc_role_leave_loop(d);
        }
        there = watch(d, found && left > 1);
    }
    return there;
}

/* The loop does not watch for its own arrivals. */
static void forget_signal(sc_driver *d) {
    sc_mutex_lock(d->lock);
    d->waits.watched = 0;
    if (d->waits.signalled && d->waits.watch[1] != SC_NO_FD) sc_signal_clear(d->waits.watch[1]);
    d->waits.signalled = 0;
    sc_mutex_unlock(d->lock);
}

int sc_driver_watched(sc_driver *d) {
    forget_signal(d);
    int taken = sc_role_take_for_loop(d);
    if (taken) {
        sc_round_run(d, 0, 0);
        sc_role_leave_loop(d);
    }
    int there = sc_driver_watch(d);
    /* The loop comes back at once if a socket is readable, and the I/O thread, which is to leave the role, may wait for
     * this core. */
    if (!there && !taken) sc_yield();
    return there;
}
