/* Credit: how much each sender may have on the way, and how far its packets are stable.
 *
 * The group streams share the room of each receiver. Each stream always has its share; spare room goes to busy
 * senders. A receiver keeps account of its promises, which never exceed its room: a stream that began first gives way
 * as its packets are consumed, because its limit no longer rises. A promise to a sender that fell silent would be lost
 * to the others, so a sender that has nothing on the way gives the promise back, and raises its claim, which DATA and
 * HEARTBEAT carry, and from then on believes only windows that name this claim. */
#include "engine/internal.h"

/* ---- the receiver's side ------------------------------------------------------------------------------------- */

uint64_t sc_window_of(const sc_engine *e, int stream) {
    return stream == SC_STREAM_GROUP     ? e->view.window_bytes
           : stream == SC_STREAM_UNICAST ? e->view.unicast_window_bytes
           : stream == SC_STREAM_FORWARD ? e->view.forward_window_bytes
                                         : e->view.state_window_bytes;
}

/* Bytes that the sender of a group stream may have on the way to us, as of now. */
static uint64_t window_left(const sc_engine *e, const sc_rx_stream *rx) {
    uint64_t left = rx->promised > rx->charged ? rx->promised - rx->charged : 0;
    return sc_most(left, e->view.share_bytes);
}

static int uses_more(const sc_engine *e, const sc_rx_stream *rx) {
    return rx->charged - rx->claim_charged >= e->view.share_bytes / 2;
}

/* Promises a group stream its part of the room, as far as others have no promise. Returns its window. */
uint64_t sc_credit_promise(const sc_engine *e, sc_rx_stream *rx) {
    uint64_t shares = (e->view.n - 1) * e->view.share_bytes, taken = 0, users = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_rx_stream *other = &e->peers[r]->group;
        if (r == e->view.rank) continue;
        users += (uint64_t)uses_more(e, other);
        if (other != rx) taken += window_left(e, other);
    }
    uint64_t window = e->view.share_bytes;
    if (uses_more(e, rx) && e->view.room_bytes > shares) window += (e->view.room_bytes - shares) / users;
    window = sc_least(window, e->view.window_bytes);
    if (taken + window > e->view.room_bytes) window = e->view.room_bytes > taken ? e->view.room_bytes - taken : 0;
    rx->promised = sc_most(rx->promised, rx->charged + sc_most(window, e->view.share_bytes));
    return window_left(e, rx);
}

/* The sender states its claim: all earlier promises are returned. Packets may arrive late, so only a newer
 * claim counts. */
void sc_credit_claim(sc_rx_stream *rx, uint16_t claim) {
    if ((int16_t)(uint16_t)(claim - rx->claim) <= 0) return;
    rx->claim = claim;
    rx->promised = 0;
    rx->claim_charged = rx->charged;
}

/* ---- the sender's side --------------------------------------------------------------------------------------- */

static int holds_more(const sc_engine *e) {
    return e->credit.limit != UINT64_MAX && e->credit.limit > e->group.charged + e->view.share_bytes;
}

/* Nothing is on the way, so each receiver has consumed up to the same place, and all begin a new claim there. */
static void yield_later(sc_engine *e, int64_t now) {
    const sc_tx_stream *tx = &e->group;
    int idle = tx->charged == tx->charged_consumed && !tx->open;
    if (!idle || !holds_more(e))
        e->credit.yield_due = SC_NEVER;
    else if (e->credit.yield_due == SC_NEVER)
        e->credit.yield_due = now + e->config.ack_delay_ns;
}

void sc_credit_yield(sc_engine *e) {
    const sc_tx_stream *tx = &e->group;
    e->credit.yield_due = SC_NEVER;
    if (tx->charged != tx->charged_consumed || tx->open || !holds_more(e)) return;
    e->credit.claim++;
    e->credit.limit = tx->charged + e->view.share_bytes;
    for (uint32_t r = 0; r < e->view.n; r++) e->peers[r]->credit.limit = e->credit.limit;
}

/* In a safe view a packet is stable only once in order at this member, too. */
static uint64_t ordered_here(const sc_engine *e) {
    int waits = e->order.own == &e->group && e->order.ops->ordered && !e->order.ops->forwarding;
    return e->view.safe && waits ? e->order.ops->ordered(e) : UINT64_MAX;
}

/* The others wait to hear the stable seqno in a safe view: is a heartbeat due because no packet reports that? */
int sc_credit_tells(sc_engine *e, int64_t now) {
    if (e->credit.tell_due > now) return 0;
    e->credit.tell_due = SC_NEVER;
    if (e->credit.told >= e->group.stable) return 0;
    e->credit.told = e->group.stable;
    return 1;
}

void sc_credit_told(sc_engine *e, const sc_tx_stream *tx) {
    if (tx == &e->group) e->credit.told = tx->stable;
}

/* The least that receivers of the group stream have delivered (returned) and consumed; the tightest of their limits. */
static uint64_t receivers_least(const sc_engine *e, uint64_t *consumed, uint64_t *limit) {
    uint64_t delivered = e->group.unsent - 1;
    *consumed = delivered;
    *limit = UINT64_MAX;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank) continue;
        if (peer->credit.acked.delivered < delivered) delivered = peer->credit.acked.delivered;
        if (!sc_counts(peer)) continue;
        *consumed = sc_least(*consumed, peer->credit.consumed);
        *limit = sc_least(*limit, peer->credit.limit);
    }
    return delivered;
}

/* Recomputes how far all receivers of the group stream have delivered (purge) and consumed (credit). */
void sc_credit_recount(sc_engine *e, int64_t now) {
    e->credit.due = 0;
    sc_tx_stream *tx = &e->group;
    uint64_t consumed, before = e->credit.limit;
    uint64_t delivered = sc_least(receivers_least(e, &consumed, &e->credit.limit), ordered_here(e));
    int progress = delivered > tx->stable || consumed > e->credit.peers;
    e->credit.peers = consumed;
    if (e->credit.self < consumed) consumed = e->credit.self;
    progress |= consumed > tx->consumed;
    int allowed = progress || e->credit.limit > before;
    if (delivered > tx->stable) {
        tx->stable = delivered;
        if (e->view.safe && e->credit.tell_due == SC_NEVER)
            e->credit.tell_due = now + e->config.ack_delay_ns / SC_ACK_SOON;
    }
    sc_tx_credit(tx, consumed);
    sc_tx_purge(tx, consumed < tx->stable ? consumed : tx->stable);
    yield_later(e, now);
    if (allowed) sc_may_send(e);
    if (progress) sc_tx_probe_restart(e, tx, sc_tx_outstanding(tx, e->credit.peers), now);
}

/* The own application has taken the own group stream up to here. */
void sc_credit_self(sc_engine *e, uint64_t seqno) {
    if (seqno <= e->credit.self) return;
    e->credit.self = seqno;
    e->credit.due = 1;
}

void sc_credit_sent(sc_engine *e, sc_tx_stream *tx, int64_t now) {
    sc_tx_probe_later(e, tx, now);
    if (tx->stream == SC_STREAM_GROUP && e->view.n == 1) e->credit.due = 1; /* nobody else acks this */
}

/* A window counts from the seqno that the receiver had consumed. An older ack says nothing new; one for an earlier
 * claim names a window that we have given back. */
static void granted(const sc_engine *e, sc_peer *peer, const uint8_t *p) {
    const sc_tx_stream *tx = &e->group;
    uint64_t consumed = sc_get_ack_consumed(p), window = sc_get_ack_window(p), charged = tx->charged_consumed;
    if (consumed != tx->consumed) {
        if (!sc_tx_has(tx, consumed)) return;
        charged = sc_tx_at(tx, consumed)->charged;
    }
    if (sc_get_ack_claim(p) != e->credit.claim) window = 0;
    window = sc_least(sc_most(window, e->view.share_bytes), e->view.window_bytes);
    peer->credit.limit = sc_most(peer->credit.limit, charged + window);
}

/* For a group stream: the minima over all receivers are recomputed when the engine settles. */
void sc_credit_group(sc_engine *e, sc_peer *peer, const uint8_t *p) {
    uint64_t delivered = sc_get_ack_delivered(p), received = sc_get_ack_received(p), consumed = sc_get_ack_consumed(p);
    if (delivered > peer->credit.acked.delivered) peer->credit.acked.delivered = delivered;
    if (received > peer->credit.acked.received) peer->credit.acked.received = received;
    if (consumed > peer->credit.consumed) peer->credit.consumed = consumed;
    granted(e, peer, p);
    e->credit.due = 1;
}

/* This member has the packet of the group stream, behind a gap. */
void sc_credit_received(sc_peer *peer, uint64_t seqno) {
    if (seqno > peer->credit.acked.received) peer->credit.acked.received = seqno;
}

/* Own forwards up to `seqno`, which are still kept, have come back: the sequencer has them. */
void sc_credit_returned(sc_engine *e, uint64_t seqno) {
    sc_tx_stream *tx = &e->forward;
    if (e->order.forward_to >= 0) sc_congestion_acked(e, e->peers[e->order.forward_to], tx, seqno, e->now);
    if (seqno > tx->stable) tx->stable = seqno;
    sc_tx_credit(tx, seqno);
    sc_tx_probe_restart(e, tx, sc_tx_outstanding(tx, tx->stable), e->now);
    sc_may_send(e);
}

/* For a stream to one member. Forwards are kept until they come back. */
void sc_credit_stream(sc_engine *e, sc_tx_stream *tx, uint64_t delivered, uint64_t consumed, int64_t now) {
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

int sc_credit_held(const sc_engine *e, uint64_t *whose, uint64_t *mark) {
    const sc_tx_stream *tx = e->order.own;
    int forwards = tx == &e->forward;
    if (!e->in_view || !tx->packets || tx->first == tx->next) return 0;
    if (sc_tx_allows(e, tx, sc_charge_most(tx->packet_bytes), 0) && sc_tx_has_place(e, tx)) return 0;
    *mark = tx->consumed;
    *whose = forwards ? e->view.ids[e->order.forward_to] : e->config.member;
    if (forwards) return 1;
    uint64_t least = e->credit.self;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r == e->view.rank || !sc_counts(peer) || peer->credit.consumed > least) continue;
        least = peer->credit.consumed;
        *whose = peer->id;
    }
    return 1;
}

int sc_engine_ahead(const sc_engine *e) {
    const sc_tx_stream *tx = e->order.own;
    return e->in_view && tx->packets && tx->charged - tx->charged_consumed >= tx->window / 4;
}

/* A view begins: the own group stream continues after `base`. */
void sc_credit_begin(sc_engine *e, uint64_t base) {
    uint64_t limit = e->view.n > 1 ? e->view.share_bytes : UINT64_MAX;
    e->credit = (sc_credit){
        .self = base, .peers = base, .limit = limit, .yield_due = SC_NEVER, .tell_due = SC_NEVER, .told = base};
}

void sc_credit_due(sc_engine *e) { e->credit.due = 1; }

void sc_credit_peer_begin(const sc_engine *e, sc_peer *peer, uint64_t base) {
    peer->credit = (sc_peer_credit){.acked = {base, base}, .consumed = base, .limit = e->view.share_bytes};
}
