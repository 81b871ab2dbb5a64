/* Transmitting: one thread at a time, on behalf of all. */
#include "io/driver_internal.h"

#include <stdlib.h>

#define TX_RUNS 8
#define FLUSH_NS_MOST 2000000 /* of one thread; then the I/O thread continues */
#define DEADLINE_SLACK_NS 500000
/* After a pause a sender may flush this many messages in a row, each in its own datagram. */
#define FLUSH_BURST 8
#define REST_WAITS 5 /* times `flush_ns_min`, for the rest of an array */

int sc_transmitter_init(sc_transmitter *tx) {
    tx->runs = malloc(TX_RUNS * sizeof *tx->runs);
    if (tx->runs) sc_mutex_init(&tx->lock);
    return tx->runs ? 0 : -1;
}

void sc_transmitter_free(sc_transmitter *tx) {
    free(tx->runs);
    tx->runs = NULL;
}

/* Returns whether there may be more when the time of the flush, which began at `since`, is up. */
static int transmit(sc_driver *d, int all, int64_t since, int64_t now) {
    int n, own;
    int64_t deadline = SC_NEVER;
    if (all && sc_load(&d->tx.rest_since))
        sc_store(&d->tx.rest_since, 0); /* messages packed from here on may wait again */
    for (;;) {
        sc_mutex_lock(d->lock);
        uint64_t sendable = sc_engine_sendable(d->engine);
        n = sc_engine_transmit(d->engine, d->tx.runs, TX_RUNS, now, all);
        int others = sc_engine_targets(d->engine, &d->tx.targets); /* of these runs */
        if (n <= 0) deadline = sc_engine_deadline(d->engine); /* packets that are due are sent first */
        own = sc_engine_deliverable(d->engine) > 0;
        int credit = sc_engine_sendable(d->engine) != sendable; /* lent memory is free again */
        if (own || credit || sc_engine_has_event(d->engine)) sc_tell_engine_news(d);
        sc_mutex_unlock(d->lock);
        if (credit) sc_wake_caller(d, SC_WANT_SENDABLE);
        if (others) sc_io_aim(&d->io, &d->tx.targets);
        if (n <= 0) break;
        sc_io_send(&d->io, d->tx.runs, n);
        now = sc_now();
        if (now - since >= FLUSH_NS_MOST) break;
    }
    /* A tail probe may be due long before the holder of the receive role would check. */
    if (deadline < sc_load(&d->waits.sleep_until) - DEADLINE_SLACK_NS) sc_io_wake(&d->io);
    if (own) sc_wake_caller(d, SC_WANT_DELIVERY); /* sent messages are delivered here too */
    return n > 0;
}

/* While another thread receives, there may always be more to transmit: acks, and at a sequencer the forwards of all. A
 * sender that went on would transmit for others and never return to its caller, and the control thread would handle no
 * event. */
static void hand_over(sc_driver *d, int64_t wanted) {
    sc_or(&d->tx.wanted, wanted);
    sc_add(&d->tx.handed_over, 1);
    sc_mutex_lock(&d->role.lock);
    sc_store(&d->tx.handed, 1);
    sc_kick_io(d);
    sc_mutex_unlock(&d->role.lock);
}

int sc_takes_over(sc_driver *d) { return sc_load(&d->tx.handed) && sc_exchange(&d->tx.handed, 0); }

void sc_driver_flush(sc_driver *d, int all, int64_t since) {
    int64_t wanted = all ? SC_FLUSH_ALL : SC_FLUSH_FULL, now = since;
    int more = 0;
    for (;;) {
        if (!sc_mutex_trylock(&d->tx.lock)) {
            sc_or(&d->tx.wanted, wanted);
            if (!sc_mutex_trylock(&d->tx.lock)) { /* the holder will still check `wanted` */
                sc_add(&d->tx.left, 1);
                return;
            }
        }
        if (!sc_load(&d->stop)) more = transmit(d, wanted == SC_FLUSH_ALL, since, now);
        sc_mutex_unlock(&d->tx.lock);
        if (more) {
            hand_over(d, wanted);
            return;
        }
        wanted = sc_exchange(&d->tx.wanted, 0);
        if (!wanted) return;
        if (wanted & SC_FLUSH_ALL) wanted = SC_FLUSH_ALL;
        now = sc_now();
    }
}

/* ---- messages sent one by one ------------------------------------------------------------------------------- */

/* Transmitting a small packet costs as much as packing a hundred messages, so a stream of single sends gathers: on
 * average one flush in each `flush_ns_min`. `due` advances by that much for each flush and lags behind the clock while
 * there are none; up to FLUSH_BURST of them ahead. So a lone message leaves at once, and so do the first ones after a
 * pause. */
static int64_t at_once_from(const sc_driver *d) { return sc_load(&d->tx.due) - FLUSH_BURST * d->config.flush_ns_min; }

static void note_flush(sc_driver *d, int64_t now) {
    int64_t due = sc_load(&d->tx.due), step = d->config.flush_ns_min;
    sc_store(&d->tx.due, sc_earlier((due > now ? due : now) + step, now + (FLUSH_BURST + 1) * step));
}

static void ask_flush(sc_driver *d) {
    if (sc_load(&d->tx.flush_asked) || sc_exchange(&d->tx.flush_asked, 1)) return;
    sc_mutex_lock(&d->role.lock);
    sc_kick_io(d);
    sc_mutex_unlock(&d->role.lock);
}

int sc_driver_packed(sc_driver *d, uint64_t unsent, int answer, int64_t now) {
    if (unsent == 0) { /* to itself, or transmitted by another thread */
        sc_wake_caller(d, SC_WANT_DELIVERY);
        return SC_FLUSH_NOTHING;
    }
    int at_once = answer || now >= at_once_from(d);
    if (!at_once) ask_flush(d);
    if (!at_once && unsent < d->config.flush_bytes) return SC_FLUSH_NOTHING;
    note_flush(d, now);
    return at_once ? SC_FLUSH_ALL : SC_FLUSH_FULL;
}

/* An array ends with a packet that is not full. Receivers still have a quarter of a window before them, and such a
 * packet costs them and the sender a fifth of a full one: a partial last packet waits for the next array, for up to
 * REST_WAITS times `flush_ns_min` from the first array left waiting. */
int sc_array_packed(sc_driver *d, uint64_t unsent, uint64_t packed, int more, int64_t now) {
    if (unsent == 0) return SC_FLUSH_NOTHING;
    int what = unsent >= d->config.flush_bytes ? SC_FLUSH_FULL : SC_FLUSH_NOTHING;
    /* Messages packed before are not in the last packet any more. */
    int leaves = what == SC_FLUSH_FULL && packed >= SC_PACKET_MAX;
    int64_t since = leaves ? 0 : sc_load(&d->tx.rest_since);
    if (since == 0) sc_store(&d->tx.rest_since, since = now);
    if (more) return what;
    int64_t end = since + REST_WAITS * d->config.flush_ns_min;
    if (now >= end) {
        note_flush(d, now);
        return SC_FLUSH_ALL;
    }
    sc_store(&d->tx.due, end + FLUSH_BURST * d->config.flush_ns_min);
    ask_flush(d);
    return what;
}

int64_t sc_rest_due(const sc_driver *d) {
    int64_t next = at_once_from(d), quiet = (int64_t)sc_counted(&d->turn.packed_at) + d->config.flush_ns_max;
    return next > quiet ? next : quiet;
}

void sc_flush_rest(sc_driver *d) {
    int64_t now = sc_now();
    note_flush(d, now);
    sc_driver_flush(d, 1, now);
}
