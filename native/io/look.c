/* What nobody reports, and the control thread looks at regularly: the interface, sends that the kernel refuses, and a receiver that
 * blocks our senders. It is looked at here, since a thread that runs Python for it takes milliseconds from those that are busy. */
#include "io/driver_internal.h"

/* Have sends failed since the last look, or are segments no longer taken? */
static int refuses_sends(sc_driver *d) {
    sc_looks *looks = &d->looks;
    uint64_t errors = sc_counted(&d->io.counters.send_errors);
    int segments = (int)sc_load(&d->io.gso), refused = errors != looks->send_errors || segments < looks->segments;
    looks->send_errors = errors;
    looks->segments = segments;
    return refused;
}

/* Has a receiver that blocks our senders taken nothing since the last look? */
static int is_stalled(sc_driver *d, int64_t now) {
    sc_looks *looks = &d->looks;
    uint64_t whose = 0, mark = 0;
    sc_mutex_lock(d->lock);
    sc_engine_stalled(d->engine, &whose, &mark);
    sc_mutex_unlock(d->lock);
    int same = whose && whose == looks->slow && mark == looks->mark;
    if (!same) looks->since = now;
    looks->slow = whose;
    looks->mark = mark;
    return same;
}

int sc_look(sc_driver *d, int64_t now) {
    d->looks.due = now + d->config.look_ns;
    int refused = refuses_sends(d);
    d->looks.stalled = is_stalled(d, now);
    return sc_io_look(&d->io) || refused || d->looks.stalled;
}

int sc_driver_stalled(const sc_driver *d, uint64_t *whose, int64_t *since) {
    *whose = d->looks.slow;
    *since = d->looks.since;
    return d->looks.stalled;
}
