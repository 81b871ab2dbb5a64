/* Answers NAKs: which packets are retransmitted, to whom, and how often at most. */
#include "engine/internal.h"

#define REPEATS 12 /* of one packet in vain: chance does not lose as many */
#define LONG_NS 1000000000 /* in which they were asked for */

static int allowed(sc_engine *e, uint32_t bytes, int64_t now) {
    int64_t per_s = (int64_t)e->config.retransmit_bytes_per_s;
    return sc_budget_spend(&e->again.budget, bytes, per_s, per_s / 50 + 2 * SC_PACKET_MAX, now);
}

/* A member may request as much as is sent for the first time, and a little more over time: otherwise every NAK of 72
 * bytes could draw a whole window from us. */
static int share_of(sc_engine *e, sc_peer *requester, uint32_t bytes, int64_t now) {
    int64_t most = 2 * (int64_t)e->config.ring_bytes + 2 * SC_PACKET_MAX;
    int64_t elapsed = now - requester->again.refilled;
    if (elapsed > 1000000000) elapsed = 1000000000;
    requester->again.left += (int64_t)(e->lent.first_bytes - requester->again.sent) +
                             (int64_t)((double)elapsed * (double)e->config.retransmit_bytes_per_s / 64e9);
    requester->again.sent = e->lent.first_bytes;
    requester->again.refilled = now;
    if (requester->again.left > most) requester->again.left = most;
    if (requester->again.left < (int64_t)bytes) return 0;
    requester->again.left -= bytes;
    return 1;
}

/* The newest repeat of a packet that has not left yet; `last` is where its slot says that it was queued, perhaps of
 * another packet. */
static sc_again *waiting(sc_engine *e, uint32_t last, uint64_t owner, int stream, uint64_t seqno) {
    uint32_t place = last - 1 - (uint32_t)e->again.gone;
    sc_again *at = place < e->again.n ? &e->again.queue[place] : NULL;
    return at && at->owner == owner && at->stream == stream && at->seqno == seqno ? at : NULL;
}

/* Does one of them go to this member? */
static int will_come(const sc_engine *e, const sc_again *at, const sc_peer *requester) {
    for (; at; at = at->back && at - e->again.queue >= at->back ? at - at->back : NULL)
        if (at->multicast || at->requester == requester->rank) return 1;
    return 0;
}

/* Does a multicast reach all that may lack a packet of this stream? */
static int is_shared(const sc_engine *e, int stream) {
    return stream == SC_STREAM_GROUP && !e->config.unicast && !e->detect.deaf && !e->sizes.narrow;
}

/* A packet of our own; NULL if not to be sent now, or ever again. */
static sc_tx_packet *own_packet(sc_engine *e, sc_peer *requester, int stream, uint64_t seqno, int64_t now) {
    sc_tx_stream *tx = sc_tx_of(e, requester, stream);
    if (!tx || !sc_tx_has(tx, seqno) || seqno >= tx->unsent) {
        e->counters->retransmit_missing++;
        return NULL;
    }
    sc_tx_packet *packet = sc_tx_at(tx, seqno);
    int fresh = packet->retransmitted_to && now - packet->retransmitted_at < e->config.retransmit_hold_ns;
    int sent = fresh && (packet->retransmitted_to == requester->rank + 1 || packet->retransmitted_to == UINT32_MAX);
    sc_again *first = waiting(e, packet->again, e->config.member, stream, seqno);
    if (sent || will_come(e, first, requester)) {
        e->counters->retransmit_held++;
        return NULL;
    }
    /* A second member lacks the same, and the first answer has not left yet: one multicast serves both, at once, though
     * the path to the first may be full. */
    if (first && is_shared(e, stream)) {
        first->multicast = 1;
        e->again.waits = 0;
        packet->retransmitted_to = UINT32_MAX;
        return NULL;
    }
    return packet;
}

/* A packet that is held here for a sender that is gone or does not answer. */
static sc_rx_packet *held_packet(sc_engine *e, const sc_peer *requester, uint64_t owner, int stream, uint64_t seqno) {
    sc_peer *peer = stream == SC_STREAM_GROUP ? sc_find_peer(e, owner) : NULL;
    const sc_rx_stream *rx = peer ? &peer->group : NULL;
    if (!rx || !rx->packets || seqno < rx->first || seqno > rx->highest || !sc_rx_at(e, rx, seqno)->p) {
        e->counters->retransmit_missing++;
        return NULL;
    }
    sc_rx_packet *packet = sc_rx_at(e, rx, seqno);
    if (!will_come(e, waiting(e, packet->again, owner, stream, seqno), requester)) return packet;
    e->counters->retransmit_held++;
    return NULL;
}

/* Notes a packet that is asked for again and again, and so does not pass: the first that the requester lacks. */
static void note_repeat(sc_engine *e, sc_peer *requester, uint64_t seqno, uint32_t len, int64_t now) {
    sc_peer_again *at = &requester->again;
    if (!at->repeats || seqno < at->lacks || requester->credit.acked.delivered >= at->lacks) {
        at->lacks = seqno;
        at->repeats = 0;
        at->since = now;
        at->told = 0;
    }
    int64_t took = now - at->since;
    if (seqno != at->lacks || requester->detect.starved || ++at->repeats < REPEATS) return;
    if (took < LONG_NS || took < 2 * at->told) return;
    at->told = took;
    sc_event *event = sc_push_event(e, SC_EVENT_LOST, requester->id, e->view.tag, NULL, NULL, 0);
    if (!event) return;
    event->rate = len + e->seal_room;
    event->took = took;
}

/* Repeats that wait for a path leave half of the queue to those of others. */
static int has_room(sc_engine *e, sc_peer *requester, uint32_t len, int64_t now) {
    if (e->again.n >= SC_AGAIN_MAX / 2 && sc_congestion_pause(e, requester, now)) return 0;
    if (e->again.n == SC_AGAIN_MAX || !share_of(e, requester, len, now)) return 0;
    if (allowed(e, len, now)) return 1;
    requester->again.left += len; /* nothing is sent for it */
    return 0;
}

/* `last` is in the packet's slot. */
static void enqueue(sc_engine *e, const sc_again *entry, uint32_t *last) {
    const sc_again *before = waiting(e, *last, entry->owner, entry->stream, entry->seqno);
    sc_again *at = &e->again.queue[e->again.n++];
    *at = *entry;
    at->back = before ? (uint32_t)(at - before) : 0;
    *last = (uint32_t)(e->again.gone + e->again.n);
}

static void note_own(sc_engine *e, sc_peer *requester, sc_tx_packet *sent, int stream, uint64_t seqno, int64_t now) {
    int group = stream == SC_STREAM_GROUP;
    if (!group) sc_congestion_asked(e, requester, sc_tx_of(e, requester, stream), seqno, now);
    sent->retransmitted_at = now;
    sent->retransmitted_to = requester->rank + 1;
    if (group) note_repeat(e, requester, seqno, sent->len, now);
}

/* Queues one retransmission. 0 if a bound was reached: the rest of the NAK would reach that too. */
static int again(sc_engine *e, sc_peer *requester, uint64_t owner, int stream, uint64_t seqno, int64_t now) {
    int own = owner == e->config.member;
    sc_tx_packet *sent = own ? own_packet(e, requester, stream, seqno, now) : NULL;
    sc_rx_packet *held = own ? NULL : held_packet(e, requester, owner, stream, seqno);
    if (!sent && !held) return 1;
    uint32_t len = sent ? sent->len : held->len;
    int group = stream == SC_STREAM_GROUP; /* whose losses are known by seqno, and those of others by their repeats */
    if (sent && group) sc_congestion_asked(e, requester, &e->group, seqno, now);
    int doubtful = !sent || sent->retransmitted_to || !sc_size_fits(e, requester, len);
    if (doubtful) sc_size_doubt(e, requester, len, now);
    if (!has_room(e, requester, len, now)) {
        e->counters->retransmit_limited++;
        return 0;
    }
    if (sent) note_own(e, requester, sent, stream, seqno, now);
    sc_again entry = {.owner = owner, .seqno = seqno, .stream = stream, .requester = requester->rank};
    enqueue(e, &entry, sent ? &sent->again : &held->again);
    return 1;
}

int sc_again_unasked(sc_engine *e, sc_peer *peer, uint64_t seqno, int64_t now) {
    return again(e, peer, e->config.member, SC_STREAM_GROUP, seqno, now);
}

/* The seqnos [*least_held, *end) of a stream that can be served to `requester` from here, without those reported as
 * present there. 0: none. */
static int held_of(sc_engine *e, sc_peer *requester, uint64_t owner, int stream, uint64_t *least_held, uint64_t *end) {
    uint64_t has = 0;
    if (owner == e->config.member) {
        sc_tx_stream *tx = sc_tx_of(e, requester, stream);
        if (!tx || !tx->packets || (stream == SC_STREAM_FORWARD && (int32_t)requester->rank != e->order.forward_to))
            return 0;
        *least_held = tx->first;
        *end = tx->unsent;
        has = stream == SC_STREAM_GROUP ? requester->credit.acked.delivered : tx->stable;
    } else {
        sc_peer *peer = sc_find_peer(e, owner);
        if (!peer || stream != SC_STREAM_GROUP || !peer->group.packets) return 0;
        *least_held = peer->group.first;
        *end = peer->group.highest + 1;
        has = requester->digest[peer->rank].delivered;
    }
    if (has >= *least_held) *least_held = has + 1;
    return *least_held < *end;
}

void sc_on_nak(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    uint64_t owner = sc_get_nak_owner(p);
    int stream = (int)sc_get_nak_stream(p);
    uint32_t n = sc_get_nak_n(p);
    e->counters->naks_received++;
    uint64_t least_held, end; /* the seqnos that can be held: only these are looked up */
    if (!held_of(e, peer, owner, stream, &least_held, &end)) {
        e->counters->retransmit_missing++;
        return;
    }
    /* Between two NAKs for one range no member can lack more than a ring holds. */
    if (now - peer->again.naks_refilled >= e->config.nak_backoff_ns_min) {
        peer->again.naks_left = e->config.ring_packets;
        peer->again.naks_refilled = now;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t lo = sc_get_nak_lo(p, i), hi = sc_get_nak_hi(p, i);
        if (lo < least_held || hi >= end) e->counters->retransmit_missing++;
        if (lo < least_held) lo = least_held;
        if (hi >= end) hi = end - 1;
        for (uint64_t seqno = lo; seqno <= hi; seqno++) {
            if (peer->again.naks_left-- <= 0) {
                peer->again.naks_left = 0;
                e->counters->retransmit_limited++;
                return;
            }
            if (!again(e, peer, owner, stream, seqno, now)) return;
        }
    }
}

/* Requests from a closed view are dropped. */
void sc_again_forget(sc_engine *e) {
    e->again.gone += e->again.n;
    e->again.n = e->again.waits = 0;
    e->again.due = SC_NEVER;
}

/* Where the packet's slot says when it was queued last; NULL: the packet is not kept any more. */
static uint32_t *place_of(sc_engine *e, const sc_again *entry) {
    if (entry->owner == e->config.member) {
        sc_tx_stream *tx = sc_tx_of(e, e->peers[entry->requester], entry->stream);
        return tx && sc_tx_has(tx, entry->seqno) ? &sc_tx_at(tx, entry->seqno)->again : NULL;
    }
    sc_peer *owner = sc_find_peer(e, entry->owner);
    int held = owner && owner->group.packets && entry->seqno >= owner->group.first;
    return held ? &sc_rx_at(e, &owner->group, entry->seqno)->again : NULL;
}

void sc_again_keep(sc_engine *e, uint32_t i, uint32_t kept, int64_t until) {
    e->again.queue[kept] = e->again.queue[i];
    if (!kept || until < e->again.due) e->again.due = until;
}

void sc_again_pop(sc_engine *e, uint32_t kept, uint32_t n) {
    uint32_t end = e->again.n;
    e->again.waits = kept;
    if (!kept) {
        e->again.due = SC_NEVER;
        e->again.n -= n;
        e->again.gone += n;
        memmove(e->again.queue, e->again.queue + n, e->again.n * sizeof *e->again.queue);
        return;
    }
    if (kept == n) return;
    e->again.gone += end;
    e->again.n = 0;
    for (uint32_t i = 0; i < end; i = i + 1 == kept ? n : i + 1) {
        sc_again entry = e->again.queue[i];
        uint32_t *last = place_of(e, &entry);
        if (last)
            enqueue(e, &entry, last);
        else if (i < kept)
            e->again.waits--;
        e->counters->retransmit_missing += !last;
    }
}

int sc_again_ready(const sc_engine *e) { return e->again.n > e->again.waits; }

void sc_again_tick(sc_engine *e, int64_t now) {
    if (e->again.due > now) return;
    e->again.due = SC_NEVER;
    e->again.waits = 0;
}

int64_t sc_again_deadline(const sc_engine *e) { return e->again.due; }

void sc_again_peer_begin(sc_engine *e, sc_peer *peer, int64_t now) {
    peer->again.repeats = 0;
    peer->again.left = 2 * (int64_t)e->config.ring_bytes;
    peer->again.sent = e->lent.first_bytes;
    peer->again.refilled = now;
}
