/* What each thread waits for, and how it is woken: the control thread, the holder of the receive role, the I/O thread. */
#include "io/driver_internal.h"

void sc_waits_init(sc_waits *w) {
    sc_cond_init(&w->control);
    sc_store(&w->minded_from, SC_NEVER);
    w->watch[0] = w->watch[1] = w->set = SC_NO_FD;
}

int sc_has(const sc_driver *d, int want, uint64_t mark) {
    return ((want & SC_WANT_DELIVERY) && sc_engine_deliverable(d->engine) > 0) ||
           ((want & SC_WANT_SENDABLE) && sc_engine_sendable(d->engine) != mark) ||
           ((want & SC_WANT_STATE) && sc_engine_state_readable(d->engine, mark));
}

int sc_driver_has(sc_driver *d, int want, uint64_t mark) {
    sc_mutex_lock(d->lock);
    int has = sc_has(d, want, mark);
    sc_mutex_unlock(d->lock);
    return has;
}

void sc_tell_watcher(sc_driver *d) {
    if (!sc_load(&d->stop) && !sc_has(d, SC_WANT_DELIVERY, 0)) return;
    d->waits.watched = 0;
    d->waits.signalled = 1;
    sc_signal(d->waits.watch[0]);
}

/* ---- the control thread ------------------------------------------------------------------------------------- */

/* Returns whether there are events, or it was kicked. */
static int wait_for_events(sc_driver *d, int64_t until) {
    sc_mutex_lock(d->lock);
    while (!sc_engine_has_event(d->engine) && !d->waits.control_kicked && sc_now() < until) {
        d->waits.control_waiting = 1;
        sc_cond_wait_until(&d->waits.control, d->lock, until);
        d->waits.control_waiting = 0;
    }
    int woken = sc_engine_has_event(d->engine) || d->waits.control_kicked;
    d->waits.control_kicked = 0;
    sc_mutex_unlock(d->lock);
    return woken;
}

int sc_driver_wait_control(sc_driver *d, int64_t until, int each) {
    for (;;) {
        int woken = wait_for_events(d, sc_earlier(until, d->looks.due));
        int64_t now = sc_now();
        if (now >= d->looks.due && (sc_look(d, now) || each)) return 1;
        if (woken || now >= until) return 0;
    }
}

void sc_driver_kick_control(sc_driver *d) {
    sc_mutex_lock(d->lock);
    d->waits.control_kicked = 1;
    sc_cond_signal(&d->waits.control);
    sc_mutex_unlock(d->lock);
}

void sc_tell_engine_news(sc_driver *d) {
    if (d->waits.control_waiting && sc_engine_has_event(d->engine)) {
        d->waits.control_waiting = 0;
        sc_cond_signal(&d->waits.control);
    }
    if (d->waits.watched) sc_tell_watcher(d);
}

/* ---- threads that wait on the sockets ----------------------------------------------------------------------- */

void sc_wake_waiting(sc_driver *d) {
    if (!sc_load(&d->role.waiting)) return;
    sc_mutex_lock(&d->role.lock);
    sc_cond_broadcast(&d->role.freed);
    sc_mutex_unlock(&d->role.lock);
}

/* The holder may want something else than those who wait for it. */
void sc_wake_caller(sc_driver *d, int what) {
    sc_wake_waiting(d);
    if (!(sc_load(&d->waits.caller_wants) & what) || !sc_exchange(&d->waits.caller_wants, 0)) return;
    sc_mutex_lock(&d->role.lock); /* sc_driver_close waits for it */
    sc_io_wake(&d->io);
    sc_mutex_unlock(&d->role.lock);
}

void sc_kick_io(sc_driver *d) {
    sc_count(&d->counters.kicks, 1);
    if (d->role.io_state == SC_IO_POLLING)
        sc_io_wake(&d->io);
    else if (d->role.io_state != SC_IO_AWAKE)
        sc_cond_signal(&d->role.io_idle);
}
