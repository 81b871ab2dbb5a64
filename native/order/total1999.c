/* TOTAL (S1): the first member of the view orders. Members send it their messages as requests, it multicasts them, and
 * their sequence ids are the seqnos of its group stream. docs/protocol.md, "The TOTAL protocol", says how each header
 * of that document is here: streams carry most of them; this file has those that only this order knows, and stamping.c
 * orders.
 *
 * NEW_VIEW. The sequencer tells the others with which id the view begins, until each has acknowledged that. Until then
 * a member delivers nothing, and its requests may have reached a sequencer that was not in the view yet; NEW_VIEW makes
 * it repeat them at once. The cut does not need NEW_VIEW, as the VIEW implies the same id.
 *
 * A lost last packet (TOT-20) makes no gap. If the sequencer hears nothing more, the last packet is sent again, once,
 * to those without an acknowledgement, cumulative or single. From that a member sees its gaps a round trip earlier than
 * from a probe; one that has the last packet after a gap says so by SEQ_ACK, knowing which packets to request. */
#include "engine/internal.h"
#include "order/stamping.h"

#define QUICK 5 /* NEW_VIEW is multicast this often; later sent by unicast to those without an acknowledgement */

typedef struct {
    sc_stamping stamping;
    /* The sequencer. */
    uint8_t entered[SC_MEMBERS_MAX]; /* by rank: NEW_VIEW is acknowledged */
    uint32_t told; /* how often NEW_VIEW was sent */
    int64_t tell_due, tell_wait;
    uint64_t repaired; /* the last packet, once repeated because none followed */
    /* The others. */
    uint64_t first; /* id with which the view begins; 0: NEW_VIEW has not come */
    uint64_t single; /* highest id that was acknowledged by itself */
    int64_t single_due;
} total;

static int fits(const sc_view *view) { return view->sequencer == 0; } /* TOT-04 */

static void begin(sc_engine *e) {
    total *t = e->order.state;
    sc_stamping_begin(e);
    t->tell_due = e->now;
    t->tell_wait = e->config.probe_ns_min / 16;
    t->single_due = SC_NEVER;
}

static void say(sc_engine *e, const sc_peer *peer, uint32_t header, uint64_t id) {
    uint8_t *p = sc_out_new(e, peer ? &peer->address : NULL, SC_TYPE_TOTAL, SC_TOTAL_LEN);
    if (!p) return;
    sc_put_total_id(p, id);
    sc_put_total_header(p, header);
}

/* ---- the sequencer ------------------------------------------------------------------------------------------- */

/* A member may install the view much later than the sequencer. As the pauses double, the wait for NEW_VIEW is no longer
 * than the delay. */
static void tell(sc_engine *e, int64_t now) {
    total *t = e->order.state;
    if (t->tell_due > now) return;
    uint64_t first = e->view.base[e->view.rank] + 1;
    uint32_t lacking = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (r == e->view.rank || t->entered[r]) continue;
        lacking++;
        if (t->told >= QUICK && !e->peers[r]->cut.lost) say(e, e->peers[r], SC_TOTAL_NEW_VIEW, first);
    }
    if (lacking && t->told < QUICK) say(e, NULL, SC_TOTAL_NEW_VIEW, first);
    t->told++;
    t->tell_due = lacking ? now + t->tell_wait : SC_NEVER;
    t->tell_wait = t->tell_wait * 2 < e->config.probe_ns_max ? t->tell_wait * 2 : e->config.probe_ns_max;
}

/* No packet has followed the last one for a while. A member that has not entered the view would drop this. */
static int tail(sc_engine *e, int64_t now) {
    total *t = e->order.state;
    uint64_t last = e->group.unsent - 1;
    int lacking = 0;
    if (!sc_is_sequencer(e) || t->repaired == last) return 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (!t->entered[r] || !sc_counts(peer)) continue;
        if (peer->credit.acked.delivered >= last || peer->credit.acked.received >= last) continue;
        if (!sc_again_unasked(e, peer, last, now)) break;
        lacking++;
    }
    if (lacking) t->repaired = last;
    return lacking > 0;
}

/* ---- the others ---------------------------------------------------------------------------------------------- */

/* Of the packets after a gap only the highest is acknowledged, which shows that the end has come. */
static void advance(sc_engine *e, sc_peer *peer) {
    total *t = e->order.state;
    const sc_rx_stream *rx = &peer->group;
    if (!t->first) return;
    sc_stamping_advance(e, peer);
    if (t->single_due == SC_NEVER && rx->highest >= rx->next && rx->highest > t->single && sc_rx_acknowledges(rx))
        t->single_due = e->now + e->config.ack_delay_ns;
}

static void acknowledge_single(sc_engine *e, int64_t now) {
    total *t = e->order.state;
    if (t->single_due > now) return;
    t->single_due = SC_NEVER;
    const sc_peer *sequencer = e->peers[e->view.sequencer];
    if (sequencer->group.highest < sequencer->group.next) return; /* the gap is filled */
    t->single = sequencer->group.highest;
    say(e, sequencer, SC_TOTAL_SEQ_ACK, t->single);
}

static void enter(sc_engine *e, sc_peer *sequencer, uint64_t first, int64_t now) {
    total *t = e->order.state;
    if (!t->first) {
        t->first = first;
        sc_probe_now(&e->forward, now);
        if (!e->cut.set) advance(e, sequencer);
    }
    say(e, sequencer, SC_TOTAL_NEW_VIEW_ACK, 0);
}

/* ---- both ---------------------------------------------------------------------------------------------------- */

static void hear(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    total *t = e->order.state;
    uint32_t header = sc_get_type(p) == SC_TYPE_TOTAL ? sc_get_total_header(p) : 0;
    uint64_t id = sc_get_total_id(p);
    int from_sequencer = peer->rank == (uint32_t)e->view.sequencer;
    if (header == SC_TOTAL_NEW_VIEW && from_sequencer && id == e->view.base[peer->rank] + 1)
        enter(e, peer, id, now);
    else if (header == SC_TOTAL_NEW_VIEW_ACK && sc_is_sequencer(e))
        t->entered[peer->rank] = 1;
    else if (header == SC_TOTAL_SEQ_ACK && sc_is_sequencer(e) && id < e->group.unsent)
        sc_credit_received(peer, id);
    else
        e->counters->drop_field++;
}

static void settle(sc_engine *e, int64_t now) {
    if (sc_is_sequencer(e))
        tell(e, now);
    else
        acknowledge_single(e, now);
    sc_stamping_settle(e, now);
}

static int64_t deadline(const sc_engine *e) {
    const total *t = e->order.state;
    if (!sc_is_sequencer(e)) return t->single_due;
    int64_t due = sc_stamping_deadline(e);
    return due < t->tell_due ? due : t->tell_due;
}

static const sc_order_work work = {.settle = settle, .deadline = deadline};

const sc_order_ops sc_order_total1999 = {
    .name = "total-1999",
    .beside = 1,
    .state_bytes = sizeof(total),
    .begin = begin,
    .packed = sc_stamping_packed,
    .accepts = sc_stamping_accepts,
    .advance = advance,
    .finish = sc_stamping_finish,
    .forwarding = &sc_stamping_forwarding,
    .work = &work,
    .fits = fits,
    .ordered = sc_stamping_ordered,
    .hear = hear,
    .tail = tail,
};
