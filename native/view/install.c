/* A view begins, or is left: delivers the end of the old view, keeps the members that stay, makes the new view's
 * streams. */
#include "engine/internal.h"

/* The memory that a new view needs, allocated before the old one is touched. */
typedef struct {
    sc_resend resend;
    sc_peer *fresh[SC_MEMBERS_MAX]; /* new members, by rank */
    const sc_order_ops *ops;
    void *order_state;
} preparation;

static void preparation_free(preparation *new) {
    for (uint32_t r = 0; r < SC_MEMBERS_MAX; r++) free(new->fresh[r]);
    free(new->order_state);
}

static int is_valid(const sc_engine *e, const sc_view *view) {
    if (!view->n || view->n > SC_MEMBERS_MAX || view->rank >= view->n) return 0;
    if (view->ids[view->rank] != e->config.member || view->apart[view->rank]) return 0;
    if (view->packet_bytes < SC_PACKET_MIN || view->packet_bytes > SC_PACKET_MAX || view->packet_bytes % 4) return 0;
    if (view->path_bytes > SC_PACKET_MAX || view->path_bytes % 4) return 0;
    if (e->seal && !sc_seal_knows(e->seal, view->tag)) return 0;
    const sc_order_ops *ops = sc_order_of(view->mechanism);
    return ops && (!ops->fits || ops->fits(view));
}

/* Across a merge nothing is resent: a sequencer on the other side may have delivered that message. */
static int prepare(sc_engine *e, const sc_view *view, preparation *new) {
    new->ops = sc_order_of(view->mechanism);
    size_t bytes = new->ops->state_bytes + new->ops->pair_bytes * view->n * view->n;
    if (bytes && !(new->order_state = calloc(1, bytes))) return -1;
    if (e->in_view && !view->merge && sc_resend_collect(e, &new->resend)) return -1;
    for (uint32_t r = 0; r < view->n; r++) {
        if (!view->apart[r] && sc_find_peer(e, view->ids[r])) continue;
        if (!(new->fresh[r] = calloc(1, sizeof *new->fresh[r]))) return -1;
    }
    return 0;
}

static void deliver_to_cut(sc_engine *e, const uint64_t *cut, const uint8_t *fell) {
    sc_cut_over(e, fell);
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank) sc_rx_end(&e->peers[r]->group, cut[r]);
    e->order.ops->finish(e);
}

/* Delivers the old view to its end. */
static void finish_view(sc_engine *e, const uint64_t *cut, const uint8_t *fell, int merge) {
    if (!e->in_view) return;
    if (cut) {
        deliver_to_cut(e, cut, fell);
        sc_gate_flush(e, !fell || memchr(fell, 1, e->view.n) != NULL);
    } else {
        sc_gate_drop(e); /* others decide its fate, if anybody does */
    }
    sc_large_view_ends(e, merge);
}

static void peer_free(sc_engine *e, sc_peer *peer) {
    sc_pieces_free(&peer->pieces);
    sc_rx_free(e, &peer->group);
    sc_rx_free(e, &peer->unicast);
    sc_rx_free(e, &peer->forward);
    sc_rx_free(e, &peer->state);
    sc_tx_end(e, peer->unicast_tx);
    sc_tx_end(e, peer->state_tx);
    free(peer);
}

static void forget_view(sc_engine *e) {
    sc_again_forget(e);
    sc_cut_reset(e);
    sc_stand_end(e);
    e->epoch++;
    sc_queue_closed(e);
    sc_may_send(e);
    free(e->order.state);
    e->order.state = NULL;
}

void sc_view_leave(sc_engine *e) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        peer_free(e, e->peers[r]);
        e->peers[r] = NULL;
    }
    e->in_view = 0;
    e->view.n = 0;
    if (e->seal) sc_seal_enter(e->seal, 0);
    forget_view(e);
    sc_detect_stop(e);
    sc_taking_stop(e);
}

/* ---- members ------------------------------------------------------------------------------------------------- */

/* A member that was not here before, or was apart. */
static void peer_begin(sc_engine *e, sc_peer *peer, uint64_t id, uint32_t rank) {
    peer->id = id;
    peer->pair = e->view.tag;
    sc_taken_peer_begin(e, peer, rank);
    sc_rx_reset(e, &peer->unicast, 0);
    sc_rx_reset(e, &peer->state, 0);
}

static void peer_enter(sc_engine *e, sc_peer *peer, uint32_t rank, int64_t now) {
    sc_tx_rewindow(e, peer);
    peer->address = e->view.addresses[rank];
    peer->rank = rank;
    sc_cut_peer_begin(peer);
    sc_again_peer_begin(e, peer, now);
    sc_size_peer_begin(peer);
    sc_detect_peer_begin(e, peer, now);
    sc_credit_peer_begin(e, peer, e->view.base[e->view.rank]);
    sc_congestion_peer_begin(e, peer, e->view.base[e->view.rank]);
    sc_skip_begin(peer);
    sc_rx_reset(e, &peer->group, e->view.base[rank]);
    sc_reliability_begin(&e->config, &peer->group);
    sc_rx_reset(e, &peer->forward, e->view.origin_base[rank]);
}

/* Members of both views keep the streams between them; the others are removed: returns whether there are any. */
static int replace_members(sc_engine *e, uint32_t n_old, preparation *new, int64_t now) {
    sc_peer *old[SC_MEMBERS_MAX];
    int lost_one = 0;
    memcpy(old, e->peers, sizeof old);
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = new->fresh[r];
        int is_new = peer != NULL;
        new->fresh[r] = NULL;
        for (uint32_t i = 0; i < n_old && !peer; i++) {
            if (!old[i] || old[i]->id != e->view.ids[r]) continue;
            peer = old[i];
            old[i] = NULL;
        }
        if (is_new) peer_begin(e, peer, e->view.ids[r], r);
        peer_enter(e, peer, r, now);
        e->peers[r] = peer;
    }
    for (uint32_t i = 0; i < n_old; i++) {
        if (!old[i]) continue;
        lost_one = 1;
        peer_free(e, old[i]);
    }
    return lost_one;
}

/* ---- streams ------------------------------------------------------------------------------------------------- */

static void order_begin(sc_engine *e, preparation *new) {
    e->order = (sc_order){.ops = new->ops, .state = new->order_state, .forward_to = -1};
    new->order_state = NULL;
    memcpy(e->order.returned, e->view.origin_base, sizeof e->order.returned);
    e->order.ops->begin(e);
}

static uint64_t window_of(const sc_engine *e, uint64_t window) {
    uint64_t least = 2 * (uint64_t)e->view.packet_bytes;
    if (window > e->config.ring_bytes) window = e->config.ring_bytes;
    return window < least ? least : window;
}

/* The ring for a window; each packet may waste its alignment, and a packet does not wrap around the end. */
static uint64_t ring_of(const sc_engine *e, uint64_t window) {
    return window + window / 8 + 4 * (uint64_t)e->view.packet_bytes;
}

/* Ring size for messages that a view change leaves unordered, for the end of a single member: the others have larger
 * windows then. */
static uint64_t forward_ring_of_fewer(const sc_engine *e) {
    uint64_t window = e->view.forward_window_bytes;
    if (e->view.n > 2) window += window / (e->view.n - 2);
    return ring_of(e, window_of(e, window));
}

/* A view change is the wrong time for new memory: all senders wait, and a virtual machine may take milliseconds for a
 * megabyte. So a ring has room for a window twice as large, and the part needed at once in the next view is written to
 * before. */
static sc_ring_size ring_size(const sc_engine *e, uint64_t window, uint64_t resend) {
    uint64_t ring = ring_of(e, window);
    return (sc_ring_size){.needed = ring > resend ? ring : resend,
                          .packets = resend / e->view.packet_bytes,
                          .room = ring_of(e, window_of(e, 2 * window)),
                          .written = e->order.waits ? forward_ring_of_fewer(e) : 0};
}

/* A stream in use has a ring for its window. Resent messages fit, whatever the window. A member that forwards has a
 * group ring, too: perhaps the next to multicast. */
static int stream_begin(sc_engine *e, sc_tx_stream *tx, uint64_t base, uint64_t window, int used, uint64_t resend) {
    sc_ring_size size = {0};
    if (!used && !(e->order.waits && tx == &e->group)) return sc_tx_reset(e, tx, base, 0, e->view.packet_bytes, &size);
    window = window_of(e, window);
    size = ring_size(e, window, resend);
    return sc_tx_reset(e, tx, base, used ? window : 0, e->view.packet_bytes, &size);
}

static int streams_begin(sc_engine *e, const sc_resend *resend) {
    uint64_t ring = sc_resend_ring(resend, e->view.packet_bytes);
    uint64_t base = e->view.base[e->view.rank], forward_base = e->view.origin_base[e->view.rank];
    int forwards = e->order.forward_to >= 0, multicasts = e->order.own == &e->group;
    if (stream_begin(e, &e->group, base, e->view.window_bytes, multicasts, ring)) return -1;
    if (!forwards && !e->forward.packets) return 0;
    return stream_begin(e, &e->forward, forward_base, e->view.forward_window_bytes, forwards, ring);
}

/* ---- the view ------------------------------------------------------------------------------------------------ */

/* -1 without memory for the rings, or for resent messages: this member is then in no view, rather than in one that
 * silently lacks some of its messages. */
static int begin(sc_engine *e, const sc_view *view, preparation *new, int64_t now) {
    uint32_t n_old = e->in_view ? e->view.n : 0;
    e->view_before = e->in_view ? e->view.tag : 0;
    e->installed = now;
    forget_view(e);
    e->view = *view;
    e->spoke = view->rank;
    if (!e->view.share_bytes) e->view.share_bytes = e->view.window_bytes;
    order_begin(e, new);
    int lost_one = replace_members(e, n_old, new, now);
    e->in_view = 1;
    if (streams_begin(e, &new->resend) || sc_own_reset(e, sc_number_base(e, view->rank))) return -1;
    sc_credit_begin(e, view->base[view->rank]);
    sc_holdup_begin(e, now);
    sc_size_begin(e);
    sc_slow_begin(e, lost_one, now);
    sc_large_done(e);
    sc_detect_begin(e, now);
    int failed = sc_resend_pack(e, &new->resend, e->wall);
    if (e->order.waits) sc_resend_prepare(e, forward_ring_of_fewer(e));
    sc_taking_installed(e, now);
    return failed;
}

int sc_view_install(sc_engine *e, const sc_view *view, const uint64_t *cut, uint64_t marker, int64_t now) {
    if (!is_valid(e, view)) return -1;
    preparation new = {0};
    finish_view(e, cut, view->fell, (int)view->merge);
    if (prepare(e, view, &new) || sc_queue_marker(e, marker, 0)) {
        preparation_free(&new);
        return -1;
    }
    if (e->seal) sc_seal_enter(e->seal, view->tag);
    int failed = begin(e, view, &new, now);
    preparation_free(&new);
    if (failed) sc_view_leave(e);
    return failed;
}

uint64_t sc_engine_view(const sc_engine *e) { return e->in_view ? e->view.tag : 0; }

static void new_targets(const sc_engine *e, sc_targets *out) {
    static const int by_way[] = {SC_WAY_UNICAST, SC_WAY_BOTH, SC_WAY_MULTICAST};
    uint32_t up_to[3] = {0};
    out->n = 0;
    for (int i = 0; i < 3; i++) {
        for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
            if (r == e->view.rank || e->peers[r]->detect.way != by_way[i]) continue;
            out->place[r] = out->n;
            out->to[out->n++] = e->view.addresses[r];
        }
        up_to[i] = out->n;
    }
    if (e->in_view) out->place[e->view.rank] = out->n;
    int none = sc_outflow_singly(e);
    out->alone = none ? out->n : up_to[1];
    out->together = none ? 0 : out->n - up_to[0];
}

int sc_engine_targets(const sc_engine *e, sc_targets *out) {
    uint64_t view = sc_engine_view(e);
    int others = view != out->view || e->detect.ways != out->ways;
    if (others) new_targets(e, out);
    out->view = view;
    out->ways = e->detect.ways;
    out->first = e->in_view ? out->place[e->spoke] : out->n;
    return others;
}

void sc_engine_close(sc_engine *e, const uint64_t *cut, const uint8_t *fell, uint64_t marker) {
    finish_view(e, cut, fell, 0);
    sc_queue_marker(e, marker, 0);
    sc_view_leave(e);
}
