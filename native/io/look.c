/* Unreported faults, for which the control thread looks regularly: of the interface, and sends that the kernel
 * refuses. Checked in C: in Python, each look would cost busy threads milliseconds. */
#include "io/driver_internal.h"

/* Have sends failed since the last look, or are segments no longer taken? */
static int refuses_sends(sc_driver *d) {
    sc_looks *looks = &d->looks;
    uint64_t errors = sc_counted(&d->io.counters->send_errors);
    int segments = (int)sc_load(&d->io.gso), refused = errors != looks->send_errors || segments < looks->segments;
    looks->send_errors = errors;
    looks->segments = segments;
    return refused;
}

int sc_look(sc_driver *d, int64_t now) {
    d->looks.due = now + d->config.look_ns;
    int refused = refuses_sends(d);
    return sc_io_look(&d->io) || refused;
}
