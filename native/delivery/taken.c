/* How much applications have taken, for a sender that asks (wait_consumed). `consumed` gives credit: a count of packets
 * of one stream of one view, when a batch leaves the delivery queue. A sender wants to know about its own messages,
 * whichever member multicast them and however many views ago, and only once the application has received them. So each
 * member notes, for each other, the highest of *that sender's own* seqnos (the received table's numbering) that was
 * handed out, and answers when asked: at once, and again when the requested seqno is taken. Nothing is sent unless a
 * member asks. */
#include "engine/internal.h"

/* ---- the receiver's side ------------------------------------------------------------------------------------- */

static void answer(sc_engine *e, sc_peer *peer) {
    uint8_t *p = sc_out_new(e, &peer->address, SC_TYPE_TAKEN, SC_TAKEN_LEN);
    if (!p) return; /* asks again */
    sc_put_taken_seqno(p, peer->taken.taken);
    e->counters->taken_sent++;
    if (peer->taken.taken >= peer->taken.asked) peer->taken.asked = 0;
}

static void take(sc_engine *e, sc_peer *peer) {
    if (peer->taken.handed <= peer->taken.taken) return;
    peer->taken.taken = peer->taken.handed;
    if (peer->taken.asked && peer->taken.taken >= peer->taken.asked) answer(e, peer);
}

/* A packet of the group left the delivery queue: into a batch, or dropped if the application wants none. */
void sc_taken_hand(sc_engine *e, const sc_delivery *d, int now) {
    if (d->stream != SC_STREAM_GROUP || d->sender == e->config.member || !e->in_view) return;
    sc_peer *peer;
    if (d->epoch != e->epoch)
        peer = sc_find_peer(e, d->sender);
    else
        peer = e->peers[d->rank];
    if (!peer) return; /* gone */
    if (d->number > peer->taken.handed) peer->taken.handed = d->number;
    e->taken.handed = 1;
    if (now) take(e, peer);
}

void sc_engine_taken(sc_engine *e) {
    sc_state_entered(e);
    if (!e->taken.handed) return;
    e->taken.handed = 0;
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) take(e, e->peers[r]);
}

void sc_on_ask(sc_engine *e, sc_peer *peer, const uint8_t *p) {
    if (peer->cut.lost) return;
    peer->taken.asked = sc_get_taken_seqno(p);
    answer(e, peer);
}

/* ---- the sender's side --------------------------------------------------------------------------------------- */

/* The number of the last own packet with any part of a message; of an open packet, the lowest possible one. */
static uint64_t last_sent(const sc_engine *e) {
    const sc_tx_stream *tx = e->order.own;
    return tx->open && tx->open_pieces ? e->own.last + 1 : e->own.sent;
}

/* How much the applications of all others have taken. */
static uint64_t taken_by_all(const sc_engine *e) {
    uint64_t least = last_sent(e);
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank && e->peers[r]->taken.took < least) least = e->peers[r]->taken.took;
    return least;
}

/* The last seqno that a waiting caller asks about. */
static uint64_t wanted(const sc_engine *e) {
    uint64_t last = e->taken.curious, most = last_sent(e);
    for (const sc_taking *w = e->taken.waits; w; w = w->next)
        if (!w->queued && w->target > last) last = w->target;
    return last < most ? last : most;
}

static void ask(sc_engine *e, int64_t now) {
    uint64_t last = wanted(e);
    int lacking = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank || peer->taken.took >= last) continue;
        lacking = 1;
        uint8_t *p = peer->cut.lost ? NULL : sc_out_new(e, &peer->address, SC_TYPE_ASK, SC_TAKEN_LEN);
        if (!p) continue;
        sc_put_taken_seqno(p, last);
        e->counters->asks_sent++;
    }
    e->taken.ask_due = lacking || e->taken.waits ? now + e->taken.ask_wait : SC_NEVER;
    if (!lacking || e->taken.ask_wait >= e->config.probe_ns_max)
        e->taken.curious = 0; /* a caller that still waits has asked again */
    e->taken.ask_wait = e->taken.ask_wait * 2 < e->config.probe_ns_max ? e->taken.ask_wait * 2 : e->config.probe_ns_max;
}

static void ask_soon(sc_engine *e, int64_t now) {
    e->taken.ask_wait = e->config.probe_ns_min;
    e->taken.ask_due = now;
}

void sc_on_taken(sc_engine *e, sc_peer *peer, const uint8_t *p) {
    uint64_t seqno = sc_get_taken_seqno(p);
    if (seqno > last_sent(e)) {
        e->counters->drop_field++;
        return;
    }
    if (seqno <= peer->taken.took) return;
    peer->taken.took = seqno;
    sc_may_send(e);
}

void sc_taking_begin(sc_engine *e, sc_taking *w, int64_t now) {
    *w = (sc_taking){.next = e->taken.waits, .queued = e->blocked.messages};
    e->taken.waits = w;
    if (!e->in_view) return;
    w->target = last_sent(e);
    ask_soon(e, now);
}

int sc_taking_state(const sc_engine *e, const sc_taking *w) {
    if (!e->in_view) return SC_NO_VIEW;
    if (w->queued) return SC_AGAIN;
    return w->lost || taken_by_all(e) >= w->target ? SC_SENT : SC_AGAIN;
}

void sc_taking_end(sc_engine *e, sc_taking *w) {
    for (sc_taking **each = &e->taken.waits; *each; each = &(*each)->next) {
        if (*each != w) continue;
        *each = w->next;
        return;
    }
}

/* A message of the blocked queue is packed. */
void sc_taking_packed(sc_engine *e) {
    for (sc_taking *w = e->taken.waits; w; w = w->next)
        if (w->queued && !--w->queued) w->target = last_sent(e);
}

/* A view is installed, and messages that no sequencer had stamped are packed again, in other packets: a wait for any of
 * them becomes a wait for all. If subgroups merge they are lost. A new member owes nothing for earlier messages. */
void sc_taking_installed(sc_engine *e, int64_t now) {
    uint64_t base = sc_number_base(e, e->view.rank), last = last_sent(e);
    for (sc_taking *w = e->taken.waits; w; w = w->next) {
        if (w->queued || w->target <= base) continue;
        w->lost |= (int)e->view.merge;
        w->target = last;
    }
    e->taken.curious = 0;
    if (e->taken.waits) ask_soon(e, now);
}

uint64_t sc_engine_consumed(sc_engine *e, int64_t now) {
    if (!e->in_view) return 0;
    uint64_t taken = taken_by_all(e), last = last_sent(e);
    if (taken < last && e->taken.curious < last) {
        e->taken.curious = last;
        if (e->taken.ask_due == SC_NEVER) ask_soon(e, now);
    }
    return taken;
}

uint64_t sc_engine_last_sent(const sc_engine *e) { return e->in_view ? last_sent(e) : 0; }

void sc_taken_tick(sc_engine *e, int64_t now) {
    if (e->taken.ask_due <= now) ask(e, now);
}

/* Outside a view nobody is asked. */
void sc_taking_stop(sc_engine *e) { e->taken.ask_due = SC_NEVER; }

/* A new member: no debts for earlier messages in either direction. */
void sc_taken_peer_begin(sc_engine *e, sc_peer *peer, uint32_t rank) {
    peer->taken.handed = peer->taken.taken = sc_number_base(e, rank);
    peer->taken.took = sc_number_base(e, e->view.rank);
}
