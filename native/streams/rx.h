#pragma once

#include "engine/engine.h"
#include "streams/gaps.h"

/* Receive ring. Its kernel begins and ends a stream; a field that belongs to another kernel in between names that
 * kernel. */

typedef struct {
    uint8_t *p;
    uint32_t len;
    uint32_t again; /* as in sc_tx_packet; or of an earlier packet in this slot */
    sc_slab *slab;
} sc_rx_packet;

typedef struct sc_rx_stream {
    sc_rx_packet *packets; /* NULL until the first packet */
    uint64_t first; /* oldest seqno kept (all below are stable) */
    uint64_t next; /* end of the contiguous prefix, + 1 */
    uint64_t queued; /* delivery/queue.c: next to go into the delivery queue (== next but after a CUT) */
    uint64_t highest; /* highest seqno received */
    uint64_t known; /* streams/gaps.c: highest seqno known to exist; [next, known] is held or in `gaps` */
    uint64_t consumed; /* delivery/queue.c: taken by the application */
    uint64_t stable;
    uint64_t limit; /* streams/gaps.c: after a CUT: nothing above is accepted; else UINT64_MAX */
    sc_gap gaps[SC_GAPS_MAX]; /* streams/gaps.c */
    uint32_t n_gaps; /* streams/gaps.c */
    uint32_t pulled; /* streams/reliability.h: its only reader */
    uint64_t charged; /* streams/acks.c: sum of the charges of all packets consumed, as the sender counts them */
    uint64_t acked_charged; /* streams/acks.c: the same as of the last ack */
    uint64_t acked_consumed; /* streams/acks.c */
    int64_t ack_due; /* streams/acks.c */
    int64_t ack_latest; /* streams/acks.c: bounds `ack_due` while packets keep coming */
    int64_t progressed; /* streams/acks.c: when `ack_due` was moved last */
    uint64_t ack_at; /* streams/acks.c: an ack is due when `charged` is this much; 0: not known */
    uint64_t ack_for; /* streams/acks.c: `promised` when `ack_at` was computed */
    uint64_t promised; /* streams/credit.c: the sender may send until `charged` is this much */
    uint64_t claim_charged; /* streams/credit.c: `charged` when the claim began */
    uint16_t claim; /* streams/credit.c: the newest heard of the sender */
    /* The memory that a sender within its window can occupy here is bounded twice: in the ring, and in the delivery
     * queue. */
    uint64_t ring_bytes;
    uint64_t queue_bytes; /* delivery/queue.c */
    sc_sharing sharing; /* holds copies of its small packets, so that they occupy no slab of other senders */
} sc_rx_stream;

struct sc_peer;

sc_rx_stream *sc_rx_of(struct sc_peer *peer, int stream);
void sc_rx_reset(sc_engine *e, sc_rx_stream *rx, uint64_t base);
void sc_rx_free(sc_engine *e, sc_rx_stream *rx);
int sc_rx_ready(const sc_engine *e, sc_rx_stream *rx); /* has memory; 0: there is none */
void sc_rx_extend(const sc_engine *e, sc_rx_stream *rx);
/* Ranges within [first, last] that are here (`held`), or are not: (lo, hi) pairs, at most `max`, of at most `most`
 * packets. Only packets that fit into the ring. Returns their number. */
size_t sc_rx_ranges(const sc_engine *e, const sc_rx_stream *rx, int held, uint64_t first, uint64_t last, uint64_t most,
                    uint64_t *ranges, size_t max);
/* The highest seqno that was delivered, in the sense of an ACK. */
static inline uint64_t sc_rx_delivered(const sc_rx_stream *rx) {
    return rx->consumed >= rx->queued ? rx->consumed : rx->queued - 1;
}
void sc_rx_end(sc_rx_stream *rx, uint64_t last); /* nothing after `last` is delivered */
int sc_rx_put(sc_engine *e, sc_rx_stream *rx, uint64_t seqno, uint8_t *p, size_t len, sc_slab *slab);
void sc_rx_purge(const sc_engine *e, sc_rx_stream *rx, uint64_t upto);
void sc_rx_stable(sc_engine *e, sc_rx_stream *rx, uint64_t stable);
/* The packet `queued` is skipped; or dropped, so that its slot is empty again. */
void sc_rx_skip(sc_rx_stream *rx);
void sc_rx_consumed(sc_rx_stream *rx);
void sc_rx_drop(const sc_engine *e, sc_rx_stream *rx);
void sc_rx_release(const sc_engine *e, sc_rx_stream *rx);
void sc_rx_moved(sc_rx_stream *rx, sc_rx_packet *slot); /* its slab reference was moved elsewhere */
