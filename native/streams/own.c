/* Own numbers: the packets with own messages to the group, numbered as their receivers see them, and the number of
 * messages that end in them. */
#include "engine/internal.h"

static uint32_t *ended_at(const sc_engine *e, uint64_t number) { return &e->own.ends[number & (e->own.places - 1)]; }

/* The numbers kept may be forgotten. -1 without memory. */
static int keep(sc_engine *e, uint64_t places) {
    if (e->own.places == places) return 0;
    uint32_t *ends = calloc(places, sizeof *ends);
    if (!ends) return -1;
    free(e->own.ends);
    e->own.ends = ends;
    e->own.places = places;
    return 0;
}

/* A view begins: its own packets are numbered from `base` + 1 on. Messages that are sent again may need a larger ring.
 * -1 without memory. */
int sc_own_reset(sc_engine *e, uint64_t base) {
    if (keep(e, 2 * ((uint64_t)e->order.own->mask + 1))) return -1;
    e->own.base = e->own.first = e->own.last = base;
    if (e->own.sent > base) e->own.sent = base; /* in another group in between */
    *ended_at(e, base) = e->own.ended;
    return 0;
}

/* The own packet with this number is closed. At most two rings of them are on their way: one to the sequencer, and one
 * in its group stream. A number that was passed over, of a record, counts as a packet in which nothing ends. */
void sc_own_packet(sc_engine *e, uint64_t number, uint32_t messages) {
    uint64_t oldest = number > e->own.places ? number - e->own.places : 0;
    for (uint64_t each = e->own.last > oldest ? e->own.last : oldest; each + 1 < number; each++)
        *ended_at(e, each + 1) = e->own.ended;
    e->own.last = e->own.sent = number;
    e->own.ended += messages;
    *ended_at(e, number) = e->own.ended;
    if (number - e->own.first >= e->own.places) e->own.first = number + 1 - e->own.places;
}

/* The highest own number up to the packet `seqno` of the own group stream. The packet may have been purged, but by at
 * most a ring of newer packets: if the ring is full, its slot has just been reused, and the next packet tells. */
static uint64_t own_up_to(const sc_engine *e, uint64_t seqno) {
    const sc_tx_stream *tx = &e->group;
    if (seqno <= e->view.base[e->view.rank] || !tx->packets) return e->own.base;
    if (tx->next - seqno <= (uint64_t)tx->mask + 1) return sc_tx_at(tx, seqno)->own;
    const sc_tx_packet *after = sc_tx_at(tx, seqno + 1);
    return after->own - (after->slab == NULL);
}

/* The last packet of the own group stream that this member itself has ordered. A sequencer stamps while packing; its
 * `ordered` is in its own numbers, which are not those of a stream that carries forwards, too. */
static uint64_t ordered_alone(const sc_engine *e) {
    const sc_order_ops *ops = e->order.ops;
    return ops->ordered && !ops->forwarding ? ops->ordered(e) : e->group.next - 1;
}

void sc_engine_own(const sc_engine *e, sc_own *out) {
    memset(out, 0, sizeof *out);
    if (!e->in_view) return;
    out->first = e->own.first;
    out->last = e->own.last;
    if (e->order.waits) {
        out->any = e->order.ops->ordered(e); /* delivered by the member that ordered this */
        out->all = e->order.ops->forwarding->stable(e);
        return;
    }
    uint64_t any = e->view.n > 1 ? e->view.base[e->view.rank] : ordered_alone(e);
    uint64_t all = e->view.n > 1 ? e->group.next - 1 : any;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (r == e->view.rank) continue;
        uint64_t delivered = e->peers[r]->credit.acked.delivered;
        if (delivered > any) any = delivered;
        if (delivered < all) all = delivered;
    }
    out->any = own_up_to(e, any);
    out->all = own_up_to(e, all);
}

uint32_t sc_engine_own_messages(const sc_engine *e, uint64_t seqno, int waiting) {
    if (seqno < e->own.first) seqno = e->own.first;
    int waits = !waiting && e->own.large_last && !sc_large_returned(e) && seqno >= e->own.large_last;
    return *ended_at(e, seqno) - (uint32_t)waits;
}

uint64_t sc_own_unordered(const sc_engine *e) {
    if (!e->in_view || !e->order.ops->ordered) return 0;
    const sc_tx_stream *tx = e->order.own;
    uint64_t ordered = e->order.ops->ordered(e), open = tx->open && tx->open_pieces;
    return open + (ordered < e->own.last ? e->own.last - ordered : 0);
}

uint64_t sc_engine_unordered(const sc_engine *e) { return sc_own_unordered(e) + (e->gate.tail - e->gate.head); }

/* ---- large messages ------------------------------------------------------------------------------------------ */

/* A message too large to be kept until ordered: its sender waits until its last packet returns. There is one
 * at a time. */

void sc_large_none(sc_engine *e) { e->own.large_first = 0; }

/* Starts in this packet of the own stream; */
void sc_large_begins(sc_engine *e, uint64_t first) { e->own.large_first = first; }

/* completely packed, ends in this one. */
void sc_large_packed(sc_engine *e, uint64_t first, uint64_t last) {
    e->own.large_first = first;
    e->own.large_last = last;
    e->own.large_returned = 0;
}

int sc_large_returned(const sc_engine *e) {
    return e->own.large_returned ||
           (e->own.large_last && e->order.waits && e->order.ops->ordered(e) >= e->own.large_last);
}

void sc_large_done(sc_engine *e) { e->own.large_first = e->own.large_last = 0; }

/* The view is delivered to its end. Across a merge a completely packed large message is not resent, and counts as
 * returned. */
void sc_large_view_ends(sc_engine *e, int merge) {
    if (e->own.large_last && (merge || sc_large_returned(e))) e->own.large_returned = 1;
}

int sc_own_init(sc_engine *e) { return keep(e, 2 * (uint64_t)e->config.ring_packets); }

void sc_own_free(sc_engine *e) { free(e->own.ends); }
