/* The sequencer's mechanism (S0): forwards become packets of the sequencer's group stream. Which member that is, and
 * when, the policy decides. */
#include "engine/internal.h"

static uint32_t ends(const uint8_t *p) {
    return (uint32_t)sc_get16(p + SC_OFF_PIECES) - ((p[SC_OFF_FLAGS] & SC_FLAG_CONT_OUT) ? 1u : 0u);
}

/* An own packet of the sequencer takes the same path as everyone's (E-07). */
void sc_order_own_packet(sc_engine *e, uint8_t *p, uint32_t messages) {
    sc_put64(p + SC_OFF_ORIGIN_SEQNO, e->origin_next);
    sc_put64(p + SC_OFF_GLOBAL, e->global_next);
    sc_self(e)->returned = e->origin_next++;
    e->global_next += messages;
    e->counters.stamped++;
}

/* Stamps what was forwarded, one packet of each member in turn, while the group stream has credit. */
void sc_order_stamp(sc_engine *e, int64_t now) {
    if (!e->in_view || !sc_is_sequencer(e) || e->gate_closed) return;
    uint32_t idle = 0;
    while (idle < e->view.n) {
        sc_peer *peer = e->peers[e->stamp_turn];
        sc_rx_stream *rx = &peer->forward;
        if (peer->lost || rx->queued >= rx->next) {
            e->stamp_turn = (e->stamp_turn + 1) % e->view.n;
            idle++;
            continue;
        }
        sc_rx_packet *slot = sc_rx_at(e, rx, rx->queued);
        sc_tx_close(e, &e->group); /* the own open packet comes first, and takes its place in the ring */
        if (!sc_tx_may_restamp(&e->group, slot->len)) {
            e->counters.credit_stalls++;
            return;
        }
        idle = 0;
        uint8_t *p = slot->p;
        uint64_t origin = sc_get64(p + SC_OFF_SEQNO);
        uint32_t messages = ends(p);
        p[SC_OFF_TYPE] = SC_TYPE_DATA;
        sc_put64(p + SC_OFF_SENDER, e->config.member);
        sc_put64(p + SC_OFF_SEQNO, e->group.next);
        sc_put64(p + SC_OFF_ORIGIN_SEQNO, origin);
        sc_put16(p + SC_OFF_ORIGIN_RANK, (uint16_t)peer->rank);
        sc_put64(p + SC_OFF_GLOBAL, e->global_next);
        e->global_next += messages;
        peer->returned = origin; /* E-01: the forward stream is FIFO without gaps, so each is one higher */
        uint64_t seqno = e->group.next;
        sc_queue_packet(e, p, slot->len, slot->slab, SC_STREAM_GROUP, e->view.rank, peer->id, seqno);
        sc_tx_restamp(e, &e->group, slot, messages);
        sc_rx_moved(rx, slot);
        rx->queued++;
        rx->first = rx->queued;
        rx->consumed = rx->queued - 1;
        e->counters.stamped++;
        sc_flow_consumed(e, peer, SC_STREAM_FORWARD, slot->len, now);
        e->stamp_turn = (e->stamp_turn + 1) % e->view.n;
    }
}

/* A sequencer stamps the packets of each member without a gap (E-01): does this one follow, or repeat? */
int sc_order_follows(const sc_engine *e, const uint8_t *p) {
    return sc_get64(p + SC_OFF_ORIGIN_SEQNO) <= e->peers[sc_get16(p + SC_OFF_ORIGIN_RANK)]->returned + 1;
}

/* A stamped packet in order: 1 to deliver, 0 for a duplicate (SEQ-18). Keeps the received table, and drops what came
 * back from the forward table. */
int sc_order_accept(sc_engine *e, const uint8_t *p) {
    uint32_t rank = sc_get16(p + SC_OFF_ORIGIN_RANK);
    uint64_t origin = sc_get64(p + SC_OFF_ORIGIN_SEQNO);
    sc_peer *peer = e->peers[rank];
    if (origin <= peer->returned) {
        e->counters.packets_duplicate++;
        return 0;
    }
    peer->returned = origin;
    if (rank == e->view.rank) {
        sc_tx_stream *tx = &e->forward;
        sc_tx_credit(tx, origin);
        if (sc_tx_has(tx, origin)) {
            uint64_t keep = sc_tx_at(tx, origin)->message_start; /* the start of a message that goes on is kept */
            sc_tx_purge(tx, keep <= origin ? keep - 1 : origin);
        }
        if (e->big_last && origin >= e->big_last) e->big_returned = 1;
        e->sendable++;
        sc_blocked_drain(e);
        return e->config.deliver_own != 0;
    }
    return 1;
}

uint64_t sc_engine_unordered(const sc_engine *e) {
    if (!e->in_view || e->view.sequencer < 0 || sc_is_sequencer(e)) return 0;
    const sc_tx_stream *tx = &e->forward;
    uint64_t last = tx->next - 1 + (tx->open && tx->open_pieces);
    return last - e->peers[e->view.rank]->returned;
}
