/* Reliability by gossip: the core's view of the group streams, and its requests to them. */
#include "engine/internal.h"

/* Another member of the view; NULL: there is none of this rank. */
static sc_peer *other(const sc_engine *e, uint32_t rank) {
    return e->in_view && rank < e->view.n && rank != e->view.rank ? e->peers[rank] : NULL;
}

int sc_engine_marks(sc_engine *e, uint32_t rank, sc_marks *out) {
    if (!e->in_view || rank >= e->view.n) return -1;
    if (rank == e->view.rank) {
        const sc_tx_stream *tx = &e->group;
        *out = (sc_marks){tx->first,      tx->unsent - 1,       tx->unsent - 1,
                          e->credit.self, e->view.window_bytes, e->credit.claim};
    } else {
        sc_rx_stream *rx = &e->peers[rank]->group;
        *out =
            (sc_marks){rx->first, sc_rx_delivered(rx), rx->highest, rx->consumed, sc_credit_promise(e, rx), rx->claim};
    }
    return 0;
}

size_t sc_engine_lacks(const sc_engine *e, uint32_t rank, uint64_t first, uint64_t last, uint64_t most,
                       uint64_t *ranges, size_t max) {
    const sc_peer *peer = other(e, rank);
    if (!peer) return 0;
    const sc_rx_stream *rx = &peer->group;
    return sc_rx_ranges(e, rx, 0, first < rx->next ? rx->next : first, last, most, ranges, max);
}

/* After CUT only the named packets are fetched; between START and CUT, nothing of lost members. */
void sc_engine_ask(sc_engine *e, uint32_t rank, uint64_t lo, uint64_t hi, uint32_t holder, int64_t now) {
    sc_peer *owner = other(e, rank), *from = other(e, holder);
    if (!owner || !from || e->cut.set || owner->cut.lost || from->cut.lost) return;
    e->now = now;
    sc_rx_known(e, &owner->group, hi, now);
    sc_gaps_ask(e, &owner->group, lo, hi, holder);
}

/* Counts as an ACK of that member. */
void sc_gossip_vote(sc_engine *e, uint32_t rank, const sc_marks *marks, int64_t now) {
    sc_peer *peer = other(e, rank);
    if (!peer || peer->cut.lost) return;
    uint8_t p[SC_ACK_LEN] = {0};
    sc_put_ack_stream(p, SC_STREAM_GROUP);
    sc_put_ack_delivered(p, marks->delivered);
    sc_put_ack_received(p, marks->received);
    sc_put_ack_consumed(p, marks->consumed);
    sc_put_ack_window(p, marks->window);
    sc_put_ack_claim(p, marks->claim);
    sc_on_ack(e, peer, p, now);
}

void sc_engine_stable(sc_engine *e, uint32_t rank, uint64_t seqno) {
    sc_peer *peer = other(e, rank);
    if (peer) sc_rx_stable(e, &peer->group, seqno);
}
