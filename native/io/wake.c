/* The waits of each thread, and its wake-ups: the control thread, the holder of the receive role, the I/O thread. */
#include "io/driver_internal.h"

void sc_waits_init(sc_waits *w) {
    sc_cond_init(&w->control);
    sc_store(&w->covered_from, SC_NEVER);
    w->watch[0] = w->watch[1] = w->set = SC_NO_FD;
}

/* An application that waits for something to take works on nothing. */
static int has_delivery(const sc_driver *d) {
    if (sc_engine_deliverable(d->engine) > 0) return 1;
    if (sc_engine_works(d->engine)) sc_engine_looks(d->engine, sc_now());
    return 0;
}

int sc_has(const sc_driver *d, int want, uint64_t mark) {
    return ((want & SC_WANT_DELIVERY) && has_delivery(d)) ||
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

/* Returns whether there are events, or a kick. */
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

int sc_is_waited(const sc_driver *d, int what) {
    for (int k = 0; k < SC_WANTS; k++)
        if (what >> k & 1 && sc_load(&d->role.waiting[k])) return 1;
    return 0;
}

static void wake_waiting(sc_driver *d, int what) {
    if (!sc_is_waited(d, what)) return;
    sc_mutex_lock(&d->role.lock);
    for (int k = 0; k < SC_WANTS; k++)
        if (what >> k & 1) sc_cond_broadcast(&d->role.came[k]);
    sc_mutex_unlock(&d->role.lock);
}

/* If many threads send and one receives, only a round that brings credit is news for those that wait. */
void sc_wake_waiting(sc_driver *d) {
    if (!sc_is_waited(d, SC_WANT_ANY)) return;
    sc_mutex_lock(d->lock);
    int what = SC_WANT_STATE;
    if (sc_engine_deliverable(d->engine) > 0) what |= SC_WANT_DELIVERY;
    if (sc_engine_sendable(d->engine) != d->round.sendable) what |= SC_WANT_SENDABLE;
    d->round.sendable = sc_engine_sendable(d->engine);
    sc_mutex_unlock(d->lock);
    wake_waiting(d, what);
}

void sc_offer_role(sc_driver *d) {
    for (int k = 0; k < SC_WANTS; k++) {
        if (!sc_load(&d->role.waiting[k])) continue;
        sc_cond_signal(&d->role.came[k]);
        return;
    }
}

void sc_wake_all(sc_driver *d) {
    for (int k = 0; k < SC_WANTS; k++) sc_cond_broadcast(&d->role.came[k]);
    sc_cond_broadcast(&d->role.freed);
}

/* The holder may want something else than the waiting callers. */
void sc_wake_caller(sc_driver *d, int what) {
    wake_waiting(d, what);
    if (!(sc_load(&d->waits.caller_wants) & what) || !sc_exchange(&d->waits.caller_wants, 0)) return;
    sc_mutex_lock(&d->role.lock); /* sc_driver_close waits for this */
    sc_io_wake(&d->io);
    sc_mutex_unlock(&d->role.lock);
}

void sc_kick_io(sc_driver *d) {
    sc_count(&d->counters->kicks, 1);
    if (d->role.io_state == SC_IO_POLLING)
        sc_io_wake(&d->io);
    else if (d->role.io_state != SC_IO_AWAKE)
        sc_cond_signal(&d->role.io_idle);
}
