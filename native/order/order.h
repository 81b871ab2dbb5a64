/* An order: the mechanism that decides in which order the messages of a view are delivered. Each file in this directory
 * is one order; orders.h lists them. Nothing outside the directory names one: the engine calls the table of the
 * installed view.
 *
 * An order can rely on this: every member's group stream is reliable and FIFO: `advance` is called when more packets
 * are contiguous, [queued, next) are the packets that wait for the order. The cut fixes one end of every group stream,
 * the same for all survivors, and everything up to there is here before the view is closed. Own messages are packed
 * into one of two streams, the group stream (multicast) or the forward stream (to the one member `forward_to`); both
 * are acknowledged and resent by the streams themselves, and their credit limits packing.
 *
 * An order must guarantee this:
 *  - Each packet of a group stream is either put into the delivery queue by sc_rx_deliver or skipped by sc_rx_skip, in
 *    the stream's sequence; the engine's own packets by sc_queue_own. Both give credit once the application has taken
 *    them, so holding back a packet holds back its sender's credit.
 *  - `advance` and `settle` are not called between the cut and `finish`. `finish` delivers the rest: which packets, and
 * in which order, depends only on the packets up to the cut, as every survivor has the same ones.
 *  - Own numbers. A sender's packets are numbered from its base on, as its receivers see them (Message.seqno): by the
 *    group stream's seqnos, of which records take some, or, with `forwarding`, gapless, by a numbering of the sender's
 *    own that survives views in the received table. `packed` reports each own packet with its number by sc_own_packet.
 *  - Own packets that wait for an order (`waits`) stay in their stream until they return, or until a view change
 *    collects those after `ordered` and packs their messages again in the new view. An order whose cut orders
 *    everything that was sent never waits.
 *  - Determinism: no clock, no randomness but sc_random, no iteration but by rank and seqno.
 * */
#pragma once

#include "engine/engine.h"
#include "order/orders.h"

struct sc_tx_stream;
struct sc_tx_packet;
struct sc_peer;

/* Optional parts of an order. */

/* An order in which only the sequencer multicasts: the others send it their packets in their forward streams, and get
 * them back in that one's group stream. Senders number their packets themselves, gapless and across views (the received
 * table), from sc_view.origin_base on. Without this part, an own number is the seqno of the packet in the group
 * stream. */
typedef struct {
    /* If `waits`: the own number up to which all members are known to have delivered own packets. */
    uint64_t (*stable)(const sc_engine *e);
    /* At the end of the view: `table` has the received table so far, by rank; adds the packets up to the cut that are
     * here but not delivered yet. */
    void (*received)(const sc_engine *e, uint64_t *table);
} sc_order_forwarding;

/* An order that acts by itself, besides when packets are packed or arrive. */
typedef struct {
    /* Called after anything that may have changed credit, streams or the gate: catches up. */
    void (*settle)(sc_engine *e, int64_t now);
    /* When `settle` must be called although nothing has changed; SC_NEVER (sc_never_due): never. */
    int64_t (*deadline)(const sc_engine *e);
} sc_order_work;

/* An order that the application can influence by an order policy: sc_engine_offers, sc_engine_decide. */
typedef struct {
    size_t (*offer)(sc_engine *e, sc_offer *out, uint64_t *batch);
    int (*decide)(sc_engine *e, uint64_t batch, const uint16_t *ranks, size_t n);
} sc_order_policy;

typedef struct sc_order_ops {
    const char *name;
    /* 1: own messages may travel beside the order: sc_is_beside(p) of their packets. Such a packet is delivered with
     * the global seqno 0 as soon as the earlier ones of its sender are, and at the latest by `finish`. 0: the order has
     * no such packets, and orders these messages like all others. */
    int beside;
    /* Bytes of private state (sc_order.state), zeroed when the view begins and freed when it ends: in all, and for each
     * of the n * n pairs of members. */
    size_t state_bytes, pair_bytes;

    /* ---- every order has these ---- */

    /* The view is set, but its streams do not exist yet: sets `own`, `forward_to` and `waits` of sc_order. */
    void (*begin)(sc_engine *e);
    /* A packet of the own group or forward stream is closed: it may write the order's fields of the header,
     * reports the own number and, if the packet is already ordered, delivers the packet here. */
    void (*packed)(sc_engine *e, struct sc_tx_stream *tx, struct sc_tx_packet *packet);
    /* Can this packet, in the group or the forward stream of `peer`, belong to this order? Called before its
     * storage. */
    int (*accepts)(const sc_engine *e, const struct sc_peer *peer, int stream, const uint8_t *p);
    /* More of the group stream of `peer` is contiguous. */
    void (*advance)(sc_engine *e, struct sc_peer *peer);
    /* The end of the view. All group streams end at the cut: delivers the rest. */
    void (*finish)(sc_engine *e);

    /* ---- parts; NULL: the order has none ---- */

    const sc_order_forwarding *forwarding;
    const sc_order_work *work;
    const sc_order_policy *policy;

    /* ---- exceptions; each comment explains NULL ---- */

    /* Can this order run in the view? Called before anything changes. NULL: in every view. */
    int (*fits)(const sc_view *view);
    /* The own number up to which own packets are known to be ordered, with packets of the order itself after the last
     * of them. NULL: they are ordered when they are packed. */
    uint64_t (*ordered)(const sc_engine *e);
    /* The open packet of the own group or forward stream is about to get its seqno: at most sc_order.spare packets may
     * be put first. NULL: none are. */
    void (*closing)(sc_engine *e, const struct sc_tx_stream *tx);
    /* A datagram of a type of the order's own, from another member in this view. NULL: there are none. */
    void (*hear)(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
    /* The tail of the own group stream seems to be lost: resends a packet that shows the tail to the others. 0: nothing
     * was resent, so the stream sends a probe. NULL: always a probe. */
    int (*tail)(sc_engine *e, int64_t now);
} sc_order_ops;

/* The order of the installed view. */
typedef struct {
    const sc_order_ops *ops;
    void *state; /* private to the order */
    struct sc_tx_stream *own; /* the application's messages to the group are packed into this stream */
    int32_t forward_to; /* rank of the member that receives the own forward stream; -1: unused */
    int waits; /* own packets are unordered until they return; with `forwarding` only */
    uint64_t own_limit; /* bytes of own packets that may be on their way in the group stream; 0: no limit */
    uint32_t spare; /* descriptors of the own group stream that are left free for packets of the order itself */
    /* The last packets of the own group stream may not be transmitted before the order allows that, or the gate closes;
     * with `work` only, which is called before a transmission. */
    uint32_t held;
    uint64_t held_bytes; /* bytes of the held packets for which the order has asked: they need no transmission yet */
    uint64_t returned[SC_MEMBERS_MAX]; /* received table (SEQ-09): by rank, the last own number that was ordered */
} sc_order;

/* Shared by orders. `fits` of an order in which one member of the view orders. */
int sc_has_sequencer(const sc_view *view);
/* `packed` of an order in which an own packet is ordered, and delivered here, right after packing. */
void sc_packed_and_ordered(sc_engine *e, struct sc_tx_stream *tx, struct sc_tx_packet *packet);
/* `deadline` of an order that acts only when something has changed. */
int64_t sc_never_due(const sc_engine *e);

/* The order with this wire number; NULL: there is none. */
const sc_order_ops *sc_order_of(uint32_t mechanism);
