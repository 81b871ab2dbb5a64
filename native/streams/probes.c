/* Tail probes: a sender that makes no progress reports its last seqno, and gets an ack in answer. Also the timers of
 * both. */
#include "engine/internal.h"

#define PROBES_QUICK 3 /* of a group stream, before receivers that do not answer are also probed by unicast */

static void say_probe(sc_engine *e, const sc_tx_stream *tx, const sc_address *to) {
    uint8_t *p = sc_out_new(e, to, SC_TYPE_PROBE, SC_PROBE_LEN);
    if (!p) return;
    if (sc_of_pair((uint64_t)tx->stream)) sc_put_view_tag(p, tx->pair);
    sc_put_probe_stream(p, (uint64_t)tx->stream);
    sc_put_probe_highest(p, tx->unsent - 1);
    sc_put_probe_stable(p, tx->stable);
    e->counters->probes_sent++;
}

static void probe(sc_engine *e, sc_tx_stream *tx, const sc_address *to, int64_t now) {
    say_probe(e, tx, to);
    tx->probe_wait = tx->probe_wait * 2 < e->config.probe_ns_max ? tx->probe_wait * 2 : e->config.probe_ns_max;
    tx->probe_due = now + tx->probe_wait;
}

/* A receiver that has lost multicast, for example behind a switch that dropped its membership, learns by unicast of its
 * missing packets. */
static void probe_group(sc_engine *e, int64_t now) {
    if (e->order.ops->tail && e->order.ops->tail(e, now)) {
        e->group.probe_due = now + e->group.probe_wait;
        return;
    }
    int quick = e->group.probe_wait < sc_tx_spread(e, e->config.probe_ns_min) << PROBES_QUICK &&
                e->group.probe_wait < e->config.probe_ns_max;
    for (uint32_t r = 0; r < e->view.n && !quick; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->cut.lost || !sc_tx_outstanding(&e->group, peer->credit.acked.delivered))
            continue;
        say_probe(e, &e->group, &peer->address);
    }
    probe(e, &e->group, NULL, now);
}

static int has_forwards(const sc_engine *e, const sc_peer *peer) {
    return (int32_t)peer->rank == e->order.forward_to && sc_tx_outstanding(&e->forward, e->forward.stable);
}

int sc_owes_ack(const sc_engine *e, const sc_peer *peer) {
    const sc_tx_stream *of_pair[] = {peer->unicast_tx, peer->state_tx};
    int owes = sc_tx_outstanding(&e->group, peer->credit.acked.delivered) || has_forwards(e, peer);
    for (int i = 0; i < 2; i++) owes |= of_pair[i] && sc_tx_outstanding(of_pair[i], of_pair[i]->stable);
    return owes;
}

/* A member has installed this view, perhaps much later than this one: earlier packets were dropped there. */
void sc_probe_entered(sc_engine *e, const sc_peer *peer) {
    if (sc_tx_outstanding(&e->group, peer->credit.acked.delivered) && sc_tx_probes(&e->config, &e->group))
        say_probe(e, &e->group, &peer->address);
    if (has_forwards(e, peer)) say_probe(e, &e->forward, &peer->address);
}

/* The receiver may have dropped earlier packets: nobody waits for that one. */
void sc_probe_now(sc_tx_stream *tx, int64_t now) {
    if (sc_tx_outstanding(tx, tx->stable)) tx->probe_due = now;
}

void sc_on_probe(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    int stream = (int)sc_get_probe_stream(p);
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    if (peer->cut.lost || (stream == SC_STREAM_GROUP && e->cut.set)) return;
    sc_rx_stable(e, rx, sc_get_probe_stable(p));
    sc_rx_known(e, rx, sc_get_probe_highest(p), now + e->config.nak_delay_ns); /* packets may have been overtaken */
    sc_ack(e, peer, stream);
}

void sc_ack_tick(sc_engine *e, int64_t now) {
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank) continue;
        for (int s = SC_STREAM_GROUP; s <= SC_STREAM_STATE; s++)
            if (sc_rx_of(peer, s)->ack_due <= now) sc_ack(e, peer, s);
        sc_tx_stream *of_pair[] = {peer->unicast_tx, peer->state_tx};
        for (int i = 0; i < 2; i++)
            if (of_pair[i] && of_pair[i]->probe_due <= now) probe(e, of_pair[i], &peer->address, now);
    }
    if (e->group.probe_due <= now) probe_group(e, now);
    if (e->credit.yield_due <= now) sc_credit_yield(e);
    if (e->forward.probe_due <= now && e->order.forward_to >= 0)
        probe(e, &e->forward, &e->peers[e->order.forward_to]->address, now);
}

int64_t sc_ack_deadline(const sc_engine *e) {
    int64_t due = e->group.probe_due;
    if (e->forward.probe_due < due) due = e->forward.probe_due;
    if (e->credit.yield_due < due) due = e->credit.yield_due;
    if (e->credit.tell_due < due) due = e->credit.tell_due;
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
