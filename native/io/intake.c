/* Intake: datagrams from the sockets go into slabs, and to the engine. */
#include "io/driver_internal.h"

#include <stdlib.h>

int sc_intake_init(sc_round *round) {
    round->scratch = malloc((size_t)SC_IO_BATCH_MAX * SC_SLAB_BYTES);
    return round->scratch ? 0 : -1;
}

/* Under the engine's lock. */
static void give_up_slot(sc_driver *d, int i) {
    if (d->round.shared[i] != NULL) sc_slab_unref(d->round.shared[i]);
    d->round.shared[i] = NULL;
    d->round.in[i].slot = NULL;
}

void sc_intake_free(sc_driver *d) {
    sc_mutex_lock(d->lock);
    for (int i = 0; i < SC_IO_BATCH_MAX; i++) {
        if (d->round.slabs[i] != NULL) sc_slab_unref(d->round.slabs[i]);
        d->round.slabs[i] = NULL;
        give_up_slot(d, i);
    }
    sc_mutex_unlock(d->lock);
    free(d->round.scratch);
    d->round.scratch = NULL;
}

/* A datagram of at least half a slot stays there; a copy of a smaller one takes less. */
static int stays(const sc_driver *d, const sc_io_datagram *in) {
    return in->p == in->slot && in->len >= d->round.room / 2;
}

/* Fills the first `n` receive buffers; under the engine's lock. */
static void prepare(sc_driver *d, int n) {
    sc_slab_pool *pool = sc_engine_pool(d->engine);
    for (int i = 0; i < n; i++) {
        if (d->round.shared[i] != NULL && (!d->round.small || stays(d, &d->round.in[i]))) give_up_slot(d, i);
        if (d->round.small && d->round.in[i].slot == NULL)
            d->round.in[i].slot = sc_slab_share(pool, &d->round.sharing, d->round.room, &d->round.shared[i]);
        if (d->round.slabs[i] != NULL && d->round.slabs[i]->refs > 1) { /* kept by the engine */
            sc_slab_unref(d->round.slabs[i]);
            d->round.slabs[i] = NULL;
        }
        if (d->round.slabs[i] == NULL) d->round.slabs[i] = sc_slab_get(pool);
        d->round.in[i].whole =
            d->round.slabs[i] != NULL ? d->round.slabs[i]->data : d->round.scratch + (size_t)i * SC_SLAB_BYTES;
    }
}

/* The slab in which a datagram may stay, or NULL. */
static sc_slab *slab_of(const sc_driver *d, int i) {
    const sc_io_datagram *in = &d->round.in[i];
    if (in->p == in->slot) return stays(d, in) ? d->round.shared[i] : NULL;
    return in->len < SC_SLAB_BYTES / 4 ? NULL : d->round.slabs[i]; /* a copy costs less than the rest of the slab */
}

/* Slots are as large as a full packet of the view that the last timers found, if several of them share a slab. */
void sc_intake_measure(sc_driver *d) {
    size_t room = sc_engine_packet_bytes(d->engine);
    if (room > SC_SLAB_BYTES / 4) room = 0;
    if (room == d->round.room) return;
    for (int i = 0; i < SC_IO_BATCH_MAX; i++) give_up_slot(d, i);
    d->round.room = room;
}

/* Passes received datagrams to the engine; returns their bytes. */
static uint64_t take_in(sc_driver *d, int got, int *urgent) {
    uint64_t bytes = 0;
    int64_t now = sc_now();
    sc_count(&d->round.came, (uint64_t)now - d->round.came);
    sc_mutex_lock(d->lock);
    uint64_t before = sc_engine_unsent(d->engine), stamped = sc_engine_stamped(d->engine);
    size_t largest = 0;
    for (int i = 0; i < got; i++) {
        const sc_io_datagram *in = &d->round.in[i];
        bytes += in->len;
        if (in->len > largest) largest = in->len;
        d->round.pace.packets += in->segment > 0 ? in->len / in->segment + 1 : 1;
        sc_engine_receive(d->engine, slab_of(d, i), in->p, in->len, in->segment, &in->from, now);
    }
    d->round.small = largest <= d->round.room;
    prepare(d, got); /* the others are as they were */
    sc_tell_engine_news(d);
    /* Acks and the like, and complete packets that a sequencer has just stamped. */
    *urgent |= sc_engine_urgent(d->engine) || sc_engine_unsent(d->engine) > before;
    if (sc_engine_stamped(d->engine) != stamped) d->round.pace.ordered_at = now;
    d->round.gather = sc_engine_window(d->engine) / 4;
    sc_mutex_unlock(d->lock);
    return bytes;
}

/* Each datagram that a call may bring costs preparation, and if fewer have come the kernel looks for another one in
 * vain. So the first call asks for `first`, and calls continue as long as each is filled; but a thread that spins asks
 * for SC_RECEIVE_ONE, which the application gets at once. */
static uint64_t receive_lane(sc_driver *d, int lane, int first, int *urgent) {
    int got, asked, batch = first, most = d->io.config.receive_batch;
    uint64_t bytes = 0;
    do {
        asked = batch < most ? batch : most;
        got = sc_io_receive(&d->io, lane, d->round.in, asked, asked > SC_RECEIVE_ONE ? d->round.room : 0);
        if (got == 0) break;
        if (d->round.in[got - 1].len < SC_SLAB_BYTES / 4) batch = most;
        bytes += take_in(d, got, urgent);
    } while (first != SC_RECEIVE_ONE && got == asked && bytes < SC_ROUND_BYTES_MAX);
    return bytes;
}

uint64_t sc_intake(sc_driver *d, int lanes, int first, int *urgent) {
    static const int order[SC_IO_SOCKETS] = {SC_LANE_CONTROL, SC_LANE_UNICAST, SC_LANE_DATA};
    uint64_t bytes = 0;
    if (d->round.in[0].whole == NULL) { /* the first round */
        sc_mutex_lock(d->lock);
        prepare(d, d->io.config.receive_batch);
        sc_mutex_unlock(d->lock);
    }
    for (int k = 0; k < SC_IO_SOCKETS; k++) {
        uint64_t got = lanes & 1 << order[k] ? receive_lane(d, order[k], first, urgent) : 0;
        if (got && order[k] != SC_LANE_CONTROL) d->round.talk = order[k];
        bytes += got;
    }
    return bytes;
}
