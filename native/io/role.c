/* The receive role: which thread waits on the sockets. See driver.h. */
#include "io/driver_internal.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

/* Callers that come back within this time make a stream, which looks at the sockets once in this time. */
#define STREAM_NS 250000
#define BURST_NS 1000000 /* only after this long */
#define STANDBY_TICKS 4 /* under load the I/O thread looks up to this many times less often than by the setting ... */
#define STANDBY_NS_MAX 8000000 /* ... unless that is less often than this */

void sc_role_init(sc_role *role) {
    sc_mutex_init(&role->lock);
    for (int k = 0; k < SC_WANTS; k++) sc_cond_init(&role->came[k]);
    sc_cond_init(&role->freed);
    sc_cond_init(&role->io_idle);
}

/* ---- callers ------------------------------------------------------------------------------------------------ */

/* sc_driver_has for the holder of the role, which is about to wait: sends and views move the deadline as well. */
static int has_or_deadline(sc_driver *d, int want, uint64_t mark) {
    sc_mutex_lock(d->lock);
    int satisfied = sc_has(d, want, mark);
    d->round.pace.talks = want == SC_WANT_DELIVERY && d->turn.talks == sc_thread();
    if (!satisfied) d->round.deadline = sc_engine_deadline(d->engine);
    sc_mutex_unlock(d->lock);
    return satisfied;
}

/* Unless the wanted condition holds already, runs one round at least, even after `until`: the I/O thread, which sees
 * that callers take turns, leaves the sockets to them. Returns the time at which the condition held, or 0. */
static int64_t rounds(sc_driver *d, int want, uint64_t mark, int64_t until) {
    for (int64_t ran = 0;; ran = d->round.ran) {
        if (sc_load(&d->waits.caller_wants) != want)
            sc_store(&d->waits.caller_wants, want); /* before the check, so that no wake-up is missed */
        if (has_or_deadline(d, want, mark)) return ran ? ran : sc_now();
        if (sc_load(&d->stop) || (ran && sc_now() >= until)) return 0;
        int woken = sc_round_run(d, until, want == SC_WANT_DELIVERY);
        if (woken) return sc_driver_has(d, want, mark) ? d->round.ran : 0;
    }
}

/* A thread that does not wait is not to be woken, least of all by its own messages: its next wait would end at once. */
int64_t sc_role_rounds(sc_driver *d, int want, uint64_t mark, int64_t until) {
    int64_t found_at = rounds(d, want, mark, until);
    sc_store(&d->waits.caller_wants, 0);
    return found_at;
}

/* Under `role.lock`. */
static void become_holder(sc_driver *d) {
    d->role.holder = SC_ROLE_CALLER;
    d->role.turns++;
    sc_count(&d->counters->turns, 1);
}

/* Under `role.lock`. */
static void caller_leaves(sc_driver *d, int64_t now) {
    d->role.callers--;
    d->role.left = now;
    if (sc_load(&d->stop))
        sc_wake_all(d);
    else if (d->role.callers > 0)
        sc_offer_role(d);
    else if (d->role.io_state == SC_IO_DEEP)
        sc_cond_signal(&d->role.io_idle);
}

/* Another thread has the role: waits until the wanted condition holds, or the role is free. Under `role.lock`, also
 * during the check: the thread that makes the condition true finds `waiting`, and then the lock, so that its wake-up
 * comes after the wait has begun. */
static int wait_for_holder(sc_driver *d, int want, uint64_t mark, int64_t until) {
    int k = want >> 1; /* of SC_WANT_* */
    sc_store(&d->role.waiting[k], sc_load(&d->role.waiting[k]) + 1);
    if (d->role.holder == SC_ROLE_IO && d->role.io_state == SC_IO_POLLING) sc_kick_io(d);
    int found = sc_driver_has(d, want, mark);
    if (!found && !sc_load(&d->stop))
        sc_cond_wait_until(&d->role.came[k], &d->role.lock, sc_earlier(until, sc_now() + 10000000));
    sc_store(&d->role.waiting[k], sc_load(&d->role.waiting[k]) - 1);
    return found;
}

int64_t sc_drive(sc_driver *d, int want, uint64_t mark, int64_t until) {
    int64_t found_at = 0;
    sc_mutex_lock(&d->role.lock);
    d->role.callers++;
    while (!sc_load(&d->stop)) {
        if (d->role.holder == SC_ROLE_FREE) {
            become_holder(d);
            sc_mutex_unlock(&d->role.lock);
            found_at = sc_role_rounds(d, want, mark, until);
            sc_mutex_lock(&d->role.lock);
            d->role.holder = SC_ROLE_FREE;
            break;
        }
        int found = wait_for_holder(d, want, mark, until);
        int64_t now = sc_now();
        if (found) found_at = now;
        if (found || now >= until) break;
    }
    caller_leaves(d, found_at ? found_at : sc_now());
    sc_mutex_unlock(&d->role.lock);
    return found_at;
}

int sc_role_take(sc_driver *d) {
    int taken = 0;
    sc_mutex_lock(&d->role.lock);
    d->role.callers++;
    while (d->role.holder == SC_ROLE_IO && !sc_load(&d->stop)) {
        if (d->role.io_state == SC_IO_POLLING) sc_kick_io(d);
        sc_cond_wait_until(&d->role.freed, &d->role.lock, sc_now() + 1000000);
    }
    if (d->role.holder == SC_ROLE_FREE && !sc_load(&d->stop)) {
        int64_t now = sc_now();
        if (now - d->role.left >= STREAM_NS) d->role.stream_since = now;
        d->role.passing = now - d->role.stream_since < BURST_NS;
        become_holder(d);
        taken = 1;
    } else {
        d->role.callers--;
        if (sc_load(&d->stop)) sc_wake_all(d); /* sc_driver_stop waits until callers have left */
    }
    sc_mutex_unlock(&d->role.lock);
    return taken;
}

/* To the I/O thread, turns of senders that run no rounds look as if callers received. So in a stream of arrays each
 * sender looks at the sockets now and then, and after a few arrays the I/O thread receives again, unless a flush is
 * due, another caller waits or an event loop receives. */
void sc_role_leave(sc_driver *d) {
    if (sc_now() - d->round.ran >= STREAM_NS) sc_round_run(d, 0, 0);
    sc_mutex_lock(&d->role.lock);
    d->role.holder = SC_ROLE_FREE;
    if (d->role.passing && d->role.callers == 1 && !d->role.loop && !sc_load(&d->tx.flush_asked)) {
        d->role.handed = 1;
        sc_cond_signal(&d->role.io_idle);
    }
    caller_leaves(d, sc_now());
    sc_mutex_unlock(&d->role.lock);
}

/* ---- an event loop ------------------------------------------------------------------------------------------ */

void sc_loop_receives(sc_driver *d, int receives) {
    if (d->role.loop == receives || d->waits.set == SC_NO_FD) return;
    d->role.loop = sc_set_sockets(d->waits.set, &d->io, receives) == 0 && receives;
    if (receives && !d->role.loop) sc_set_sockets(d->waits.set, &d->io, 0); /* all or none */
}

/* Under load the I/O thread receives: there datagrams can accumulate. Another caller that waits receives for both. */
int sc_role_take_for_loop(sc_driver *d) {
    int taken = 0;
    sc_mutex_lock(&d->role.lock);
    int64_t now = sc_now();
    int soon = now - d->role.loop_woken < d->config.tick_ns;
    d->role.loop_woken = now;
    sc_loop_receives(d, soon && d->role.callers == 0 && !sc_load(&d->round.loaded) && !sc_load(&d->stop));
    if (d->role.loop && d->role.holder == SC_ROLE_FREE) {
        become_holder(d);
        d->role.callers++;
        taken = 1;
    } else if (d->role.loop) {
        d->role.turns++; /* the I/O thread is to stand by */
        if (d->role.io_state == SC_IO_POLLING) sc_kick_io(d);
    }
    sc_mutex_unlock(&d->role.lock);
    return taken;
}

int sc_role_take_in_loop(sc_driver *d) {
    sc_mutex_lock(&d->role.lock);
    int taken = d->role.loop && d->role.holder == SC_ROLE_FREE && !sc_load(&d->stop);
    if (taken) {
        d->role.loop_woken =
            sc_now(); /* datagrams that a poll finds wake no loop, and the next message that does comes soon */
        become_holder(d);
        d->role.callers++;
    }
    sc_mutex_unlock(&d->role.lock);
    return taken;
}

void sc_role_leave_loop(sc_driver *d) {
    sc_mutex_lock(&d->role.lock);
    d->role.holder = SC_ROLE_FREE;
    if (sc_load(&d->round.loaded)) {
        sc_loop_receives(d, 0);
        d->role.handed = 1;
        sc_cond_signal(&d->role.io_idle);
    }
    caller_leaves(d, sc_now());
    sc_mutex_unlock(&d->role.lock);
}

/* ---- a recreated interface --------------------------------------------------------------------------------------- */

int sc_driver_mend(sc_driver *d, sc_io_error *error) {
    int failed = sc_io_mend(&d->io, error);
    sc_mutex_lock(&d->role.lock);
    sc_loop_receives(d, 0); /* a loop's set knows the sockets of before, as does a thread that sleeps on them */
    sc_io_wake(&d->io);
    sc_mutex_unlock(&d->role.lock);
    return failed;
}

/* ---- the I/O thread ----------------------------------------------------------------------------------------- */

static uint64_t unsent_bytes(sc_driver *d) {
    sc_mutex_lock(d->lock);
    uint64_t unsent = sc_engine_unsent(d->engine);
    sc_mutex_unlock(d->lock);
    return unsent;
}

/* When the role's holder is to be woken; SC_NEVER: has a timer, is awake, or is woken already. */
static int64_t wake_due(sc_driver *d) {
    int64_t end = sc_load(&d->waits.untimed);
    return end && !sc_load(&d->waits.woken_by_io) ? end : SC_NEVER;
}

/* Wakes a holder that is due; returns whether one was. */
static int wake_holder(sc_driver *d, int64_t now) {
    if (now < wake_due(d)) return 0;
    sc_store(&d->waits.woken_by_io, 1);
    sc_io_wake(&d->io);
    return 1;
}

/* Streaming senders transmit themselves and leave a remainder, which goes with later messages; a remainder that nothing
 * followed is flushed. When there is none, senders have to ask again. */
static void look_after_unsent(sc_driver *d) {
    int64_t now = sc_now(), left = sc_earlier(sc_rest_due(d), wake_due(d)) - now;
    if (left > 0) sc_sleep(sc_earlier(left, d->config.tick_ns));
    if (sc_now() < sc_rest_due(d)) return;
    if (unsent_bytes(d) > 0) {
        sc_flush_rest(d);
        return;
    }
    sc_store(&d->tx.flush_asked, 0);
    if (unsent_bytes(d) > 0) sc_store(&d->tx.flush_asked, 1); /* packed in between, without a flush request */
}

/* Rounds with the role until a caller wants the role. Entered and left with `role.lock` held. */
static void hold_role(sc_driver *d) {
    d->role.holder = SC_ROLE_IO;
    while (d->role.callers == 0 && !d->role.loop && !sc_load(&d->stop)) {
        int asked = sc_load(&d->tx.flush_asked) != 0;
        int hot = asked || sc_load(&d->tx.handed); /* by itself, too: nobody kicks a thread that is awake */
        d->role.io_state = hot ? SC_IO_AWAKE : SC_IO_POLLING;
        sc_mutex_unlock(&d->role.lock);
        if (asked) look_after_unsent(d);
        has_or_deadline(d, 0, 0); /* for the deadline */
        sc_round_run(d, hot ? 0 : SC_NEVER, !hot);
        sc_mutex_lock(&d->role.lock);
        d->role.io_state = SC_IO_AWAKE;
    }
    d->role.holder = SC_ROLE_FREE;
    sc_cond_broadcast(&d->role.freed);
    sc_offer_role(d);
}

/* The I/O thread checks whether callers still drive. */
typedef struct {
    int64_t standby, looked; /* time until the next look; time of the last one */
    uint64_t turns;
} callers_seen;

/* A look costs as much as the receipt of some twenty packets, so under load looks are rarer while callers drive at
 * least once in two ticks. Without load the looks stay as frequent: a core that expects to be woken soon sleeps less
 * deeply, and a hop of blocking callers would take an eighth longer. */
static void look_at_callers(const sc_driver *d, callers_seen *w, int64_t now) {
    int64_t tick = d->config.tick_ns, passed = now - w->looked;
    if (passed < w->standby) return;
    int often = sc_load(&d->round.loaded) && (int64_t)(d->role.turns - w->turns) * 2 * tick >= passed;
    int64_t most = sc_earlier(STANDBY_TICKS * tick, STANDBY_NS_MAX);
    if (!often)
        w->standby = tick;
    else if (2 * w->standby <= most)
        w->standby *= 2;
    w->looked = now;
    w->turns = d->role.turns;
}

/* True if nothing arrived for a tick while the time between looks is stretched. */
static int is_idle(const sc_driver *d, const callers_seen *w, int64_t now) {
    return w->standby > d->config.tick_ns && now - (int64_t)sc_counted(&d->round.came) >= d->config.tick_ns;
}

/* Sleeps until `until` or a signal; also acts as the role holder's timer meanwhile: at `until` at the latest the
 * holder's next wake-up is looked up, so only sleeps that end before need timers. SC_NEVER: still wakes a holder that
 * has begun to sleep without one. Returns whether one was woken. Under `role.lock`. */
static int stand_by(sc_driver *d, int64_t until) {
    sc_waits *w = &d->waits;
    sc_store(&w->covered_from, until);
    until = sc_earlier(until, wake_due(d));
    if (until == SC_NEVER)
        sc_cond_wait(&d->role.io_idle, &d->role.lock);
    else
        sc_cond_wait_until(&d->role.io_idle, &d->role.lock, until);
    sc_store(&w->covered_from, SC_NEVER);
    return wake_holder(d, sc_now());
}

void sc_driver_run(sc_driver *d) {
#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
    uint64_t seen = 0;
    int64_t since = 0; /* no caller's turn has begun or ended since then */
    callers_seen callers = {.standby = d->config.tick_ns};
    sc_mutex_lock(&d->role.lock);
    while (!sc_load(&d->stop)) {
        int64_t now = sc_now();
        wake_holder(d, now); /* other work may have taken long */
        look_at_callers(d, &callers, now);
        if (d->role.turns != seen) {
            seen = d->role.turns;
            since = now;
        }
        int quiet = d->role.handed || now - since >= d->config.tick_ns || is_idle(d, &callers, now);
        d->role.handed = 0;
        if (d->role.holder == SC_ROLE_FREE && d->role.callers == 0 && quiet) {
            sc_loop_receives(d, 0);
            hold_role(d);
            since = sc_now();
            continue;
        }
        if (sc_takes_over(d)) {
            sc_mutex_unlock(&d->role.lock);
            sc_driver_flush(d, 0, now);
            sc_mutex_lock(&d->role.lock);
            continue;
        }
        if (sc_load(&d->tx.flush_asked)) {
            sc_mutex_unlock(&d->role.lock);
            look_after_unsent(d);
            sc_mutex_lock(&d->role.lock);
            continue;
        }
        if (quiet && d->role.holder == SC_ROLE_CALLER) { /* this caller blocks for long, and wakes us on leaving */
            d->role.io_state = SC_IO_DEEP;
            if (!stand_by(d, SC_NEVER)) since = sc_now();
        } else {
            d->role.io_state = SC_IO_STANDBY;
            stand_by(d, now + callers.standby);
        }
        d->role.io_state = SC_IO_AWAKE;
    }
    sc_mutex_unlock(&d->role.lock);
}
