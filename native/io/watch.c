/* Event loops, which watch one descriptor. The I/O thread makes it readable when something is deliverable. While messages come
 * in quick succession, the loop watches the sockets as well and receives by itself: a message then wakes one thread, not two. */
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

int sc_driver_watch(sc_driver *d) {
    sc_mutex_lock(d->lock);
    int there = sc_load(&d->stop) || sc_has(d, SC_WANT_DELIVERY, 0);
    d->waits.watched = !there;
    sc_mutex_unlock(d->lock);
    return there;
}

/* The loop does not watch what it brings in itself. */
static void forget_signal(sc_driver *d) {
    sc_mutex_lock(d->lock);
    d->waits.watched = 0;
    if (d->waits.signalled && d->waits.watch[1] != SC_NO_FD) sc_signal_clear(d->waits.watch[1]);
    d->waits.signalled = 0;
    sc_mutex_unlock(d->lock);
}

int sc_driver_watched(sc_driver *d) {
    forget_signal(d);
    if (sc_role_take_for_loop(d)) {
        sc_round_run(d, 0, 0);
        sc_role_leave_loop(d);
    }
    return sc_driver_watch(d);
}
