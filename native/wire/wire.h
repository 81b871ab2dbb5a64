/* The wire: the one place that defines the layout of a datagram, and the one function that checks one.
 *
 * All integers are little-endian. Every datagram starts with the 40-byte common header; data packets (DATA, UNICAST,
 * FORWARD, STATE) carry 40 more bytes of header, then an Arrow binary array: the bytes of the messages, contiguous, and
 * after them, aligned to 4, `pieces + 1` int32 offsets, the first of which is 0 and the last `data_len`. With EVEN, all
 * whole messages are equally long, as in Arrow's array of a fixed size, and two 16-bit integers take the place of the
 * offsets: where the first piece ends, and the length of each whole message (0 if there is none).
 *
 * A message that does not fit is split over consecutive seqnos of its stream: CONT_OUT says that the last piece of a
 * packet continues in the next packet, CONT_IN that the first piece began in the previous one. A message belongs to its
 * last packet. After that a packet may be padded, so that the segments of one UDP_SEGMENT send are of equal size.
 *
 * With key_id = 0 the integrity field is the CRC32C of the whole datagram, the field itself taken as zero. With another
 * one the datagram is sealed: seal/seal.h says how. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SC_WIRE_MAGIC 0xC5
#define SC_WIRE_VERSION 2
#define SC_COMMON_HEADER 40
#define SC_DATA_HEADER 80
#define SC_PACKET_MIN 512 /* the smallest size that full packets of a view may have */
#define SC_PACKET_MAX 65000 /* the largest datagram that is ever sent */
#define SC_MEMBERS_MAX 128 /* HEARTBEAT has two bits for each */
#define SC_SEQNO_MAX ((uint64_t)1 << 62) /* no seqno on the wire is higher, so that sums of seqnos do not wrap */

/* Datagram types. */
enum {
    SC_TYPE_DATA = 1, /* packet of the group's stream: by multicast, or a copy to each member that needs one */
    SC_TYPE_UNICAST = 2, /* packet of the stream from one member to one other */
    SC_TYPE_FORWARD = 3, /* packet on its way to the sequencer (SEQ-12) */
    SC_TYPE_ACK = 4, /* cumulative acknowledgement and credit */
    SC_TYPE_NAK = 5, /* ranges that are missing */
    SC_TYPE_PROBE = 6, /* tail probe: the highest seqno sent */
    SC_TYPE_HEARTBEAT = 7, /* liveness, highest seqno sent, digest */
    SC_TYPE_CONTROL = 8, /* a frame of the control plane, opaque to the engine */
    SC_TYPE_STATE = 9, /* packet of the state stream from one member to a joiner: bytes, split anywhere */
    SC_TYPE_PING = 10, /* are you there? or: ask that member for me */
    SC_TYPE_PONG = 11, /* yes; or: an answer came */
    SC_TYPE_ASK = 12, /* how much of my stream has your application taken? Tell me again at this much */
    SC_TYPE_TAKEN = 13, /* this much */
    SC_TYPE_RECORD = 14, /* packet of a group stream that holds no messages, but statements of the order */
    SC_TYPE_TOTAL = 15, /* a header of the TOTAL protocol (S1) that no other type carries */
    SC_TYPE_SIZE = 16, /* does a datagram of this size arrive? */
    SC_TYPE_SIZED = 17, /* yes */
    SC_TYPE_PIECE = 18, /* part of a packet that is too large for the path to this member */
    SC_TYPE_WANT = 20, /* give me places for my packets (SEQ-01) */
    SC_TYPE_GRANT = 21 /* these are yours */
};

/* Streams that a packet, ACK, NAK or PROBE can refer to. */
enum { SC_STREAM_GROUP = 0, SC_STREAM_UNICAST = 1, SC_STREAM_FORWARD = 2, SC_STREAM_STATE = 3 };

/* SC_FLAG_STARVED is set in heartbeats: the sender drops received packets, for want of slabs, and since its last
 * heartbeat nothing arrived in order or was taken. SC_FLAG_LOADS is set in heartbeats: the sender takes over the state,
 * and its application takes no messages yet. SC_FLAG_ONLY_SENDS is set in heartbeats: nothing is delivered to the
 * sender's application. SC_FLAG_BESIDE is set in DATA and FORWARD: the messages have no place in
 * the total order. SC_FLAG_RECORDED is set in DATA of a sequencer: a record names this packet, too (an order policy
 * decides). SC_FLAG_EVEN is set in data packets: all whole messages are of the same length, and there are no offsets.
 * SC_FLAG_STANDING is set in CONTROL: the frame is repeated for the sake of others than the members of its sender's
 * view, who know the frame. SC_FLAG_GROUP is set in all but data packets, RECORD among them: the datagram is for the
 * whole group. A member that gets such datagrams is reached by the way that messages to the group take; packets have no
 * flag, as a repair has the same bytes. */
enum {
    SC_FLAG_CONT_IN = 1,
    SC_FLAG_CONT_OUT = 2,
    SC_FLAG_STARVED = 4,
    SC_FLAG_BESIDE = 8,
    SC_FLAG_LOADS = 8,
    SC_FLAG_RECORDED = 16,
    SC_FLAG_ONLY_SENDS = 16,
    SC_FLAG_EVEN = 32,
    SC_FLAG_STANDING = 64,
    SC_FLAG_GROUP = 128
};

/* Bytes of an integer, at any place. */
static inline uint8_t sc_get8(const uint8_t *p) { return p[0]; }
static inline uint16_t sc_get16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
static inline uint32_t sc_little32(uint32_t v) { return __builtin_bswap32(v); }
#else
static inline uint32_t sc_little32(uint32_t v) { return v; }
#endif
/* Whole words, so that compilers handle several entries of a table at once. */
static inline uint32_t sc_get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return sc_little32(v);
}
static inline uint64_t sc_get64(const uint8_t *p) { return sc_get32(p) | (uint64_t)sc_get32(p + 4) << 32; }
static inline void sc_put8(uint8_t *p, uint8_t v) { p[0] = v; }
static inline void sc_put16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void sc_put32(uint8_t *p, uint32_t v) {
    v = sc_little32(v);
    memcpy(p, &v, sizeof v);
}
static inline void sc_put64(uint8_t *p, uint64_t v) {
    sc_put32(p, (uint32_t)v);
    sc_put32(p + 4, (uint32_t)(v >> 32));
}

/* Each field is one line: its offset in the datagram, its size, its name. SC_FIELD defines sc_get_NAME(p),
 * sc_put_NAME(p, v) and the constant sc_at_NAME; SC_ENTRIES defines them for a field that is repeated every `stride`
 * bytes, SC_BYTES for one that is not an integer. Nothing else reads or writes a datagram. */
#define SC_FIELD(offset, bits, name)                                                                                   \
    static inline uint##bits##_t sc_get_##name(const uint8_t *p) { return sc_get##bits(p + (offset)); }                \
    static inline void sc_put_##name(uint8_t *p, uint##bits##_t v) { sc_put##bits(p + (offset), v); }                  \
    enum { sc_at_##name = (offset) }
#define SC_ENTRIES(offset, stride, bits, name)                                                                         \
    static inline uint##bits##_t sc_get_##name(const uint8_t *p, size_t i) {                                           \
        return sc_get##bits(p + (offset) + (stride) * i);                                                              \
    }                                                                                                                  \
    static inline void sc_put_##name(uint8_t *p, size_t i, uint##bits##_t v) {                                         \
        sc_put##bits(p + (offset) + (stride) * i, v);                                                                  \
    }                                                                                                                  \
    enum { sc_at_##name = (offset) }
#define SC_BYTES(offset, n, name)                                                                                      \
    static inline const uint8_t *sc_get_##name(const uint8_t *p) { return p + (offset); }                              \
    static inline void sc_put_##name(uint8_t *p, const uint8_t *v) { memcpy(p + (offset), v, n); }                     \
    enum { sc_at_##name = (offset) }

/* Common header; magic, version and group stay where they are in all versions. */
SC_FIELD(0, 8, magic);
SC_FIELD(1, 8, version);
SC_FIELD(2, 8, type); /* SC_TYPE_* */
SC_FIELD(3, 8, flags); /* SC_FLAG_* */
SC_FIELD(4, 32, crc);
SC_FIELD(8, 32, group); /* tag of the cluster's name */
SC_FIELD(12, 16, key_id);
SC_FIELD(14, 16, claim); /* of DATA, RECORD and HEARTBEAT: grows when the sender gives window back; otherwise zero */
SC_FIELD(16, 64, sender); /* incarnation of the sending member */
SC_FIELD(24, 64, view_tag); /* tag of the view; 0 outside any view */
SC_FIELD(32, 64, seqno); /* of a data packet; 0 in other datagrams */

/* Header of data packets: DATA, UNICAST, FORWARD, STATE; and of RECORD. */
SC_FIELD(40, 64, stable); /* highest seqno of this stream that all receivers have delivered */
SC_FIELD(48, 64, sent_ns); /* wall clock of the sender when the packet was opened, ns since 1970 */
SC_FIELD(56, 64, origin_seqno); /* the sender's own seqno if a sequencer multicasts for it; otherwise 0 */
SC_FIELD(64, 64, global_seqno); /* of the first message that ends here; 0: no total order */
SC_FIELD(64, 64, place); /* with the order grant instead: of this packet among all of the view; 0: none */
SC_FIELD(72, 32, data_len); /* bytes of all pieces */
SC_FIELD(76, 16, pieces); /* of messages, at least 1 */
SC_FIELD(78, 16, origin_rank); /* rank of the member whose messages these are */

/* Body of RECORD, after a header of data packets in which `pieces` is the number of entries. With the order records:
 * this many packets of this member are delivered next. With grant there is one entry, of the sender: this many places
 * from `place` on are void. With causal: the next packet waits for this many more packets of these members. */
SC_ENTRIES(80, 4, 16, record_rank); /* of a member */
SC_ENTRIES(82, 4, 16, record_count); /* at least 1 */
#define SC_RECORD_LEN(n) (80 + 4 * (size_t)(n))
#define SC_RECORD_ENTRIES_MAX 64

/* Body of ACK. */
SC_FIELD(40, 64, ack_stream); /* SC_STREAM_* */
SC_FIELD(48, 64, ack_delivered); /* all up to this seqno are in order at the receiver */
SC_FIELD(56, 64, ack_received); /* highest seqno received */
SC_FIELD(64, 64, ack_consumed); /* all up to this seqno were taken from the delivery queue: credit */
SC_FIELD(72, 64, ack_window); /* of a group stream: charged bytes beyond `consumed` that this receiver has room for */
SC_FIELD(80, 64, ack_claim); /* of a group stream: the claim that the window is for */
#define SC_ACK_LEN 88

/* Body of NAK. */
SC_FIELD(40, 64, nak_owner); /* incarnation of the stream's sender */
SC_FIELD(48, 32, nak_stream); /* SC_STREAM_* */
SC_FIELD(52, 32, nak_n); /* ranges that follow */
SC_ENTRIES(56, 16, 64, nak_lo); /* first seqno of range i */
SC_ENTRIES(64, 16, 64, nak_hi); /* last seqno of range i */
#define SC_NAK_LEN(n) (56 + 16 * (size_t)(n))
#define SC_NAK_RANGES_MAX 64

/* Body of PROBE. */
SC_FIELD(40, 64, probe_stream); /* SC_STREAM_* */
SC_FIELD(48, 64, probe_highest); /* highest seqno sent */
SC_FIELD(56, 64, probe_stable); /* highest seqno that all receivers have delivered */
#define SC_PROBE_LEN 64

/* Body of HEARTBEAT. */
SC_FIELD(40, 64, heartbeat_highest); /* highest seqno sent in the group stream */
SC_FIELD(48, 64, heartbeat_stable); /* highest seqno that all receivers have delivered */
SC_FIELD(56, 32, heartbeat_n); /* members of the sender's view */
SC_FIELD(60, 16, heartbeat_awaits); /* 1 + rank of the member that holds the sender's messages up; 0: none does */
SC_FIELD(62, 16, heartbeat_gives_up); /* 1 + rank of the member that the sender calls too slow to stay; 0: none */
SC_BYTES(64, 16, heartbeat_unheard); /* a bit by rank: members not heard for the suspicion time */
SC_BYTES(80, 16, heartbeat_mute); /* a bit by rank: members that are heard, but whose unicasts do not come */
SC_FIELD(96, 64, heartbeat_sent); /* by a clock of the sender's, in ns, which only the sender reads */
SC_FIELD(104, 64, heartbeat_echo); /* `sent` of the last heartbeat of one member, */
SC_FIELD(112, 32, heartbeat_held); /* ns from its arrival to this heartbeat, */
SC_FIELD(116, 16, heartbeat_echoes); /* and 1 + rank of that member; 0: of none */
SC_FIELD(118, 16, heartbeat_path); /* bytes of the largest packet that passes to each member; 0: unknown */
SC_FIELD(120, 64, heartbeat_taken); /* bytes of packets that the sender's application has taken, ever, */
SC_FIELD(128, 64, heartbeat_worked); /* and ns of work on these */
SC_ENTRIES(136, 16, 64, heartbeat_delivered); /* by rank: how far the sender has each member's group stream, in order */
SC_ENTRIES(144, 16, 64, heartbeat_received); /* by rank: the highest seqno received of that stream */
#define SC_HEARTBEAT_LEN(n) (136 + 16 * (size_t)(n))

/* Body of PING and PONG. The target of a PING answers its sender with a PONG; another member, at the request of the
 * origin itself, pings the target on its behalf, and passes the PONG on to the origin. */
SC_FIELD(40, 64, ping_target); /* incarnation of the member in doubt */
SC_FIELD(48, 64, ping_origin); /* incarnation of the member that doubts this one */
#define SC_PING_LEN 56

/* Body of ASK and TAKEN. */
SC_FIELD(40, 64, taken_seqno); /* in the asker's own numbering: origin_seqno, or seqno if no sequencer orders */
#define SC_TAKEN_LEN 48

/* Body of TOTAL. */
SC_FIELD(40, 64, total_id); /* sequence id: a seqno of the sequencer's group stream; 0 in NEW_VIEW_ACK */
SC_FIELD(48, 32, total_header); /* SC_TOTAL_* */
SC_FIELD(52, 32, total_reserved); /* zero */
#define SC_TOTAL_LEN 56
enum {
    SC_TOTAL_NEW_VIEW = 1, /* sequencer to all: the view begins with this id */
    SC_TOTAL_NEW_VIEW_ACK = 2, /* the answer */
    SC_TOTAL_SEQ_ACK = 3 /* to the sequencer: I have this packet, though not all earlier ones */
};

/* Body of WANT and GRANT. */
SC_FIELD(40, 64, grant_number); /* of the request in its view, from 1 on; its answer has the same */
SC_FIELD(48, 64, grant_place); /* of GRANT: the first of the places; of WANT: 0 */
SC_FIELD(56, 32, grant_count); /* of the places that are wanted, or granted; at least 1 */
SC_FIELD(60, 32, grant_reserved); /* zero */
#define SC_GRANT_LEN 64

/* Body of SIZE, after which zeros follow, and of SIZED, which is as long as the shortest SIZE. */
SC_FIELD(40, 64, size_number); /* of the question; its answer has the same */
SC_FIELD(48, 32, size_bytes); /* of the question, before sealing */
SC_FIELD(52, 32, size_reserved); /* zero */
#define SC_SIZE_LEN 56

/* Body of PIECE: bytes of a whole packet, with its headers, in the order of their places. */
SC_FIELD(40, 64, piece_number); /* of this sending of the packet */
SC_FIELD(48, 32, piece_total); /* bytes of the packet */
SC_FIELD(52, 16, piece_each); /* bytes of every piece but the last, which may be shorter */
SC_FIELD(54, 16, piece_index); /* of this one, from 0 on */
#define SC_PIECE_HEADER 56
#define SC_PIECES_MAX 256 /* of a packet */

/* The verdicts on a datagram. */
typedef enum {
    SC_WIRE_OK = 0,
    SC_WIRE_SHORT, /* shorter than its headers or lengths require */
    SC_WIRE_MAGIC_BAD, /* not a datagram of ours */
    SC_WIRE_VERSION_BAD,
    SC_WIRE_GROUP_BAD, /* of another group on the same address and port */
    SC_WIRE_KEY_BAD, /* sealed, and this member has no key; or the reverse */
    SC_WIRE_SEAL_BAD, /* sealed with another key, or altered */
    SC_WIRE_VIEW_UNKNOWN, /* sealed in a view whose secret this member does not have */
    SC_WIRE_CRC_BAD,
    SC_WIRE_FIELD_BAD, /* an unknown type, or an impossible length, count or offset */
} sc_wire_result;

/* Does `p[0..len)` begin like a datagram of group `group`? Reads nothing but the common header. */
sc_wire_result sc_wire_begins(const uint8_t *p, size_t len, uint32_t group);
/* Is `p[0..len)`, which begins like one and is unharmed (seal/seal.h), whole and valid? After SC_WIRE_OK every length,
 * count and offset inside may be used as an index. Reads nothing outside `p[0..len)`. */
sc_wire_result sc_wire_check(const uint8_t *p, size_t len);

/* Is this a packet of a stream? */
static inline int sc_has_seqno(const uint8_t *p) {
    switch (sc_get_type(p)) {
    case SC_TYPE_DATA:
    case SC_TYPE_UNICAST:
    case SC_TYPE_FORWARD:
    case SC_TYPE_STATE:
    case SC_TYPE_RECORD: return 1;
    default: return 0;
    }
}

/* Streams between two members live as long as both are members, across views; all others belong to one view. */
static inline int sc_of_pair(uint64_t stream) { return stream == SC_STREAM_UNICAST || stream == SC_STREAM_STATE; }

/* Packets of the streams of a pair, and acks, NAKs and probes for them, carry the tag of the view in which the pair
 * came together. Everything else belongs to the named view. */
static inline int sc_is_of_pair(const uint8_t *p) {
    switch (sc_get_type(p)) {
    case SC_TYPE_UNICAST:
    case SC_TYPE_STATE: return 1;
    case SC_TYPE_ACK: return sc_of_pair(sc_get_ack_stream(p));
    case SC_TYPE_PROBE: return sc_of_pair(sc_get_probe_stream(p));
    case SC_TYPE_NAK: return sc_of_pair(sc_get_nak_stream(p));
    default: return 0;
    }
}

/* Fills the common header of a new datagram, whose bytes are all zero. */
static inline void sc_wire_head(uint8_t *p, uint8_t type, uint32_t group, uint64_t sender, uint64_t view_tag) {
    sc_put_magic(p, SC_WIRE_MAGIC);
    sc_put_version(p, SC_WIRE_VERSION);
    sc_put_type(p, type);
    sc_put_group(p, group);
    sc_put_sender(p, sender);
    sc_put_view_tag(p, view_tag);
}

/* The place of a data packet's offsets, or of their short form. */
static inline size_t sc_wire_offsets(uint32_t data_len) {
    return (SC_DATA_HEADER + (size_t)data_len + 3u) & ~(size_t)3u;
}
#define SC_EVEN_BYTES 4
static inline void sc_put_even(uint8_t *offsets, uint32_t first, uint32_t each) {
    sc_put16(offsets, (uint16_t)first);
    sc_put16(offsets + 2, (uint16_t)each);
}
static inline uint32_t sc_get_even_first(const uint8_t *offsets) { return sc_get16(offsets); }
static inline uint32_t sc_get_even_each(const uint8_t *offsets) { return sc_get16(offsets + 2); }
static inline int sc_is_beside(const uint8_t *p) { return (sc_get_flags(p) & SC_FLAG_BESIDE) != 0; }
/* How many messages end in a data packet. */
static inline uint32_t sc_messages_ending(const uint8_t *p) {
    return (uint32_t)sc_get_pieces(p) - ((sc_get_flags(p) & SC_FLAG_CONT_OUT) ? 1u : 0u);
}
static inline uint32_t sc_get_offset(const uint8_t *offsets, size_t i) { return sc_get32(offsets + 4 * i); }
static inline void sc_put_offset(uint8_t *offsets, size_t i, uint32_t v) { sc_put32(offsets + 4 * i, v); }
/* Where piece i of a valid data packet begins in its data; piece `pieces` would begin at the end. */
static inline uint32_t sc_piece_at(const uint8_t *p, uint32_t i) {
    const uint8_t *offsets = p + sc_wire_offsets(sc_get_data_len(p));
    if (!(sc_get_flags(p) & SC_FLAG_EVEN)) return sc_get_offset(offsets, i);
    if (i == 0 || i == sc_get_pieces(p)) return i ? sc_get_data_len(p) : 0;
    return sc_get_even_first(offsets) + (i - 1) * sc_get_even_each(offsets);
}

/* Whole messages that lie one after the other in a data packet: message i is data[sc_whole_at(i) ..
 * sc_whole_at(i + 1)). */
typedef struct {
    const uint8_t *offsets; /* the packet's, from the first message on; NULL: even */
    uint32_t first, each; /* where the first message begins, and the length of each */
} sc_wholes;

static inline sc_wholes sc_wholes_from(const uint8_t *p, uint32_t piece) {
    const uint8_t *offsets = p + sc_wire_offsets(sc_get_data_len(p));
    if (!(sc_get_flags(p) & SC_FLAG_EVEN)) return (sc_wholes){.offsets = offsets + 4 * (size_t)piece};
    return (sc_wholes){.first = sc_piece_at(p, piece), .each = sc_get_even_each(offsets)};
}
static inline uint32_t sc_whole_at(const sc_wholes *wholes, size_t i) {
    return wholes->offsets ? sc_get_offset(wholes->offsets, i) : wholes->first + (uint32_t)i * wholes->each;
}
