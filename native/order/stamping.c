/* Stamping: members send their packets on the forward stream to the sequencer, which multicasts them, along with its
 * own, in its group stream. The view names the sequencer. */
#include "order/stamping.h"

#include "engine/internal.h"

#define COUNT_NS 20000000
#define MUCH 16 /* a member that forwards this part of the window in COUNT_NS has a part of it */

void sc_stamping_begin(sc_engine *e) {
    *(sc_stamping *)e->order.state =
        (sc_stamping){.global_next = 1, .origin_next = e->view.origin_base[e->view.rank] + 1, .first = 0};
    e->order.waits = !sc_is_sequencer(e);
    e->order.own = sc_is_sequencer(e) ? &e->group : &e->forward;
    e->order.forward_to = sc_is_sequencer(e) ? -1 : e->view.sequencer;
}

/* ---- the sequencer ------------------------------------------------------------------------------------------- */

/* Assigns the numbers of the next packet of the member `rank`, whose own number is given, and writes them there.
 * Returns the global seqno of its first message; 0: beside the order. */
static uint64_t stamp(sc_engine *e, uint8_t *p, uint32_t rank, uint64_t origin, uint32_t messages) {
    sc_stamping *s = e->order.state;
    uint64_t global = sc_is_beside(p) ? 0 : s->global_next;
    sc_put_origin_seqno(p, origin);
    sc_put_origin_rank(p, (uint16_t)rank);
    sc_put_global_seqno(p, global);
    if (global) s->global_next += messages;
    e->order.returned[rank] = origin; /* E-01: the forward stream is FIFO without gaps, so each is one higher */
    e->counters->stamped++;
    return global;
}

/* An own packet of the sequencer takes the same path as everyone's (E-07). */
void sc_stamping_packed(sc_engine *e, sc_tx_stream *tx, sc_tx_packet *packet) {
    if (tx == &e->forward) {
        sc_own_packet(e, tx->next - 1, packet->messages);
        return;
    }
    packet->own = ((sc_stamping *)e->order.state)->origin_next++;
    uint64_t global = stamp(e, packet->p, e->view.rank, packet->own, packet->messages);
    sc_own_packet(e, packet->own, packet->messages);
    sc_queue_own(e, packet->p, packet->len, tx->next - 1, packet->own, global);
}

/* The next forward of `peer` becomes a packet of the own group stream, in place (SEQ-17). */
void sc_stamping_take(sc_engine *e, sc_peer *peer, int64_t now) {
    sc_rx_stream *rx = &peer->forward;
    sc_rx_packet *slot = sc_rx_at(e, rx, rx->queued);
    uint8_t *p = slot->p;
    uint64_t number = sc_get_seqno(p), seqno = e->group.next;
    uint32_t messages = sc_messages_ending(p), len = slot->len;
    uint64_t sealed = sc_seal_before(e->seal, p, len);
    sc_put_type(p, SC_TYPE_DATA);
    sc_put_sender(p, e->config.member);
    sc_put_seqno(p, seqno);
    uint64_t global = stamp(e, p, peer->rank, number, messages);
    sc_queue_packet(e, &(sc_delivery){.p = p,
                                      .len = len,
                                      .slab = slot->slab,
                                      .stream = SC_STREAM_GROUP,
                                      .carrier = (uint16_t)e->view.rank,
                                      .rank = (uint16_t)peer->rank,
                                      .sender = peer->id,
                                      .seqno = seqno,
                                      .number = number,
                                      .global = global});
    sc_stamping *s = e->order.state;
    sc_tx_insert(e, &e->group, slot, sealed, messages, s->origin_next - 1);
    s->forwarded[peer->rank] += len;
    sc_rx_moved(rx, slot);
    sc_rx_skip(rx);
    sc_rx_release(e, rx);
    sc_ack_consumed(e, peer, SC_STREAM_FORWARD, len, now);
}

/* Has the group stream credit for a forward? Own messages take their turn when their thread runs. If they wait for
 * credit, forwards leave them the share of one member: otherwise forwards, which wait here, would take all credit as it
 * comes. */
static int may_take(sc_engine *e, uint32_t len) {
    uint32_t share = e->now < e->group.starved_until ? (uint32_t)(e->group.window / e->view.n) : 0;
    return sc_outflow_room(e, &e->group) && sc_tx_may_insert(e, &e->group, len, 0) &&
           sc_tx_allows(e, &e->group, sc_charge(len, 1) + share, 0);
}

/* Own messages are packed where they are multicast. Without a limit they would take all the credit while the forwards
 * of others lie in the socket, unread. So while others forward much, own messages have a part of the window, twice as
 * large as that of each of them: forwards have another window on their way here. Nothing is stamped without credit, so
 * the limit ends if none comes. */
static void share_window(sc_engine *e, int64_t now) {
    sc_stamping *s = e->order.state;
    if (now < s->count_due) return;
    uint32_t others = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        others += s->forwarded[r] >= e->group.window / MUCH;
        s->forwarded[r] = 0;
    }
    uint64_t before = e->order.own_limit, limit = others ? 2 * e->group.window / (others + 2) : 0;
    e->order.own_limit = limit;
    s->count_due = now + COUNT_NS;
    if (before && (!limit || limit > before)) sc_may_send(e); /* a sender may wait */
}

int64_t sc_stamping_deadline(const sc_engine *e) {
    return e->order.own_limit && !e->cut.gate_closed ? ((sc_stamping *)e->order.state)->count_due : SC_NEVER;
}

/* Stamps forwards, one packet of each member in turn, while the group stream has credit. */
static void stamp_forwards(sc_engine *e, int64_t now) {
    sc_stamping *s = e->order.state;
    for (uint32_t idle = 0; idle < e->view.n;) {
        sc_peer *peer = e->peers[s->first];
        const sc_rx_stream *rx = &peer->forward;
        if (peer->cut.lost || rx->queued >= rx->next) {
            s->first = (s->first + 1) % e->view.n;
            idle++;
            continue;
        }
        sc_tx_close(e, &e->group); /* the own open packet comes first, and takes its slot in the ring */
        if (!may_take(e, sc_rx_at(e, rx, rx->queued)->len)) {
            e->counters->credit_stalls++;
            return;
        }
        idle = 0;
        sc_stamping_take(e, peer, now);
        s->first = (s->first + 1) % e->view.n;
    }
}

void sc_stamping_settle(sc_engine *e, int64_t now) {
    if (!sc_is_sequencer(e) || e->cut.gate_closed) return;
    stamp_forwards(e, now);
    share_window(e, now);
}

/* ---- the others ---------------------------------------------------------------------------------------------- */

/* Only the sequencer gets forwards (SEQ-14), and no other member multicasts. */
int sc_stamping_accepts(const sc_engine *e, const sc_peer *peer, int stream, const uint8_t *p) {
    if (stream == SC_STREAM_FORWARD) return sc_is_sequencer(e);
    if (sc_get_type(p) != SC_TYPE_DATA) return 0;
    return peer->rank == (uint32_t)e->view.sequencer && sc_get_origin_rank(p) < e->view.n;
}

/* Own packets up to `number` are ordered: they leave the forward table, and give credit. */
static void came_back(sc_engine *e, uint64_t number) {
    sc_tx_stream *tx = &e->forward;
    if (!sc_tx_has(tx, number)) return;
    sc_credit_returned(e, number);
    uint64_t keep = sc_tx_at(tx, number)->message_start; /* the start of a message that continues is kept */
    sc_tx_purge(tx, keep <= number ? keep - 1 : number);
}

/* A packet that is not delivered here gives credit like one that was taken. */
static void pass_over(sc_engine *e, sc_peer *peer) {
    uint32_t len = sc_rx_at(e, &peer->group, peer->group.queued)->len;
    sc_rx_skip(&peer->group);
    sc_ack_consumed(e, peer, SC_STREAM_GROUP, len, e->now);
}

void sc_stamping_advance(sc_engine *e, sc_peer *peer) {
    sc_rx_stream *rx = &peer->group;
    while (rx->queued < rx->next) {
        const uint8_t *p = sc_rx_at(e, rx, rx->queued)->p;
        uint32_t rank = sc_get_origin_rank(p);
        uint64_t number = sc_get_origin_seqno(p), *returned = &e->order.returned[rank];
        if (number > *returned + 1) { /* stamping leaves no gap (E-01): the packet is not the sequencer's */
            e->counters->drop_field++;
            sc_rx_refuse(e, rx);
            return;
        }
        if (number <= *returned) { /* SEQ-18 */
            e->counters->packets_duplicate++;
            pass_over(e, peer);
            continue;
        }
        int own = rank == e->view.rank;
        if (own && !e->config.deliver_own)
            pass_over(e, peer);
        else if (!sc_rx_deliver(e, peer, rank, number, sc_get_global_seqno(p)))
            return;
        *returned = number;
        if (own) came_back(e, number);
    }
}

uint64_t sc_stamping_ordered(const sc_engine *e) { return e->order.returned[e->view.rank]; }

/* The own number before the first own packet in the sequencer's stream that is not known to be stable. */
static uint64_t stable(const sc_engine *e) {
    const sc_rx_stream *rx = &e->peers[e->view.sequencer]->group;
    for (uint64_t seqno = rx->stable + 1; rx->packets && seqno < rx->queued; seqno++) {
        const uint8_t *p = sc_rx_at(e, rx, seqno)->p;
        if (p && sc_get_seqno(p) == seqno && sc_get_origin_rank(p) == e->view.rank) return sc_get_origin_seqno(p) - 1;
    }
    return sc_stamping_ordered(e);
}

/* ---- the end of the view ------------------------------------------------------------------------------------- */

static void received(const sc_engine *e, uint64_t *table) {
    if (sc_is_sequencer(e) || e->cut.set != SC_CUT_CURRENT) return;
    const sc_rx_stream *rx = &e->peers[e->view.sequencer]->group;
    for (uint64_t seqno = rx->queued; seqno <= e->cut.end[e->view.sequencer] && seqno < rx->next; seqno++) {
        const uint8_t *p = sc_rx_at(e, rx, seqno)->p;
        uint64_t number = sc_get_origin_seqno(p);
        uint32_t rank = sc_get_origin_rank(p);
        if (number == table[rank] + 1)
            table[rank] = number; /* a packet out of sequence was not stamped by a sequencer */
    }
}

void sc_stamping_finish(sc_engine *e) {
    if (!sc_is_sequencer(e)) sc_stamping_advance(e, e->peers[e->view.sequencer]);
}

const sc_order_forwarding sc_stamping_forwarding = {.stable = stable, .received = received};
