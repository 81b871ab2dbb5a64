/* Acks, credit, stability, NAK service, tail probes: what runs on a timer or answers a datagram without a payload. These
 * datagrams have a queue of their own that no data window blocks. */
#include "engine/internal.h"

/* A new datagram in the queue, its common header filled; the caller fills the body. NULL when the bound is hit. */
uint8_t *sc_out_new(sc_engine *e, int lane, const sc_address *to, uint8_t type, size_t len) {
    sc_out *o = e->out_bytes + len > e->config.control_bytes_max ? NULL : malloc(sizeof *o + len);
    if (!o) {
        e->counters.drop_control_full++;
        return NULL;
    }
    o->next = NULL;
    o->lane = lane;
    memset(&o->to, 0, sizeof o->to);
    if (to) o->to = *to;
    o->len = (uint32_t)len;
    memset(o->p, 0, len);
    sc_wire_head(o->p, type, e->config.group, e->config.member, e->in_view ? e->view.tag : 0);
    *e->out_last = o;
    e->out_last = &o->next;
    e->out_bytes += len;
    return o->p;
}

/* ---- acks: the receiver's side ------------------------------------------------------------------------------ */

uint64_t sc_window_of(const sc_engine *e, int stream) {
    return stream == SC_STREAM_GROUP     ? e->view.window_bytes
           : stream == SC_STREAM_UNICAST ? e->view.unicast_window_bytes
           : stream == SC_STREAM_FORWARD ? e->view.forward_window_bytes
                                         : e->view.state_window_bytes;
}

static void ack(sc_engine *e, sc_peer *peer, int stream) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    rx->ack_due = SC_NEVER;
    rx->unacked_bytes = 0;
    if (peer->lost) return;
    uint8_t *p = sc_out_new(e, SC_LANE_UNICAST, &peer->address, SC_TYPE_ACK, SC_ACK_LEN);
    if (!p) {
        rx->ack_due = e->now + e->config.ack_delay_ns;
        return;
    }
    if (sc_of_pair((uint64_t)stream)) sc_put_view_tag(p, peer->pair);
    sc_put_ack_stream(p, (uint64_t)stream);
    sc_put_ack_delivered(p, rx->consumed >= rx->queued ? rx->consumed : rx->queued - 1);
    sc_put_ack_received(p, rx->highest);
    sc_put_ack_consumed(p, rx->consumed);
    rx->acked_consumed = rx->consumed;
    e->counters.acks_sent++;
}

/* The receivers of a multicast have one reason to answer at one time: each takes another moment in the second half of the
 * delay (STA-04), so that their acks do not meet in the sender's buffer. */
void sc_flow_progress(sc_engine *e, sc_rx_stream *rx, int stream, int64_t now) {
    if (rx->ack_due != SC_NEVER) return;
    rx->ack_due = now + e->config.ack_delay_ns;
    if (stream == SC_STREAM_GROUP && e->view.n > 2)
        rx->ack_due -= (int64_t)(sc_random(e) % (uint64_t)(e->config.ack_delay_ns / 2 + 1));
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static int ack_is_due(const sc_engine *e, const sc_rx_stream *rx, int stream) {
    uint64_t window = sc_window_of(e, stream), ring = e->config.ring_packets;
    uint64_t bytes = e->config.ack_bytes ? least(e->config.ack_bytes, window / 2) : window / 4;
    uint64_t packets = e->config.ack_packets ? least(e->config.ack_packets, ring / 2) : ring / 8;
    return rx->unacked_bytes >= bytes || rx->consumed - rx->acked_consumed >= packets;
}

/* `bytes` more were consumed (STA-02): an ack at once by their sum or the number of packets, else with the timer. */
void sc_flow_consumed(sc_engine *e, sc_peer *peer, int stream, uint64_t bytes, int64_t now) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    rx->unacked_bytes += sc_charge((uint32_t)bytes, bytes == e->view.packet_bytes); /* as the sender counts it */
    if (ack_is_due(e, rx, stream))
        ack(e, peer, stream);
    else
        sc_flow_progress(e, rx, stream, now);
}

/* ---- acks: the sender's side -------------------------------------------------------------------------------- */

static void probe_restart(sc_engine *e, sc_tx_stream *tx, int outstanding, int64_t now) {
    tx->probe_wait = e->config.probe_ns_min;
    tx->probe_due = outstanding ? now + tx->probe_wait : SC_NEVER;
}

static int outstanding(const sc_tx_stream *tx, uint64_t acked) { return acked + 1 < tx->unsent; }

/* Recomputes what all receivers of the group stream have delivered (purge) and consumed (credit). */
void sc_flow_recount(sc_engine *e, int64_t now) {
    sc_tx_stream *tx = &e->group;
    uint64_t delivered = tx->unsent - 1, consumed = tx->unsent - 1;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || (peer->lost && !e->still)) continue;
        if (peer->acked.delivered < delivered) delivered = peer->acked.delivered;
        if (!peer->lost && !peer->uncounted && peer->consumed < consumed) consumed = peer->consumed;
    }
    int progress = delivered > tx->stable || consumed > e->peers_consumed;
    e->peers_consumed = consumed;
    if (e->self_consumed < consumed) consumed = e->self_consumed;
    progress |= consumed > tx->consumed;
    if (delivered > tx->stable) tx->stable = delivered;
    sc_tx_credit(tx, consumed);
    sc_tx_purge(tx, consumed < tx->stable ? consumed : tx->stable);
    if (!progress) return;
    e->sendable++;
    probe_restart(e, tx, outstanding(tx, e->peers_consumed), now);
    sc_order_settle(e, now);
    sc_blocked_drain(e);
}

void sc_flow_sent(sc_engine *e, sc_tx_stream *tx, int64_t now) {
    if (tx->probe_due == SC_NEVER) probe_restart(e, tx, 1, now);
    if (tx->stream == SC_STREAM_GROUP && e->view.n == 1) sc_flow_recount(e, now);
}

void sc_on_ack(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    int stream = (int)sc_get_ack_stream(p);
    uint64_t delivered = sc_get_ack_delivered(p), received = sc_get_ack_received(p), consumed = sc_get_ack_consumed(p);
    sc_tx_stream *tx = sc_tx_of(e, peer, stream);
    if (!tx || !tx->packets || consumed > delivered || delivered >= tx->unsent || received >= tx->unsent) {
        e->counters.drop_field++;
        return;
    }
    e->counters.acks_received++;
    if (stream == SC_STREAM_GROUP) {
        if (delivered > peer->acked.delivered) peer->acked.delivered = delivered;
        if (received > peer->acked.received) peer->acked.received = received;
        if (consumed > peer->consumed) peer->consumed = consumed;
        sc_flow_recount(e, now);
        return;
    }
    int progress = delivered > tx->stable || consumed > tx->consumed;
    if (delivered > tx->stable) tx->stable = delivered;
    if (sc_of_pair((uint64_t)stream)) { /* forwards are kept until they come back */
        sc_tx_credit(tx, consumed);
        sc_tx_purge(tx, consumed);
    }
    if (!progress) return;
    e->sendable++;
    probe_restart(e, tx, outstanding(tx, sc_of_pair((uint64_t)stream) ? tx->consumed : tx->stable), now);
    if (stream == SC_STREAM_STATE) sc_state_acked(e, peer);
}

/* ---- NAK service -------------------------------------------------------------------------------------------- */

static int tokens(sc_engine *e, uint32_t bytes, int64_t now) {
    int64_t burst = (int64_t)(e->config.retransmit_bytes_per_s / 50) + 2 * SC_PACKET_MAX;
    int64_t elapsed = now - e->again_refilled;
    if (elapsed > 1000000000) elapsed = 1000000000;
    if (elapsed > 0) {
        e->again_tokens += (int64_t)((double)elapsed * (double)e->config.retransmit_bytes_per_s / 1e9);
        e->again_refilled = now;
    }
    if (e->again_tokens > burst) e->again_tokens = burst;
    if (e->again_tokens < (int64_t)bytes) return 0;
    e->again_tokens -= bytes;
    return 1;
}

/* A member may ask again for what is sent for the first time, once over, and a little more with time: else a NAK of
 * 72 bytes draws a window out of us as often as it comes. */
static int share_of(sc_engine *e, sc_peer *requester, uint32_t bytes, int64_t now) {
    int64_t most = 2 * (int64_t)e->config.ring_bytes + 2 * SC_PACKET_MAX;
    int64_t elapsed = now - requester->again_refilled;
    if (elapsed > 1000000000) elapsed = 1000000000;
    requester->again_left += (int64_t)(e->first_bytes - requester->again_sent) +
                             (int64_t)((double)elapsed * (double)e->config.retransmit_bytes_per_s / 64e9);
    requester->again_sent = e->first_bytes;
    requester->again_refilled = now;
    if (requester->again_left > most) requester->again_left = most;
    if (requester->again_left < (int64_t)bytes) return 0;
    requester->again_left -= bytes;
    return 1;
}

/* Is its last retransmission still waiting to be sent? */
static sc_again *waiting(sc_engine *e, const sc_tx_packet *packet) {
    uint64_t place = packet->again - 1 - e->again_gone;
    return packet->again > e->again_gone && place < e->n_again ? &e->again[place] : NULL;
}

/* Queues one retransmission. 0 when a bound is hit: the rest of the NAK would meet the same. */
static int again(sc_engine *e, sc_peer *requester, uint64_t owner, int stream, uint64_t seqno, int64_t now) {
    uint32_t len;
    if (owner == e->config.member) {
        sc_tx_stream *tx = sc_tx_of(e, requester, stream);
        if (!tx || !sc_tx_has(tx, seqno) || seqno >= tx->unsent) {
            e->counters.retransmit_missing++;
            return 1;
        }
        sc_tx_packet *packet = sc_tx_at(tx, seqno);
        int fresh = packet->retransmitted_to && now - packet->retransmitted_at < e->config.retransmit_hold_ns;
        if (fresh && (packet->retransmitted_to == requester->rank + 1 || packet->retransmitted_to == UINT32_MAX)) {
            e->counters.retransmit_held++;
            return 1;
        }
        /* A second member lacks it too, and the first answer has not left: one multicast serves both. */
        sc_again *first = fresh && stream == SC_STREAM_GROUP ? waiting(e, packet) : NULL;
        if (first && first->owner == owner && first->stream == stream && first->seqno == seqno) {
            first->multicast = 1;
            packet->retransmitted_to = UINT32_MAX;
            return 1;
        }
        len = packet->len;
    } else { /* as a holder, for a sender that is gone or does not answer */
        sc_peer *peer = sc_find_peer(e, owner);
        if (!peer || stream != SC_STREAM_GROUP || !peer->group.packets || seqno < peer->group.first ||
            seqno > peer->group.highest || !sc_rx_at(e, &peer->group, seqno)->p) {
            e->counters.retransmit_missing++;
            return 1;
        }
        len = sc_rx_at(e, &peer->group, seqno)->len;
    }
    if (e->n_again == SC_AGAIN_MAX || !share_of(e, requester, len, now) || !tokens(e, len, now)) {
        e->counters.retransmit_limited++;
        return 0;
    }
    if (owner == e->config.member) {
        sc_tx_packet *packet = sc_tx_at(sc_tx_of(e, requester, stream), seqno);
        packet->retransmitted_at = now;
        packet->retransmitted_to = requester->rank + 1;
        packet->again = e->again_gone + e->n_again + 1;
    }
    e->again[e->n_again++] =
        (sc_again){.owner = owner, .seqno = seqno, .stream = stream, .requester = requester->rank, .multicast = 0};
    return 1;
}

/* The seqnos [*least_held, *end) of a stream that `requester` may be served from here, as far as it has not said itself that
 * it has them. 0: none. */
static int held_of(sc_engine *e, sc_peer *requester, uint64_t owner, int stream, uint64_t *least_held, uint64_t *end) {
    uint64_t has = 0;
    if (owner == e->config.member) {
        sc_tx_stream *tx = sc_tx_of(e, requester, stream);
        if (!tx || !tx->packets || (stream == SC_STREAM_FORWARD && (int32_t)requester->rank != e->order.forward_to))
            return 0;
        *least_held = tx->first;
        *end = tx->unsent;
        has = stream == SC_STREAM_GROUP ? requester->acked.delivered : tx->stable;
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
    e->counters.naks_received++;
    uint64_t least_held, end; /* what there can be: nothing else is looked up */
    if (!held_of(e, peer, owner, stream, &least_held, &end)) {
        e->counters.retransmit_missing++;
        return;
    }
    /* In the time between two NAKs for one range nobody lacks more than a ring holds. */
    if (now - peer->naks_refilled >= e->config.nak_backoff_ns_min) {
        peer->naks_left = e->config.ring_packets;
        peer->naks_refilled = now;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t lo = sc_get_nak_lo(p, i), hi = sc_get_nak_hi(p, i);
        if (lo < least_held || hi >= end) e->counters.retransmit_missing++;
        if (lo < least_held) lo = least_held;
        if (hi >= end) hi = end - 1;
        for (uint64_t seqno = lo; seqno <= hi; seqno++) {
            if (peer->naks_left-- <= 0) {
                peer->naks_left = 0;
                e->counters.retransmit_limited++;
                return;
            }
            if (!again(e, peer, owner, stream, seqno, now)) return;
        }
    }
}

/* ---- probes ------------------------------------------------------------------------------------------------- */

#define PROBES_QUICK 3 /* of a group stream, before those that do not answer are probed by unicast, too */

static void say_probe(sc_engine *e, const sc_tx_stream *tx, int lane, const sc_address *to) {
    uint8_t *p = sc_out_new(e, lane, to, SC_TYPE_PROBE, SC_PROBE_LEN);
    if (!p) return;
    if (sc_of_pair((uint64_t)tx->stream)) sc_put_view_tag(p, tx->pair);
    sc_put_probe_stream(p, (uint64_t)tx->stream);
    sc_put_probe_highest(p, tx->unsent - 1);
    sc_put_probe_stable(p, tx->stable);
    e->counters.probes_sent++;
}

static void probe(sc_engine *e, sc_tx_stream *tx, int lane, const sc_address *to, int64_t now) {
    say_probe(e, tx, lane, to);
    tx->probe_wait = tx->probe_wait * 2 < e->config.probe_ns_max ? tx->probe_wait * 2 : e->config.probe_ns_max;
    tx->probe_due = now + tx->probe_wait;
}

/* A receiver that has lost multicast, as behind a switch that forgot it, learns by unicast what it lacks. */
static void probe_group(sc_engine *e, int64_t now) {
    int quick =
        e->group.probe_wait < e->config.probe_ns_min << PROBES_QUICK && e->group.probe_wait < e->config.probe_ns_max;
    for (uint32_t r = 0; r < e->view.n && !quick; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->lost || !outstanding(&e->group, peer->acked.delivered)) continue;
        say_probe(e, &e->group, SC_LANE_UNICAST, &peer->address);
    }
    probe(e, &e->group, SC_LANE_CONTROL, NULL, now);
}

void sc_on_probe(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    int stream = (int)sc_get_probe_stream(p);
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    if (peer->lost || (stream == SC_STREAM_GROUP && e->cut_set)) return;
    sc_rx_stable(e, rx, sc_get_probe_stable(p));
    sc_rx_known(e, rx, sc_get_probe_highest(p), now);
    ack(e, peer, stream);
}

/* ---- time --------------------------------------------------------------------------------------------------- */

void sc_flow_tick(sc_engine *e, int64_t now) {
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank) continue;
        for (int s = SC_STREAM_GROUP; s <= SC_STREAM_STATE; s++)
            if (sc_rx_of(peer, s)->ack_due <= now) ack(e, peer, s);
        sc_tx_stream *of_pair[] = {peer->unicast_tx, peer->state_tx};
        for (int i = 0; i < 2; i++)
            if (of_pair[i] && of_pair[i]->probe_due <= now) probe(e, of_pair[i], SC_LANE_UNICAST, &peer->address, now);
    }
    if (e->group.probe_due <= now) probe_group(e, now);
    if (e->forward.probe_due <= now && e->order.forward_to >= 0)
        probe(e, &e->forward, SC_LANE_UNICAST, &e->peers[e->order.forward_to]->address, now);
}

int64_t sc_flow_deadline(const sc_engine *e) {
    int64_t due = e->group.probe_due;
    if (e->forward.probe_due < due) due = e->forward.probe_due;
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank) continue;
        for (int s = SC_STREAM_GROUP; s <= SC_STREAM_STATE; s++)
            if (sc_rx_of(peer, s)->ack_due < due) due = sc_rx_of(peer, s)->ack_due;
        if (peer->unicast_tx && peer->unicast_tx->probe_due < due) due = peer->unicast_tx->probe_due;
        if (peer->state_tx && peer->state_tx->probe_due < due) due = peer->state_tx->probe_due;
    }
    return due;
}

/* ---- what the log tells ------------------------------------------------------------------------------------- */

int sc_engine_stalled(const sc_engine *e, uint64_t *whose, uint64_t *mark) {
    const sc_tx_stream *tx = e->order.own;
    int forwards = tx == &e->forward;
    if (!e->in_view || !tx->packets || tx->first == tx->next) return 0;
    uint64_t flight = tx->charged - tx->charged_consumed;
    int full = flight && flight + sc_charge(tx->packet_bytes, 1) > tx->window;
    if (!full && tx->next - tx->first <= tx->mask) return 0;
    *mark = tx->consumed;
    *whose = forwards ? e->view.ids[e->order.forward_to] : e->config.member;
    if (forwards) return 1;
    uint64_t least = e->self_consumed;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->lost || peer->uncounted || peer->consumed > least) continue;
        least = peer->consumed;
        *whose = peer->id;
    }
    return 1;
}
