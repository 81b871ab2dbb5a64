/* The wire: the one place that defines what a datagram looks like, and the one function that says whether it is valid.
 *
 * All integers are little-endian. Every datagram starts with the 40-byte common header; data packets (DATA, UNICAST,
 * FORWARD, STATE) carry 40 more bytes of header, then an Arrow binary array: the bytes of the messages, contiguous, and
 * after them, aligned to 4, `pieces + 1` int32 offsets, the first of which is 0 and the last `data_len`.
 *
 * A message that does not fit is split over consecutive seqnos of its stream: CONT_OUT says that the last piece of a
 * packet goes on in the next packet, CONT_IN that the first piece began in the one before. A message belongs to the
 * packet in which it ends. After the offsets a packet may be padded, so that the segments of one UDP_SEGMENT send are
 * of equal size.
 *
 * With key_id = 0 the integrity field is the CRC32C of the whole datagram, the field itself taken as zero. A key id
 * other than 0 is reserved for an AEAD whose tag is the last 16 bytes of the datagram, with the header as associated
 * data; this version drops and counts such datagrams.
 */
#ifndef SEQCAST_WIRE_H
#define SEQCAST_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define SC_WIRE_MAGIC 0xC5
#define SC_WIRE_VERSION 1
#define SC_COMMON_HEADER 40
#define SC_DATA_HEADER 80
#define SC_PACKET_MAX 65000 /* the largest datagram that is ever sent */
#define SC_MEMBERS_MAX 128
#define SC_SEQNO_MAX ((uint64_t)1 << 62) /* no seqno on the wire is higher, so that sums of seqnos do not wrap */

/* Datagram types. */
enum {
    SC_TYPE_DATA = 1, /* multicast packet of the group's stream */
    SC_TYPE_UNICAST = 2, /* packet of the stream from one member to one other */
    SC_TYPE_FORWARD = 3, /* packet on its way to the sequencer (SEQ-12) */
    SC_TYPE_ACK = 4, /* cumulative acknowledgement and credit */
    SC_TYPE_NAK = 5, /* ranges that are missing */
    SC_TYPE_PROBE = 6, /* tail probe: the highest seqno sent */
    SC_TYPE_HEARTBEAT = 7, /* liveness, highest seqno sent, digest */
    SC_TYPE_CONTROL = 8, /* a frame of the control plane, opaque to the engine */
    SC_TYPE_STATE = 9, /* packet of the stream of state from one member to a joiner: bytes, however they are cut */
    SC_TYPE_PING = 10, /* are you there? or: ask that member for me */
    SC_TYPE_PONG = 11, /* yes; or: it answered me */
    SC_TYPE_ASK = 12, /* what of my messages has your application taken? Tell me again when it is this much */
    SC_TYPE_TAKEN = 13 /* this much */
};

/* Streams a packet, ACK, NAK or PROBE can speak of. */
enum { SC_STREAM_GROUP = 0, SC_STREAM_UNICAST = 1, SC_STREAM_FORWARD = 2, SC_STREAM_STATE = 3 };

/* SC_FLAG_STARVED stands in heartbeats: the sender drops what it receives, as it has no slabs left, and since its last
 * heartbeat nothing came in order or was taken. */
enum { SC_FLAG_CONT_IN = 1, SC_FLAG_CONT_OUT = 2, SC_FLAG_STARVED = 4 };

/* Offsets of the fields. Common header; magic, version and group stay where they are in all versions: */
#define SC_OFF_MAGIC 0
#define SC_OFF_VERSION 1
#define SC_OFF_TYPE 2
#define SC_OFF_FLAGS 3
#define SC_OFF_CRC 4
#define SC_OFF_GROUP 8
#define SC_OFF_KEY_ID 12
#define SC_OFF_RESERVED 14 /* u16, zero */
#define SC_OFF_SENDER 16 /* incarnation of the member that sent it */
#define SC_OFF_VIEW 24 /* tag of the view; 0 outside any view */
#define SC_OFF_SEQNO 32 /* packet seqno; of datagrams that are no data packets: 0 */
/* Data header: */
#define SC_OFF_STABLE 40 /* highest seqno of this stream that all receivers have delivered */
#define SC_OFF_SENT_NS 48 /* wall clock of the sender when the packet was opened, ns since 1970 */
#define SC_OFF_ORIGIN_SEQNO 56 /* sender's own seqno where a sequencer multicasts for it; else 0 */
#define SC_OFF_GLOBAL 64 /* global seqno of the first message that ends here; 0: no total order */
#define SC_OFF_DATA_LEN 72
#define SC_OFF_PIECES 76
#define SC_OFF_ORIGIN_RANK 78 /* rank of the member whose messages these are */

/* ACK body, from 40: u64 stream, u64 delivered, u64 received, u64 consumed. */
#define SC_ACK_LEN 72
/* NAK body, from 40: u64 owner (incarnation), u32 stream, u32 n, then n times (u64 lo, u64 hi), both inclusive. */
#define SC_NAK_HEADER 56
#define SC_NAK_RANGES_MAX 64
/* PROBE body, from 40: u64 stream, u64 highest, u64 stable. */
#define SC_PROBE_LEN 64
/* HEARTBEAT body, from 40: u64 highest, u64 stable, u32 n, u32 zero, 128 bits by rank (the members that the sender has not
 * heard for its suspicion time), then n times (u64 delivered, u64 received), by rank. */
#define SC_HEARTBEAT_HEADER 80
#define SC_HEARTBEAT_UNHEARD 64 /* offset of the bits */
/* PING body, from 40: u64 target, u64 origin (incarnations). The target answers the sender by a PONG; another member, if
 * the origin itself asks it, pings the target for it. */
/* PONG body, from 40: u64 target, u64 origin, as in the PING. Who relayed the PING passes it on to the origin. */
#define SC_PING_LEN 56
/* ASK body, from 40: u64 seqno, of the asker's own numbering (as origin_seqno, or seqno without a sequencer). */
/* TAKEN body, from 40: u64 seqno, of the numbering of whoever asked. */
#define SC_ASK_LEN 48

/* What sc_wire_check says of a datagram. */
typedef enum {
    SC_WIRE_OK = 0,
    SC_WIRE_SHORT, /* shorter than its headers or its lengths say */
    SC_WIRE_MAGIC_BAD, /* not a datagram of ours */
    SC_WIRE_VERSION_BAD,
    SC_WIRE_GROUP_BAD, /* of another group on the same address and port */
    SC_WIRE_KEY_BAD,
    SC_WIRE_CRC_BAD,
    SC_WIRE_FIELD_BAD, /* an unknown type, or a length, count or offset that cannot be */
    SC_WIRE_RESULTS
} sc_wire_result;

/* Is `p[0..len)` a whole and valid datagram of group `group`? After SC_WIRE_OK every length, count and offset inside
 * may be used as an index. Reads nothing outside `p[0..len)`. */
sc_wire_result sc_wire_check(const uint8_t *p, size_t len, uint32_t group);

/* Puts the CRC32C into a finished datagram. */
void sc_wire_seal(uint8_t *p, size_t len);

static inline uint16_t sc_get16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t sc_get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t sc_get64(const uint8_t *p) { return sc_get32(p) | (uint64_t)sc_get32(p + 4) << 32; }
static inline void sc_put16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void sc_put32(uint8_t *p, uint32_t v) {
    sc_put16(p, (uint16_t)v);
    sc_put16(p + 2, (uint16_t)(v >> 16));
}
static inline void sc_put64(uint8_t *p, uint64_t v) {
    sc_put32(p, (uint32_t)v);
    sc_put32(p + 4, (uint32_t)(v >> 32));
}

/* Where the offsets of a data packet begin. */
static inline size_t sc_wire_offsets(uint32_t data_len) {
    return (SC_DATA_HEADER + (size_t)data_len + 3u) & ~(size_t)3u;
}

#endif
