/* The end of the application's sends, and what became of them: a member that leaves waits until everything that was
 * accepted is safe, and is told what is not. */
#include "engine/internal.h"

/* ---- the own packets ---------------------------------------------------------------------------------------- */

static uint32_t *ended_at(const sc_engine *e, uint64_t number) {
    return &e->own_ends[number & (2 * (uint64_t)e->config.ring_packets - 1)];
}

/* A view begins: its own packets are numbered from `base` + 1 on. */
void sc_own_reset(sc_engine *e, uint64_t base) {
    e->own_base = e->own_first = e->own_last = base;
    *ended_at(e, base) = e->own_ended;
}

/* The own packet with this number is closed. More than two rings of them are never on their way: one to the sequencer,
 * and one in its own stream. */
void sc_own_packet(sc_engine *e, uint64_t number, uint32_t messages) {
    e->own_last = number;
    e->own_ended += messages;
    *ended_at(e, number) = e->own_ended;
    if (number - e->own_first >= 2 * (uint64_t)e->config.ring_packets)
        e->own_first = number + 1 - 2 * (uint64_t)e->config.ring_packets;
}

/* The highest own number up to the packet `seqno` of the own group stream. It may be purged, but not by more than a ring
 * of newer packets: where the ring is full its slot has just been taken, and the next packet tells. */
static uint64_t own_up_to(const sc_engine *e, uint64_t seqno) {
    const sc_tx_stream *tx = &e->group;
    if (seqno <= e->view.base[e->view.rank] || !tx->packets) return e->own_base;
    if (tx->next - seqno <= (uint64_t)tx->mask + 1) return sc_tx_at(tx, seqno)->own;
    const sc_tx_packet *after = sc_tx_at(tx, seqno + 1);
    return after->own - (after->slab == NULL);
}

void sc_engine_own(const sc_engine *e, sc_own *out) {
    memset(out, 0, sizeof *out);
    if (!e->in_view) return;
    out->first = e->own_first;
    out->last = e->own_last;
    if (e->order.waits) {
        out->any = e->order.ops->ordered(e); /* whoever put it in order has delivered it */
        out->all = e->order.ops->stable(e);
        return;
    }
    uint64_t any = e->view.n > 1 ? e->view.base[e->view.rank] : e->group.next - 1, all = e->group.next - 1;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (r == e->view.rank) continue;
        uint64_t delivered = e->peers[r]->acked.delivered;
        if (delivered > any) any = delivered;
        if (delivered < all) all = delivered;
    }
    out->any = own_up_to(e, any);
    out->all = own_up_to(e, all);
}

uint32_t sc_engine_own_messages(const sc_engine *e, uint64_t seqno, int waiting) {
    if (seqno < e->own_first) seqno = e->own_first;
    int waits = !waiting && e->big_last && !e->big_returned && seqno >= e->big_last;
    return *ended_at(e, seqno) - (uint32_t)waits;
}

void sc_engine_unacknowledged(const sc_engine *e, uint64_t *out) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        const sc_tx_stream *tx = e->peers[r]->unicast_tx;
        out[r] = 0;
        if (!tx || !tx->packets) continue;
        for (uint64_t seqno = tx->stable + 1; seqno < tx->next; seqno++) out[r] += sc_tx_at(tx, seqno)->messages;
        if (tx->open) out[r] += tx->open_messages;
    }
}

/* ---- the end of sending ------------------------------------------------------------------------------------- */

void sc_engine_end_sends(sc_engine *e) {
    e->sends_ended = 1;
    e->takes_sends = 0;
    e->sendable++; /* whoever waits for credit is told */
    sc_drained_check(e);
}

int sc_engine_sends_ended(const sc_engine *e) { return e->sends_ended; }

/* A send where there is no view, or after the end of sending. */
int sc_send_late(sc_engine *e, uint64_t to, sc_send_state *state) {
    if (state->wait_seqno && e->big_returned) { /* put in order, perhaps by the cut of the view that was left */
        e->big_first = e->big_last = 0;
        return SC_SENT;
    }
    if (!e->in_view) return SC_NO_VIEW;
    if (state->wait_seqno && state->epoch == e->epoch) return SC_AGAIN;
    sc_engine_send_abort(e, to, state);
    memset(state, 0, sizeof *state);
    return SC_ENDED;
}

uint64_t sc_engine_unordered(const sc_engine *e) {
    if (!e->in_view || !e->order.waits) return 0;
    const sc_tx_stream *tx = e->order.own;
    return e->own_last + (tx->open && tx->open_pieces) - e->order.ops->ordered(e);
}

int sc_engine_drained(const sc_engine *e) {
    if (!e->in_view || e->blocked_first || sc_engine_unordered(e)) return 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_tx_stream *tx = e->peers[r]->unicast_tx;
        if (tx && tx->packets && (tx->stable + 1 < tx->next || (tx->open && tx->open_messages))) return 0;
    }
    return 1;
}

void sc_drained_check(sc_engine *e) {
    if (!e->sends_ended || e->drained_told || !sc_engine_drained(e)) return;
    e->drained_told = 1;
    sc_push_event(e, SC_EVENT_DRAINED, 0, e->view.tag, NULL, NULL, 0);
}
