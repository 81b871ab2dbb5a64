/* The end of a view: gate, pause, freeze, cut. The core decides; each call takes effect here in one step. */
#include "engine/internal.h"

uint64_t sc_engine_gate_close(sc_engine *e, int unicasts) {
    if (!e->in_view) return 0;
    if (!e->cut.gate_closed) {
        sc_tx_close(e, &e->group);
        sc_tx_close(e, &e->forward);
        for (uint32_t r = 0; r < e->view.n && unicasts; r++) {
            sc_tx_stream *tx = e->peers[r]->unicast_tx;
            if (!tx) continue;
            sc_tx_close(e, tx);
            e->peers[r]->cut.unicast_mark = tx->next - 1;
        }
        e->cut.gate_closed = 1;
    }
    return e->group.next - 1;
}

void sc_engine_pause(sc_engine *e) {
    if (!e->in_view || e->cut.paused) return;
    sc_tx_close(e, &e->group);
    sc_tx_close(e, &e->forward);
    e->cut.paused = 1;
}

void sc_view_resume(sc_engine *e) {
    if (e->cut.paused) sc_may_send(e);
    e->cut.paused = 0;
}

int sc_engine_mark(sc_engine *e, uint64_t marker) { return sc_queue_marker(e, marker, 1); }

void sc_view_uncount(sc_engine *e, const uint64_t *lost, size_t n) {
    if (!e->in_view) return;
    if (e->cut.uncounts) sc_may_send(e); /* room reserved for callbacks may be free again */
    e->cut.uncounts = 0;
    for (uint32_t r = 0; r < e->view.n; r++) e->peers[r]->cut.uncounted = 0;
    for (size_t i = 0; i < n; i++) {
        sc_peer *peer = sc_find_peer(e, lost[i]);
        if (peer && peer != sc_self(e)) peer->cut.uncounted = e->cut.uncounts = 1;
    }
    sc_credit_due(e);
    sc_congestion_wider(e);
}

void sc_view_freeze(sc_engine *e, const uint64_t *lost, size_t n, int still) {
    if (!e->in_view) return;
    if (e->cut.set || still) e->cut.set = SC_CUT_STALE;
    for (uint32_t r = 0; r < e->view.n; r++) {
        e->peers[r]->cut.lost = 0;
        e->peers[r]->group.limit = UINT64_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        sc_peer *peer = sc_find_peer(e, lost[i]);
        if (peer && peer != sc_self(e)) peer->cut.lost = 1;
    }
    sc_credit_due(e);
    sc_congestion_wider(e);
}

static uint64_t prefix_of(const sc_engine *e, uint32_t rank) {
    return rank == e->view.rank ? e->group.next - 1 : e->peers[rank]->group.next - 1;
}

size_t sc_engine_held(const sc_engine *e, uint32_t rank, uint64_t *prefix, uint64_t *ranges, size_t max) {
    *prefix = 0;
    if (!e->in_view || rank >= e->view.n) return 0;
    *prefix = prefix_of(e, rank);
    const sc_rx_stream *rx = &e->peers[rank]->group;
    if (rank == e->view.rank || !rx->packets) return 0;
    return sc_rx_ranges(e, rx, 1, rx->next, rx->highest, UINT64_MAX, ranges, max);
}

int sc_engine_cut_reached(const sc_engine *e) {
    if (e->cut.set != SC_CUT_CURRENT) return 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (prefix_of(e, r) < e->cut.end[r]) return 0;
        if (!peer->cut.lost && peer->unicast_tx && peer->unicast_tx->stable < peer->cut.unicast_mark) return 0;
    }
    return 1;
}

void sc_view_cut_check(sc_engine *e) {
    if (e->cut.set != SC_CUT_CURRENT || e->cut.told || !sc_engine_cut_reached(e)) return;
    e->cut.told = 1;
    sc_push_event(e, SC_EVENT_CUT_REACHED, 0, e->view.tag, NULL, NULL, 0);
}

/* The CUT's sender had ring space for its last packet, so anything a ring earlier is stable. A member that did not hear
 * so from a lost sender needs that space for fetched packets. But the sender's ring may be larger than ours, so packets
 * that the CUT has a survivor fetch are kept. */
static void make_room(const sc_engine *e, uint32_t rank, const sc_fetch *fetch, size_t n_fetch) {
    uint64_t ring = e->config.ring_packets, end = e->cut.end[rank], upto = end > ring ? end - ring : 0;
    for (size_t i = 0; i < n_fetch; i++)
        if (fetch[i].rank == rank && fetch[i].lo <= upto) upto = fetch[i].lo ? fetch[i].lo - 1 : 0;
    sc_rx_purge(e, &e->peers[rank]->group, upto);
}

void sc_view_cut(sc_engine *e, const uint64_t *cut, const sc_fetch *fetch, size_t n_fetch) {
    if (!e->in_view) return;
    e->cut.set = SC_CUT_CURRENT;
    e->cut.told = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        e->cut.end[r] = cut[r];
        sc_gaps_cut(&e->peers[r]->group, cut[r]);
        make_room(e, r, fetch, n_fetch);
    }
    for (size_t i = 0; i < n_fetch; i++) {
        const sc_fetch *f = &fetch[i];
        if (f->rank >= e->view.n || f->holder >= e->view.n || f->rank == e->view.rank || f->holder == e->view.rank)
            continue;
        sc_gaps_fetch(e, &e->peers[f->rank]->group, f->lo, f->hi, f->holder);
    }
}

void sc_engine_received_table(const sc_engine *e, uint64_t *out) {
    if (!e->in_view) return;
    memcpy(out, e->order.returned, e->view.n * sizeof *out);
    if (e->order.ops->forwarding) e->order.ops->forwarding->received(e, out);
}

/* The view delivers up to the cut: nothing is held back any more. */
void sc_cut_over(sc_engine *e, const uint8_t *fell) {
    e->cut.set = SC_CUT_NONE;
    if (fell) memcpy(e->cut.fell, fell, sizeof e->cut.fell);
}

void sc_cut_reset(sc_engine *e) { memset(&e->cut, 0, offsetof(sc_cut, end)); }

void sc_cut_peer_begin(sc_peer *peer) { memset(&peer->cut, 0, sizeof peer->cut); }
