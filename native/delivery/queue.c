/* Delivery queue: ordered packets wait here for the application, with markers in their true position. Packets that
 * leave give credit. */
#include "engine/internal.h"

#define QUEUE_FIRST 256u
#define WAITS 4 /* this part of a sender's share may wait for an application that skips; */
#define KEEPS 8 /* this part is left then */
#define CHARGE_MOST(bytes, packets) (2 * (bytes) + 1056 * (packets)) /* the most that sc_charge makes of them */

static sc_delivery *at(const sc_engine *e, uint64_t position) {
    return &e->queue.entries[position & (e->queue.cap - 1)];
}

/* Makes room for one more in a ring of deliveries, which grows as needed; windows bound its contents. 0 without
 * memory. */
static int make_room(sc_delivery **entries, uint64_t head, uint64_t tail, uint64_t *cap) {
    if (tail - head < *cap) return 1;
    uint64_t larger = *cap ? *cap * 2 : QUEUE_FIRST;
    sc_delivery *moved = malloc(larger * sizeof *moved);
    if (!moved) return 0;
    for (uint64_t i = head; i < tail; i++) moved[i & (larger - 1)] = (*entries)[i & (*cap - 1)];
    free(*entries);
    *entries = moved;
    *cap = larger;
    return 1;
}

/* NULL without memory. */
static sc_delivery *push(sc_engine *e) {
    if (e->queue.head == e->queue.tail) e->queue.head = e->queue.tail = 0; /* empty: reuse the warm cache lines */
    if (!make_room(&e->queue.entries, e->queue.head, e->queue.tail, &e->queue.cap)) return NULL;
    return at(e, e->queue.tail++);
}

static int is_to_self(const sc_engine *e, const sc_delivery *d) {
    return d->stream == SC_STREAM_UNICAST && d->sender == e->config.member;
}

/* Was the packet in our own group stream of its view, which may carry forwards of others, too? */
static int is_carried(const sc_engine *e, const sc_delivery *d) {
    return d->stream == SC_STREAM_GROUP && d->carrier == e->view.rank;
}

static void credit(sc_engine *e, const sc_delivery *d, int64_t now) {
    if (is_to_self(e, d)) {
        e->queue.self_bytes -= d->len;
        sc_may_send(e);
        return;
    }
    if (d->stream == SC_STREAM_GROUP) {
        if (d->epoch != e->epoch) return; /* of a closed view: nobody waits for its credit */
        if (d->carrier == e->view.rank) {
            sc_credit_self(e, d->seqno);
            return;
        }
    }
    sc_peer *peer = d->stream == SC_STREAM_GROUP ? e->peers[d->carrier] : sc_find_peer(e, d->sender);
    if (!peer || (sc_of_pair((uint64_t)d->stream) && d->pair != peer->pair)) return;
    sc_rx_stream *rx = sc_rx_of(peer, d->stream);
    if (d->seqno > rx->consumed) rx->consumed = d->seqno;
    rx->queue_bytes -= d->len;
    sc_rx_consumed(rx);
    sc_ack_consumed(e, peer, d->stream, d->len, now);
}

static int pass_on(sc_engine *e, const sc_delivery *d) {
    sc_delivery *place = push(e);
    if (!place) return 0;
    *place = *d;
    e->queue.bytes += d->len;
    return 1;
}

/* ---- the gate of safe delivery --------------------------------------------------------------------------------- */

/* Safe delivery. A member acknowledges a packet of a group stream once in order there, with all earlier ones; so a
 * packet that is stable is in order at every member of the view, which will deliver that packet in this place, or
 * crash. The packet is passed on then, and not before.
 *
 * Stability in a safe view counts every member until the view is over, also one that is lost, and the sender itself,
 * which may wait for an order of its own packet (streams/credit.c). Messages not known to be stable when the view ends
 * are delivered then, and is transitional if a member was lost: all survivors have them, in one order, and the lost
 * member may not. */

static sc_delivery *gate_at(const sc_engine *e, uint64_t position) {
    return &e->gate.entries[position & (e->gate.cap - 1)];
}

/* NULL without memory. */
static sc_delivery *hold_back(sc_engine *e) {
    if (!make_room(&e->gate.entries, e->gate.head, e->gate.tail, &e->gate.cap)) return NULL;
    return gate_at(e, e->gate.tail++);
}

static int is_stable(const sc_engine *e, const sc_delivery *d) {
    uint64_t stable = d->carrier == e->view.rank ? e->group.stable : e->peers[d->carrier]->group.stable;
    return d->seqno <= stable;
}

void sc_gate_release(sc_engine *e) {
    while (e->gate.head < e->gate.tail && is_stable(e, gate_at(e, e->gate.head))) {
        if (!pass_on(e, gate_at(e, e->gate.head))) return;
        e->gate.head++;
    }
}

static void drop(sc_engine *e, const sc_delivery *d) {
    if (d->own) e->queue.own_bytes -= d->len;
    sc_slab_unref(d->slab);
}

void sc_gate_flush(sc_engine *e, int undecided) {
    sc_gate_release(e);
    for (; e->gate.head < e->gate.tail; e->gate.head++) {
        sc_delivery *d = gate_at(e, e->gate.head);
        d->transitional |= undecided;
        if (!pass_on(e, d)) drop(e, d);
    }
}

void sc_gate_drop(sc_engine *e) {
    sc_gate_release(e);
    for (; e->gate.head < e->gate.tail; e->gate.head++) drop(e, gate_at(e, e->gate.head));
}

/* ---- into the queue --------------------------------------------------------------------------------------------- */

/* For the application: anything but its own multicasts, if it does without those (DIG-08). */
static int is_wanted(const sc_engine *e, const sc_delivery *d) {
    return e->config.receive && (d->sender != e->config.member || e->config.deliver_own || is_to_self(e, d));
}

/* Into the queue, or to the place for packets that are not stable yet. Field by field: a copy of memory just written in
 * other pieces would wait for them. */
static int admit(sc_engine *e, const sc_delivery *d, uint64_t pair) {
    int held = d->stream == SC_STREAM_GROUP && e->view.safe;
    sc_delivery *place = held ? hold_back(e) : push(e);
    if (!place) return 0;
    place->p = d->p;
    place->slab = d->slab;
    place->sender = d->sender;
    place->seqno = d->seqno;
    place->number = d->number;
    place->global = d->global;
    place->pair = pair;
    place->view_tag = e->view.tag;
    place->epoch = e->epoch;
    place->len = d->len;
    place->carrier = d->carrier;
    place->rank = d->rank;
    place->stream = d->stream;
    place->inside = 0;
    place->gap = 0;
    place->own = d->own;
    place->transitional = e->queue.transitional && d->global != 0;
    if (!held) e->queue.bytes += d->len;
    return 1;
}

/* Takes its own reference to the slab. 0 without memory: the packet stays and is tried again. */
int sc_queue_packet(sc_engine *e, const sc_delivery *d) {
    int wanted = is_wanted(e, d);
    sc_peer *peer = sc_of_pair((uint64_t)d->stream) ? sc_find_peer(e, d->sender) : NULL;
    uint64_t pair = peer ? peer->pair : 0;
    if (wanted && !admit(e, d, pair)) return 0;
    if (d->stream == SC_STREAM_GROUP && d->carrier != e->view.rank) peer = e->peers[d->carrier];
    if (peer && peer != sc_self(e)) sc_rx_of(peer, d->stream)->queue_bytes += d->len;
    if (is_to_self(e, d)) e->queue.self_bytes += d->len;
    e->counters->packets_delivered++;
    if (!wanted) {
        sc_delivery skipped = *d;
        skipped.epoch = e->epoch;
        skipped.pair = pair;
        sc_taken_hand(e, &skipped, 1);
        credit(e, &skipped, e->now);
        return 1;
    }
    sc_slab_ref(d->slab);
    if (d->own) e->queue.own_bytes += d->len;
    e->queue.carried += is_carried(e, d);
    return 1;
}

/* A packet of our own group stream: copied, so that the send ring need not wait for the application. */
void sc_queue_own(sc_engine *e, const uint8_t *p, uint32_t len, uint64_t seqno, uint64_t number, uint64_t global) {
    if (e->view.safe) sc_credit_due(e); /* in order here */
    if (e->config.receive && e->config.deliver_own) {
        sc_slab *slab;
        uint8_t *copy = sc_slab_copy_own(e->pool, NULL, p, len, &slab);
        if (copy) {
            sc_queue_packet(e, &(sc_delivery){.p = copy,
                                              .len = len,
                                              .slab = slab,
                                              .own = 1,
                                              .stream = SC_STREAM_GROUP,
                                              .carrier = (uint16_t)e->view.rank,
                                              .rank = (uint16_t)e->view.rank,
                                              .sender = e->config.member,
                                              .seqno = seqno,
                                              .number = number,
                                              .global = global});
            sc_slab_unref(slab);
            return;
        }
        e->counters->drop_slabs++; /* without memory */
    }
    e->queue.passed = seqno; /* taken once the forwards before are: else those of a sequencer would pile up here */
    if (!e->queue.carried) sc_credit_self(e, seqno);
}

int sc_queue_marker(sc_engine *e, uint64_t marker, int inside) {
    sc_delivery *d = push(e);
    if (!d) return -1;
    *d = (sc_delivery){.number = marker, .inside = inside != 0, .epoch = e->epoch, .view_tag = e->view.tag};
    e->queue.markers++;
    return 0;
}

/* ---- skipped packets: streams/slow.c has the rule ---------------------------------------------------------------- */

static int is_gap_of(const sc_engine *e, const sc_delivery *d, const sc_peer *peer) {
    return d->gap && d->epoch == e->epoch && d->carrier == peer->rank;
}

static int is_packet_of(const sc_engine *e, const sc_delivery *d, const sc_peer *peer) {
    return d->p && d->stream == SC_STREAM_GROUP && d->epoch == e->epoch && d->carrier == peer->rank;
}

/* The packet joins the gap before, or becomes one (NULL). */
static void skip(sc_engine *e, sc_delivery *d, sc_delivery *gap, int64_t now) {
    uint8_t flags = sc_get_flags(d->p);
    sc_delivery packet = *d;
    if (!gap) {
        gap = d;
        gap->gap = 1;
        gap->ends = 0;
        gap->continues = (flags & SC_FLAG_CONT_IN) != 0;
        e->queue.markers++;
    }
    gap->number = packet.number;
    gap->ends += sc_get_pieces(packet.p) - (flags & SC_FLAG_CONT_OUT ? 1u : 0u);
    gap->open = (flags & SC_FLAG_CONT_OUT) != 0;
    gap->p = NULL;
    gap->slab = NULL;
    credit(e, &packet, now);
    e->queue.bytes -= packet.len;
    e->counters->packets_skipped++;
    sc_slab_unref(packet.slab);
}

/* Does more wait for the application than a part of the sender's share, or of the places for packets? */
static int waits_more(const sc_engine *e, const sc_rx_stream *rx, uint64_t part) {
    uint64_t packets = sc_rx_delivered(rx) - rx->consumed;
    return CHARGE_MOST(rx->queue_bytes, packets) > e->view.share_bytes / part ||
           packets > e->config.ring_packets / part / 2;
}

/* All other entries move up, so the queue stays small however long an application takes nothing. */
static void skip_oldest(sc_engine *e, sc_peer *peer, int64_t now) {
    sc_delivery *gap = NULL;
    uint64_t to = e->queue.head;
    for (uint64_t from = e->queue.head; from < e->queue.tail; from++) {
        sc_delivery *d = at(e, from);
        int found = is_gap_of(e, d, peer);
        if (is_packet_of(e, d, peer) && waits_more(e, &peer->group, KEEPS)) {
            found = !gap;
            skip(e, d, gap, now);
            if (!found) continue;
        }
        sc_delivery *place = at(e, to++);
        if (place != d) *place = *d;
        if (found) gap = place;
    }
    e->queue.tail = to;
}

static void skip_now(sc_engine *e, sc_peer *peer, int64_t now) {
    sc_rx_stream *rx = &peer->group;
    if (now < peer->skip.patient || !waits_more(e, rx, WAITS)) return;
    peer->skip.skips = now + e->config.slow_ns;
    peer->skip.mark = sc_rx_delivered(rx);
    skip_oldest(e, peer, now);
    peer->skip.emptied = !rx->queue_bytes;
}

static void skip_queued(sc_engine *e, sc_peer *peer, int64_t now) {
    sc_peer_skip *skip = &peer->skip;
    if (!skip->skips) return;
    int first = sc_rx_delivered(&peer->group) - peer->group.consumed == 1;
    if (first && !skip->emptied) skip->patient = now + e->config.heartbeat_ns; /* the application had taken all */
    skip->emptied = 0;
    skip_now(e, peer, now);
}

/* A sender out of credit sends no more packets to trigger this, so time does, too. */
void sc_skip_look(sc_engine *e, int64_t now) {
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (peer->skip.skips && now >= peer->skip.skips && peer->group.consumed >= peer->skip.mark)
            peer->skip.skips = 0;
        if (peer->skip.skips) skip_now(e, peer, now);
    }
}

void sc_skip_heard(sc_engine *e, sc_peer *peer, int64_t now) {
    if (!e->config.skips || peer->slow.gives_up != e->view.rank + 1) return;
    peer->skip.skips = now + e->config.slow_ns;
    skip_now(e, peer, now);
}

/* A view begins. */
void sc_skip_begin(sc_peer *peer) { peer->skip = (sc_peer_skip){.skips = peer->skip.skips}; }

const sc_delivery *sc_queue_behind(const sc_engine *e, const sc_delivery *gap) {
    for (uint64_t i = e->queue.head + 1; i < e->queue.tail; i++) {
        const sc_delivery *d = at(e, i);
        if (d->p && d->stream == SC_STREAM_GROUP && d->epoch == gap->epoch && d->carrier == gap->carrier) return d;
    }
    return NULL;
}

/* ---- from the receive rings ---------------------------------------------------------------------------------- */

static int deliver(sc_engine *e, sc_peer *peer, int stream, uint32_t rank, uint64_t number, uint64_t global) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    const sc_rx_packet *slot = sc_rx_at(e, rx, rx->queued);
    if (!sc_queue_packet(e, &(sc_delivery){.p = slot->p,
                                           .len = slot->len,
                                           .slab = slot->slab,
                                           .stream = (uint8_t)stream,
                                           .carrier = (uint16_t)peer->rank,
                                           .rank = (uint16_t)rank,
                                           .sender = e->view.ids[rank],
                                           .seqno = rx->queued,
                                           .number = number,
                                           .global = global}))
        return 0;
    rx->queued++;
    if (stream != SC_STREAM_GROUP) return 1;
    if (e->view.safe) sc_ack_ordered(e, peer);
    skip_queued(e, peer, e->now);
    return 1;
}

int sc_rx_deliver(sc_engine *e, sc_peer *peer, uint32_t rank, uint64_t number, uint64_t global) {
    return deliver(e, peer, SC_STREAM_GROUP, rank, number, global);
}

void sc_rx_refuse(sc_engine *e, sc_rx_stream *rx) {
    sc_rx_drop(e, rx);
    sc_rx_gap_add(e, rx, rx->queued, rx->queued, e->now, -1);
}

void sc_queue_unicasts(sc_engine *e, sc_peer *peer) {
    sc_rx_stream *rx = &peer->unicast;
    while (rx->queued < rx->next && deliver(e, peer, SC_STREAM_UNICAST, peer->rank, rx->queued, 0))
        sc_rx_release(e, rx);
}

/* ---- out of the queue ------------------------------------------------------------------------------------------ */

/* The first entry was taken by the application. */
void sc_queue_pop(sc_engine *e, int64_t now) {
    sc_delivery *d = at(e, e->queue.head);
    if (d->p) {
        sc_taken_hand(e, d, 0);
        credit(e, d, now);
        if (d->epoch == e->epoch && is_carried(e, d) && --e->queue.carried == 0) sc_credit_self(e, e->queue.passed);
        e->queue.bytes -= d->len;
        e->queue.taken += d->len;
        if (d->own) {
            e->queue.own_bytes -= d->len;
            if (d->epoch != e->epoch) e->queue.closed_bytes -= d->len;
        }
        sc_slab_unref(d->slab);
    } else {
        e->queue.markers--;
    }
    e->queue.head++;
}

void sc_queue_handed(sc_engine *e, int64_t now) { e->queue.handed = now > 0 ? now : 1; }

uint64_t sc_queue_keep(sc_engine *e, uint64_t bytes, int whole) {
    uint64_t all = e->queue.kept + bytes;
    e->queue.taken -= bytes;
    e->queue.kept = whole ? 0 : all;
    return whole ? all : 0;
}

void sc_queue_unkeep(sc_engine *e) {
    e->queue.taken += e->queue.kept;
    e->queue.kept = 0;
}

void sc_engine_looks(sc_engine *e, int64_t now) {
    e->queue.worked = sc_worked(e, now);
    e->queue.handed = 0;
    e->queue.rests = 0;
}

int64_t sc_engine_rests(sc_engine *e, int64_t now) {
    if (!e->queue.handed) return e->queue.rests;
    sc_engine_looks(e, now);
    return e->queue.rests = now > 0 ? now : 1;
}

void sc_engine_works_on(sc_engine *e, int64_t rest, int64_t now) {
    if (!rest || rest != e->queue.rests) return;
    sc_queue_handed(e, now);
    e->queue.rests = 0;
}

void sc_engine_takes(sc_engine *e, sc_batch *batch, int64_t now) {
    sc_engine_looks(e, now);
    if (!batch) return;
    e->queue.taken += batch->packet_bytes;
    batch->packet_bytes = 0;
    sc_queue_handed(e, now);
}

int sc_engine_works(const sc_engine *e) { return e->queue.handed != 0; }

/* Everything in the queue now belongs to closed views. */
void sc_queue_closed(sc_engine *e) {
    e->queue.closed_bytes = e->queue.own_bytes;
    e->queue.carried = e->queue.passed = 0;
    e->queue.transitional = 0;
}

void sc_queue_transitional(sc_engine *e) { e->queue.transitional = 1; }

void sc_queue_free(sc_engine *e) {
    for (; e->queue.head < e->queue.tail; e->queue.head++)
        if (at(e, e->queue.head)->p) sc_slab_unref(at(e, e->queue.head)->slab);
    free(e->queue.entries);
    for (; e->gate.head < e->gate.tail; e->gate.head++) sc_slab_unref(gate_at(e, e->gate.head)->slab);
    free(e->gate.entries);
}

uint64_t sc_engine_deliverable(const sc_engine *e) { return e->queue.bytes + (e->queue.markers != 0); }
