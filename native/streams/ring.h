/* The structure of a send ring, which belongs to streams/tx.c: that kernel begins and ends a stream. A field that
 * belongs to another kernel in between names that kernel. */
#pragma once

#include "base/least.h"
#include "engine/engine.h"

#define SC_NOT_LENT UINT64_MAX
#define SC_TX_ALIGN 64u

typedef struct sc_tx_packet {
    uint8_t *p; /* the datagram as sent; a retransmission sends the same bytes */
    uint32_t len;
    uint32_t charge; /* charge against a receiver's socket buffer */
    uint64_t charged; /* sum of `charge` of this stream, this packet included */
    uint64_t own_charged; /* the same of the packets that were packed here, not inserted */
    uint64_t ring_end; /* the next position of the byte ring (monotonic) */
    /* Seqno in which the message that continues after this packet began; else its own seqno + 1. */
    uint64_t message_start;
    uint64_t own; /* of the group stream: the highest number of an own packet up to here (sc_own) */
    sc_slab *slab; /* a restamped forward or a record lies in a slab, own packets (NULL) in the byte ring */
    int64_t sent_at;
    int64_t retransmitted_at;
    uint32_t retransmitted_to; /* rank + 1 of the last requester, UINT32_MAX: all */
    uint32_t again; /* place of its last repeat in the queue, counted from 1 since the start; 0: none */
    uint32_t messages; /* that end here */
    uint64_t sealed; /* of a restamped forward, by sc_seal_before; else 0 */
} sc_tx_packet;

typedef struct sc_tx_stream {
    int stream; /* SC_STREAM_* */
    uint8_t type;
    uint8_t *ring;
    uint64_t ring_bytes, head, tail; /* head, tail: monotonic positions */
    uint64_t ring_room; /* bytes of its memory, which may be more than are used */
    uint64_t lent; /* streams/transmit.c: position of the oldest packet handed out last, or SC_NOT_LENT */
    int lent_stall; /* streams/transmit.c: a packet could not be opened because memory was lent */
    sc_tx_packet *packets;
    uint32_t mask;
    uint32_t places; /* descriptors for sends, as the setting says: any more are for messages that are sent again */
    uint64_t first; /* oldest seqno kept */
    uint64_t slabs; /* packets kept that lie in slabs */
    uint64_t next; /* seqno of the open packet, or of the next one */
    uint64_t unsent; /* streams/transmit.c: oldest seqno never transmitted */
    uint64_t unsent_bytes; /* of the packets from there on, and of the messages in the open one */
    uint64_t stable; /* streams/credit.c: delivered by all receivers */
    uint64_t consumed; /* consumed by all receivers: gives credit */
    uint64_t arrived; /* streams/congestion.c: of a stream to one member: it has received up to here, but for gaps */
    uint64_t charged, charged_consumed, own_charged, own_consumed;
    uint64_t window;
    int64_t starved_until; /* own messages wait for credit, or did so very recently */
    uint32_t packet_bytes;
    int paced; /* streams/outflow.c: the last send waited for packets to leave */
    /* The open packet. */
    uint8_t *open;
    uint32_t open_len, open_pieces, open_messages;
    uint8_t open_flags;
    int beside; /* packets are closed with SC_FLAG_BESIDE */
    int64_t open_wall;
    int open_even; /* its whole messages are of the same length: */
    uint32_t open_first, open_each; /* the end of its first piece; that length, or 0 before there is one */
    int32_t *open_offsets; /* if not even */
    /* A message whose beginning is packed and whose end is not. */
    int in_message;
    uint64_t message_start; /* 0: too large to be kept for a view change */
    uint64_t big_start; /* where the last message that was too large to be kept began */
    uint64_t pair; /* of a unicast stream: sc_peer.pair */
    int ended; /* streams/state.c: nothing follows: its memory is freed when everything is acknowledged */
    int64_t probe_due; /* streams/probes.c: of the tail probe */
    int64_t probe_wait; /* streams/probes.c */
    int64_t probe_latest; /* streams/probes.c: bounds `probe_due` while packets are sent */
} sc_tx_stream;

/* The charge of a datagram against a receiver's SO_RCVBUF. Full packets travel in UDP_SEGMENT runs or are as large as a
 * slab: their overhead is 1 to 2 %. A single packet is charged its skb and a power of two. */
static inline uint32_t sc_charge(uint32_t len, int full) {
    if (full || len >= 32768) return len + len / 50 + 64;
    uint32_t room = 512;
    while (room < len + 400) room *= 2;
    return room + 256;
}

/* The most that the next packet may be charged: one that is not full may charge more. */
static inline uint32_t sc_charge_most(uint32_t packet_bytes) {
    uint32_t full = sc_charge(packet_bytes, 1), rest = sc_charge(packet_bytes > 32768 ? 32767 : packet_bytes - 1, 0);
    return full > rest ? full : rest;
}

static inline int sc_tx_has(const sc_tx_stream *tx, uint64_t seqno) { return seqno >= tx->first && seqno < tx->next; }
static inline sc_tx_packet *sc_tx_at(const sc_tx_stream *tx, uint64_t seqno) { return &tx->packets[seqno & tx->mask]; }
static inline int sc_tx_outstanding(const sc_tx_stream *tx, uint64_t acked) { return acked + 1 < tx->unsent; }
/* Is a message of `len` bytes kept whole in the ring until ordered? A message that could fill the ring's bytes or
 * descriptors is not. */
static inline int sc_tx_keeps(const sc_tx_stream *tx, uint64_t len) {
    return len <= tx->window / 2 && len / (tx->packet_bytes - SC_DATA_HEADER - 64) + 2 < tx->places / 2;
}
