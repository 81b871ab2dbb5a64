/* Transmitting: one thread at a time, on behalf of all. */
#include "io/parts.h"

#include <stdlib.h>

#define TX_RUNS 8
#define DEADLINE_SLACK_NS 500000
#define STREAM_PAUSE_NS 3000

int sc_transmitter_init(sc_transmitter *tx) {
    tx->runs = malloc(TX_RUNS * sizeof *tx->runs);
    if (tx->runs) sc_mutex_init(&tx->lock);
    return tx->runs ? 0 : -1;
}

void sc_transmitter_free(sc_transmitter *tx) {
    free(tx->runs);
    tx->runs = NULL;
}

static void transmit(sc_driver *d, int all) {
    int n, own;
    int64_t deadline;
    do {
        int64_t now = sc_now();
        sc_mutex_lock(d->lock);
        uint64_t sendable = sc_engine_sendable(d->engine);
        n = sc_engine_transmit(d->engine, d->tx.runs, TX_RUNS, now, all);
        deadline = sc_engine_deadline(d->engine);
        own = sc_engine_deliverable(d->engine) > 0;
        int credit = sc_engine_sendable(d->engine) != sendable; /* lent memory is free again */
        if (own || credit) sc_tell_engine_news(d);
        sc_mutex_unlock(d->lock);
        if (credit) sc_wake_caller(d, SC_WANT_SENDABLE);
        sc_store(&d->tx.last, now);
        if (n > 0) sc_io_send(&d->io, d->tx.runs, n);
    } while (n > 0);
    /* A tail probe may be due long before the holder of the receive role would check. */
    if (deadline < sc_load(&d->waits.sleep_until) - DEADLINE_SLACK_NS) sc_io_wake(&d->io);
    if (own) sc_wake_caller(d, SC_WANT_DELIVERY); /* sent messages are delivered here too */
}

void sc_driver_flush(sc_driver *d, int all) {
    int64_t wanted = all ? SC_FLUSH_ALL : SC_FLUSH_FULL;
    do {
        if (!sc_mutex_trylock(&d->tx.lock)) {
            sc_or(&d->tx.wanted, wanted);
            if (!sc_mutex_trylock(&d->tx.lock)) { /* the holder will still check `wanted` */
                sc_add(&d->tx.left, 1);
                return;
            }
        }
        if (!sc_load(&d->stop)) transmit(d, wanted == SC_FLUSH_ALL);
        sc_mutex_unlock(&d->tx.lock);
        wanted = sc_exchange(&d->tx.wanted, 0);
        if (wanted & SC_FLUSH_ALL) wanted = SC_FLUSH_ALL;
    } while (wanted);
}

static void ask_flush(sc_driver *d) {
    if (sc_exchange(&d->tx.flush_asked, 1)) return;
    sc_mutex_lock(&d->role.lock);
    sc_kick_io(d);
    sc_mutex_unlock(&d->role.lock);
}

int sc_driver_packed(sc_driver *d, uint64_t unsent, int64_t now) {
    if (unsent == 0) return SC_FLUSH_NOTHING;
    sc_store(&d->tx.sent_since, 1);
    /* A pause between sends means the caller is not streaming: its message leaves at once. */
    int pause = now - sc_exchange(&d->tx.last_pack, now) >= STREAM_PAUSE_NS;
    if (pause || now - sc_load(&d->tx.last) >= d->config.flush_ns_min) return SC_FLUSH_ALL;
    ask_flush(d);
    return unsent >= d->config.flush_bytes ? SC_FLUSH_FULL : SC_FLUSH_NOTHING;
}

void sc_driver_flush_packed(sc_driver *d, int what) {
    if (what == SC_FLUSH_NOTHING) return;
    sc_driver_flush(d, what == SC_FLUSH_ALL);
    sc_store(&d->tx.last_pack, sc_now()); /* the time spent flushing is not a pause */
}
