/* Acks: what a receiver reports about a stream, and what its sender derives from it: credit and stability. */
#include "engine/self.h"

/* ---- the receiver's side ------------------------------------------------------------------------------------- */

uint64_t sc_window_of(const sc_engine *e, int stream) {
    return stream == SC_STREAM_GROUP     ? e->view.window_bytes
           : stream == SC_STREAM_UNICAST ? e->view.unicast_window_bytes
           : stream == SC_STREAM_FORWARD ? e->view.forward_window_bytes
                                         : e->view.state_window_bytes;
}

void sc_ack(sc_engine *e, sc_peer *peer, int stream) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    rx->ack_due = SC_NEVER;
    rx->unacked_bytes = 0;
    if (peer->cut.lost) return;
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

/* All receivers of a multicast would answer at the same time: each picks a different moment in the second half of the delay
 * (STA-04), so that their acks do not collide in the sender's buffer. */
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

/* `bytes` more were consumed (STA-02): an ack at once if enough bytes or packets have accumulated, otherwise by timer. */
void sc_flow_consumed(sc_engine *e, sc_peer *peer, int stream, uint64_t bytes, int64_t now) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    rx->unacked_bytes += sc_charge((uint32_t)bytes, bytes == e->view.packet_bytes); /* as the sender counts it */
    if (ack_is_due(e, rx, stream))
        sc_ack(e, peer, stream);
    else
        sc_flow_progress(e, rx, stream, now);
}

/* ---- the sender's side --------------------------------------------------------------------------------------- */

/* Recomputes what all receivers of the group stream have delivered (purge) and consumed (credit). */
void sc_flow_recount(sc_engine *e, int64_t now) {
    e->credit.due = 0;
    sc_tx_stream *tx = &e->group;
    uint64_t delivered = tx->unsent - 1, consumed = tx->unsent - 1;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || (peer->cut.lost && !e->cut.still)) continue;
        if (peer->credit.acked.delivered < delivered) delivered = peer->credit.acked.delivered;
        if (!peer->cut.lost && !peer->cut.uncounted && peer->credit.consumed < consumed)
            consumed = peer->credit.consumed;
    }
    int progress = delivered > tx->stable || consumed > e->credit.peers;
    e->credit.peers = consumed;
    if (e->credit.self < consumed) consumed = e->credit.self;
    progress |= consumed > tx->consumed;
    if (delivered > tx->stable) tx->stable = delivered;
    sc_tx_credit(tx, consumed);
    sc_tx_purge(tx, consumed < tx->stable ? consumed : tx->stable);
    if (!progress) return;
    sc_may_send(e);
    sc_tx_probe_restart(e, tx, sc_tx_outstanding(tx, e->credit.peers), now);
}

/* The own application has taken the own group stream up to here. */
void sc_flow_self(sc_engine *e, uint64_t seqno) {
    if (seqno <= e->credit.self) return;
    e->credit.self = seqno;
    e->credit.due = 1;
}

void sc_flow_sent(sc_engine *e, sc_tx_stream *tx, int64_t now) {
    if (tx->probe_due == SC_NEVER) sc_tx_probe_restart(e, tx, 1, now);
    if (tx->stream == SC_STREAM_GROUP && e->view.n == 1) e->credit.due = 1; /* there is nobody else to ack it */
}

/* For a group stream: the minima over all receivers are recomputed when the engine settles. */
static void group_acked(sc_engine *e, sc_peer *peer, const uint8_t *p) {
    uint64_t delivered = sc_get_ack_delivered(p), received = sc_get_ack_received(p), consumed = sc_get_ack_consumed(p);
    if (delivered > peer->credit.acked.delivered) peer->credit.acked.delivered = delivered;
    if (received > peer->credit.acked.received) peer->credit.acked.received = received;
    if (consumed > peer->credit.consumed) peer->credit.consumed = consumed;
    e->credit.due = 1;
}

/* For a stream to one member. Forwards are kept until they come back. */
static void stream_acked(sc_engine *e, sc_tx_stream *tx, uint64_t delivered, uint64_t consumed, int64_t now) {
    int of_pair = sc_of_pair((uint64_t)tx->stream), progress = delivered > tx->stable || consumed > tx->consumed;
    if (delivered > tx->stable) tx->stable = delivered;
    if (of_pair) {
        sc_tx_credit(tx, consumed);
        sc_tx_purge(tx, consumed);
    }
    if (!progress) return;
    sc_may_send(e);
    sc_tx_probe_restart(e, tx, sc_tx_outstanding(tx, of_pair ? tx->consumed : tx->stable), now);
    sc_tx_release(e, tx);
}

void sc_on_ack(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    uint64_t delivered = sc_get_ack_delivered(p), received = sc_get_ack_received(p), consumed = sc_get_ack_consumed(p);
    sc_tx_stream *tx = sc_tx_of(e, peer, (int)sc_get_ack_stream(p));
    if (!tx || !tx->packets || consumed > delivered || delivered >= tx->unsent || received >= tx->unsent) {
        e->counters.drop_field++;
        return;
    }
    e->counters.acks_received++;
    if (tx == &e->group)
        group_acked(e, peer, p);
    else
        stream_acked(e, tx, delivered, consumed, now);
}

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
    uint64_t least = e->credit.self;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->cut.lost || peer->cut.uncounted || peer->credit.consumed > least) continue;
        least = peer->credit.consumed;
        *whose = peer->id;
    }
    return 1;
}

/* A view begins: the own group stream continues after `base`. */
void sc_credit_begin(sc_engine *e, uint64_t base) { e->credit = (sc_credit){.self = base, .peers = base}; }

void sc_credit_due(sc_engine *e) { e->credit.due = 1; }

void sc_credit_peer_begin(sc_peer *peer, uint64_t base) {
    peer->credit = (sc_peer_credit){.acked = {base, base}, .consumed = base};
}
