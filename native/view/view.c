/* Views: gate, freeze, cut, install. The policies decide; here it takes effect, each call in one step. */
#include "engine/internal.h"

uint64_t sc_engine_gate_close(sc_engine *e, int unicasts) {
    if (!e->in_view) return 0;
    if (!e->gate_closed) {
        sc_tx_close(e, &e->group);
        sc_tx_close(e, &e->forward);
        for (uint32_t r = 0; r < e->view.n && unicasts; r++) {
            sc_tx_stream *tx = e->peers[r]->unicast_tx;
            if (!tx) continue;
            sc_tx_close(e, tx);
            e->peers[r]->unicast_mark = tx->next - 1;
        }
        e->gate_closed = 1;
    }
    return e->group.next - 1;
}

void sc_engine_pause(sc_engine *e) {
    if (!e->in_view || e->paused) return;
    sc_tx_close(e, &e->group);
    sc_tx_close(e, &e->forward);
    e->paused = 1;
}

void sc_engine_resume(sc_engine *e) {
    if (!e->paused) return;
    e->paused = 0;
    e->sendable++;
    sc_blocked_drain(e);
}

int sc_engine_mark(sc_engine *e, uint64_t marker) { return sc_queue_marker(e, marker, 1); }

void sc_engine_uncount(sc_engine *e, const uint64_t *lost, size_t n) {
    if (!e->in_view) return;
    for (uint32_t r = 0; r < e->view.n; r++) e->peers[r]->uncounted = 0;
    for (size_t i = 0; i < n; i++) {
        sc_peer *peer = sc_find_peer(e, lost[i]);
        if (peer && peer != sc_self(e)) peer->uncounted = 1;
    }
    sc_flow_recount(e, e->now);
}

void sc_engine_freeze(sc_engine *e, const uint64_t *lost, size_t n, int still) {
    if (!e->in_view) return;
    if (e->cut_set || still) e->cut_set = SC_CUT_STALE;
    e->still |= still;
    for (uint32_t r = 0; r < e->view.n; r++) {
        e->peers[r]->lost = 0;
        e->peers[r]->group.limit = UINT64_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        sc_peer *peer = sc_find_peer(e, lost[i]);
        if (peer && peer != sc_self(e)) peer->lost = 1;
    }
    e->frozen = 1;
    sc_flow_recount(e, e->now);
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
    size_t n = 0;
    uint64_t lo = 0;
    for (uint64_t seqno = rx->next; seqno <= rx->highest + 1 && n < max; seqno++) {
        int held = seqno <= rx->highest && sc_rx_at(e, rx, seqno)->p != NULL;
        if (held && !lo) lo = seqno;
        if (!held && lo) {
            ranges[2 * n] = lo;
            ranges[2 * n++ + 1] = seqno - 1;
            lo = 0;
        }
    }
    return n;
}

int sc_engine_cut_reached(const sc_engine *e) {
    if (e->cut_set != SC_CUT_CURRENT) return 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (prefix_of(e, r) < e->cut[r]) return 0;
        if (!peer->lost && peer->unicast_tx && peer->unicast_tx->stable < peer->unicast_mark) return 0;
    }
    return 1;
}

void sc_view_cut_check(sc_engine *e) {
    if (e->cut_set != SC_CUT_CURRENT || e->cut_told || !sc_engine_cut_reached(e)) return;
    e->cut_told = 1;
    sc_push_event(e, SC_EVENT_CUT_REACHED, 0, e->view.tag, NULL, NULL, 0);
}

void sc_engine_cut(sc_engine *e, const uint64_t *cut, const sc_fetch *fetch, size_t n_fetch) {
    if (!e->in_view) return;
    e->cut_set = SC_CUT_CURRENT;
    e->cut_told = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_rx_stream *rx = &e->peers[r]->group;
        e->cut[r] = cut[r];
        rx->limit = cut[r];
        rx->n_gaps = 0;
    }
    for (size_t i = 0; i < n_fetch; i++) {
        const sc_fetch *f = &fetch[i];
        if (f->rank >= e->view.n || f->holder >= e->view.n || f->rank == e->view.rank || f->holder == e->view.rank)
            continue;
        sc_rx_stream *rx = &e->peers[f->rank]->group;
        uint64_t lo = f->lo < rx->next ? rx->next : f->lo, hi = f->hi < rx->limit ? f->hi : rx->limit;
        if (lo > hi) continue;
        sc_rx_gap_add(e, rx, lo, hi, e->now, (int32_t)f->holder);
        if (hi > rx->known) rx->known = hi;
    }
    sc_view_cut_check(e);
}

/* The packet `seqno` of the sequencer's stream, whether received or, at the sequencer itself, sent. */
static const uint8_t *stamped(const sc_engine *e, uint64_t seqno) {
    if (sc_is_sequencer(e)) return NULL;
    const sc_rx_stream *rx = &e->peers[e->view.sequencer]->group;
    return seqno >= rx->queued && seqno < rx->next ? sc_rx_at(e, rx, seqno)->p : NULL;
}

void sc_engine_received_table(const sc_engine *e, uint64_t *out) {
    if (!e->in_view) return;
    for (uint32_t r = 0; r < e->view.n; r++) out[r] = e->peers[r]->returned;
    if (e->view.sequencer < 0 || sc_is_sequencer(e) || e->cut_set != SC_CUT_CURRENT) return;
    const sc_rx_stream *rx = &e->peers[e->view.sequencer]->group;
    for (uint64_t seqno = rx->queued; seqno <= e->cut[e->view.sequencer]; seqno++) {
        const uint8_t *p = stamped(e, seqno);
        if (!p) return;
        uint64_t origin = sc_get64(p + SC_OFF_ORIGIN_SEQNO);
        uint32_t rank = sc_get16(p + SC_OFF_ORIGIN_RANK);
        if (origin == out[rank] + 1) out[rank] = origin; /* what does not follow no sequencer has stamped */
    }
}

/* ---- install ------------------------------------------------------------------------------------------------ */

/* Own messages that were forwarded and not stamped up to the cut, in order. */
typedef struct {
    uint8_t *data;
    uint64_t *ends;
    uint64_t n;
} unstamped;

static void unstamped_free(unstamped *u) {
    free(u->data);
    free(u->ends);
}

/* Whole messages only: one that the application is still packing starts again by itself (sc_send_state.epoch). The
 * first may begin in a packet that was stamped: receivers drop that piece, so the message is sent whole. */
static int collect_unstamped(sc_engine *e, unstamped *u) {
    memset(u, 0, sizeof *u);
    const sc_tx_stream *tx = &e->forward;
    uint64_t returned = sc_self(e)->returned, bytes = 0, messages = 0;
    if (!tx->packets || e->view.sequencer < 0 || sc_is_sequencer(e)) return 0;
    for (uint64_t seqno = tx->first; seqno < tx->next; seqno++) {
        bytes += sc_tx_at(tx, seqno)->len;
        messages += sc_tx_at(tx, seqno)->messages;
    }
    if (!messages) return 0;
    u->data = malloc(bytes);
    u->ends = malloc(messages * sizeof *u->ends);
    if (!u->data || !u->ends) return -1;
    uint64_t len = 0, start = 0;
    int open = 0;
    for (uint64_t seqno = tx->first; seqno < tx->next; seqno++) {
        const uint8_t *p = sc_tx_at(tx, seqno)->p;
        uint32_t pieces = sc_get16(p + SC_OFF_PIECES), data_len = sc_get32(p + SC_OFF_DATA_LEN);
        const uint8_t *offset = p + sc_wire_offsets(data_len);
        for (uint32_t i = 0; i < pieces; i++) {
            uint32_t from = sc_get32(offset + 4 * (size_t)i), to = sc_get32(offset + 4 * (size_t)i + 4);
            int continues = i == 0 && (p[SC_OFF_FLAGS] & SC_FLAG_CONT_IN);
            int goes_on = i == pieces - 1 && (p[SC_OFF_FLAGS] & SC_FLAG_CONT_OUT);
            if (!continues) {
                open = !(goes_on && seqno == e->big_first);
                len = start;
            }
            if (!open) continue;
            memcpy(u->data + len, p + SC_DATA_HEADER + from, to - from);
            len += to - from;
            if (goes_on) continue;
            open = 0;
            if (seqno > returned) { /* else it ended in a stamped packet */
                u->ends[u->n++] = len;
                start = len;
            } else {
                len = start;
            }
        }
    }
    return 0;
}

/* Forced past credit, into a ring that was made large enough; -1 where it has too few descriptors all the same. */
static int resend(sc_engine *e, const unstamped *u, int64_t wall) {
    sc_tx_stream *tx = e->view.sequencer >= 0 && !sc_is_sequencer(e) ? &e->forward : &e->group;
    uint64_t start = 0;
    for (uint64_t i = 0; i < u->n; i++) {
        uint64_t done = 0;
        if (sc_tx_pack(e, tx, u->data + start, u->ends[i] - start, &done, wall, 1) != SC_SENT) return -1;
        e->counters.messages_sent--; /* counted when it was first sent */
        start = u->ends[i];
    }
    return 0;
}

static void deliver_to_cut(sc_engine *e, const uint64_t *cut) {
    e->cut_set = SC_CUT_NONE;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (r == e->view.rank) continue;
        sc_rx_stream *rx = &e->peers[r]->group;
        uint64_t highest = rx->highest;
        if (rx->next > cut[r] + 1) rx->next = cut[r] + 1;
        rx->highest = rx->next - 1; /* nothing behind the cut is in order */
        sc_rx_advance(e, e->peers[r], rx, SC_STREAM_GROUP);
        rx->highest = highest;
    }
}

static void peer_free(sc_engine *e, sc_peer *peer) {
    sc_rx_free(e, &peer->group);
    sc_rx_free(e, &peer->unicast);
    sc_rx_free(e, &peer->forward);
    sc_rx_free(e, &peer->state);
    sc_tx_stream *of_pair[] = {peer->unicast_tx, peer->state_tx};
    for (int i = 0; i < 2; i++) {
        if (of_pair[i]) sc_tx_free(e, of_pair[i]);
        free(of_pair[i]);
    }
    free(peer);
}

static void forget_view(sc_engine *e) {
    e->again_gone += e->n_again;
    e->n_again = 0;
    e->gate_closed = e->paused = e->frozen = e->still = e->cut_set = e->cut_told = 0;
    e->epoch++;
    e->own_closed_bytes = e->own_bytes;
    e->sendable++;
}

void sc_view_leave(sc_engine *e) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        peer_free(e, e->peers[r]);
        e->peers[r] = NULL;
    }
    e->in_view = e->takes_sends = 0;
    e->view.n = 0;
    forget_view(e);
    e->heartbeat_due = e->ask_due = SC_NEVER;
}

int sc_engine_install(sc_engine *e, const sc_view *view, const uint64_t *cut, uint64_t marker, int64_t now) {
    if (!view->n || view->n > SC_MEMBERS_MAX || view->rank >= view->n || view->ids[view->rank] != e->config.member ||
        view->apart[view->rank] || view->packet_bytes < 512 || view->packet_bytes > SC_PACKET_MAX ||
        view->packet_bytes % 4)
        return -1;
    e->now = now;
    unstamped u = {0};
    sc_peer *fresh[SC_MEMBERS_MAX] = {0};
    if (e->in_view) {
        if (cut) deliver_to_cut(e, cut);
        /* Across a merge a large message is not sent again either, once it was packed whole. */
        if (e->big_last && (view->merge || sc_self(e)->returned >= e->big_last)) e->big_returned = 1;
    }
    int failed = e->in_view && !view->merge && collect_unstamped(e, &u);
    for (uint32_t r = 0; r < view->n && !failed; r++)
        if (view->apart[r] || !sc_find_peer(e, view->ids[r])) failed = !(fresh[r] = calloc(1, sizeof **fresh));
    if (failed || sc_queue_marker(e, marker, 0)) {
        for (uint32_t r = 0; r < view->n; r++) free(fresh[r]);
        unstamped_free(&u);
        return -1;
    }

    sc_peer *old[SC_MEMBERS_MAX];
    uint32_t n_old = e->in_view ? e->view.n : 0;
    memcpy(old, e->peers, sizeof old);
    e->view_before = e->in_view ? e->view.tag : 0;
    e->installed = now;
    e->view = *view;
    for (uint32_t r = 0; r < view->n; r++) {
        sc_peer *peer = NULL;
        for (uint32_t i = 0; i < n_old; i++) {
            if (!old[i] || old[i]->id != view->ids[r] || view->apart[r]) continue;
            peer = old[i];
            old[i] = NULL;
        }
        if (!peer) {
            peer = fresh[r];
            fresh[r] = NULL;
            peer->id = view->ids[r];
            peer->pair = view->tag;
            peer->handed = peer->taken = view->sequencer >= 0 ? view->origin_base[r] : view->base[r];
            peer->took = view->sequencer >= 0 ? view->origin_base[view->rank] : view->base[view->rank];
            sc_rx_reset(e, &peer->unicast, 0);
            sc_rx_reset(e, &peer->state, 0);
        }
        sc_tx_rewindow(e, peer);
        peer->address = view->addresses[r];
        peer->rank = r;
        peer->lost = peer->uncounted = peer->doubted = peer->silent = peer->suspected = 0;
        peer->unicast_mark = 0;
        peer->again_left = 2 * (int64_t)e->config.ring_bytes;
        peer->starved = peer->slow = 0;
        peer->again_sent = e->first_bytes;
        peer->again_refilled = now;
        peer->heard = peer->overheard = now;
        peer->vouched = peer->refused = 0;
        memset(peer->unheard, 0, sizeof peer->unheard);
        peer->acked = (sc_mark){view->base[view->rank], view->base[view->rank]};
        peer->consumed = view->base[view->rank];
        peer->returned = view->origin_base[r];
        memset(peer->digest, 0, sizeof peer->digest);
        sc_rx_reset(e, &peer->group, view->base[r]);
        sc_rx_reset(e, &peer->forward, view->origin_base[r]);
        e->peers[r] = peer;
    }
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i]) peer_free(e, old[i]);

    forget_view(e);
    e->in_view = 1;
    e->takes_sends = !e->sends_ended;
    /* Room for what is sent again: full packets of at least this much data, each with its header and alignment. */
    uint64_t least = view->packet_bytes - SC_DATA_HEADER - 64 - 8;
    uint64_t bytes = u.n ? ((u.ends[u.n - 1] + 4 * u.n) / least + 8) * ((uint64_t)view->packet_bytes + 64) : 0;
    uint64_t window = view->window_bytes > e->config.ring_bytes ? e->config.ring_bytes : view->window_bytes;
    uint64_t forward_window =
        view->forward_window_bytes > e->config.ring_bytes ? e->config.ring_bytes : view->forward_window_bytes;
    if (window < 2 * view->packet_bytes) window = 2 * view->packet_bytes;
    if (forward_window < 2 * view->packet_bytes) forward_window = 2 * view->packet_bytes;
    /* Each packet may leave its alignment unused, and one packet does not wrap around the end. */
    uint64_t ring = window + window / 8 + 4 * (uint64_t)view->packet_bytes;
    uint64_t forward_ring = forward_window + forward_window / 8 + 4 * (uint64_t)view->packet_bytes;
    int orders = view->sequencer >= 0, sequencer = sc_is_sequencer(e);
    if (!orders || sequencer)
        failed |=
            sc_tx_reset(e, &e->group, view->base[view->rank], window, view->packet_bytes, ring > bytes ? ring : bytes);
    else
        failed |= sc_tx_reset(e, &e->group, view->base[view->rank], 0, view->packet_bytes, 0);
    if (orders && !sequencer)
        failed |= sc_tx_reset(e, &e->forward, view->origin_base[view->rank], forward_window, view->packet_bytes,
                              forward_ring > bytes ? forward_ring : bytes);
    else if (e->forward.packets) /* of an earlier view; it must not be probed any more */
        failed |= sc_tx_reset(e, &e->forward, view->origin_base[view->rank], 0, view->packet_bytes, 0);
    if (failed) { /* no memory for the rings: not in this view, and not in the old one */
        unstamped_free(&u);
        sc_view_leave(e);
        return -1;
    }
    e->self_consumed = e->peers_consumed = view->base[view->rank];
    e->unsent = 0;
    e->global_next = 1;
    e->origin_next = view->origin_base[view->rank] + 1;
    sc_own_reset(e, orders ? view->origin_base[view->rank] : view->base[view->rank]);
    e->stamp_turn = 0;
    e->big_first = e->big_last = 0;
    e->heartbeat_due = now;
    failed = resend(e, &u, e->wall);
    unstamped_free(&u);
    sc_taking_installed(e, now);
    if (failed)
        sc_view_leave(e); /* never in silence without some of what was sent */
    else
        sc_blocked_drain(e);
    sc_drained_check(e);
    return failed;
}

uint64_t sc_engine_view(const sc_engine *e) { return e->in_view ? e->view.tag : 0; }

uint64_t sc_engine_forwarded(const sc_engine *e) {
    return e->in_view && e->view.sequencer >= 0 && !sc_is_sequencer(e) ? e->forward.next - 1 : 0;
}

void sc_engine_close(sc_engine *e, const uint64_t *cut, uint64_t marker) {
    if (e->in_view && cut) deliver_to_cut(e, cut);
    sc_queue_marker(e, marker, 0);
    sc_view_leave(e);
}
