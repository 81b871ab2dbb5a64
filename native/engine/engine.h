/* The engine: the data plane of one member, without I/O, clock, threads or randomness of its own.
 *
 * Its input is datagrams and the time, its output datagrams, deliveries, control frames and the next deadline. The
 * socket driver (driver.pyx over native/io) and the simulator run the same code. The engine is not thread-safe: the
 * driver holds one mutex around every call. `now` is the monotonic clock, `wall` the wall clock, both in int64
 * nanoseconds.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/counters.h"
#include "memory/slab.h"
#include "order/orders.h"
#include "seal/seal.h"
#include "wire/wire.h"

#define SC_NEVER INT64_MAX
#define SC_ADDRESS_MAX 28

/* Destination or source of a datagram: opaque to the engine, which only compares and stores addresses. len 0: none. */
typedef struct {
    uint8_t len;
    uint8_t bytes[SC_ADDRESS_MAX];
} sc_address;

typedef struct {
    uint64_t member; /* own incarnation, not 0 */
    uint32_t group; /* tag of the cluster's name */
    uint32_t deliver_own; /* 1: own multicasts are delivered here too (DIG-08) */
    uint32_t receive; /* 0: messages are consumed and dropped instead of delivered (a member that only sends) */
    uint32_t observer; /* 1: sends nothing to the group */
    uint32_t unicast; /* 1: group traffic goes to each member by unicast */
    uint32_t mixed; /* 1: by multicast, and by unicast to each member that reports hearing no multicast of ours */
    uint32_t pulled; /* 1: the core requests missing packets of group streams, and reports the packets of others */
    uint32_t piece_bytes; /* larger datagrams without messages leave in pieces of this size; 0: leave as they are */
    uint32_t slabs_max;
    uint64_t ring_bytes; /* send ring of the group stream; bounds the window */
    uint64_t unicast_bytes; /* send ring of each unicast stream */
    uint32_t ring_packets; /* descriptors in a send or receive ring; a power of two */
    uint64_t message_bytes_max;
    uint64_t control_bytes_max; /* bound of the queue of control frames, each way */
    uint64_t blocked_bytes_max; /* bound of the queue of messages sent while the gate is closed; 0: senders wait */
    int64_t nak_delay_ns; /* a gap younger than this may be reordering */
    int64_t nak_backoff_ns_min, nak_backoff_ns_max; /* between two NAKs for one range, doubling, with jitter */
    int64_t retransmit_hold_ns; /* minimum time between two retransmissions of one slot */
    uint64_t retransmit_bytes_per_s;
    uint32_t congestion; /* SC_CONGESTION_* */
    uint64_t send_bytes_per_s; /* of packets, all copies and repeats; 0: no bound */
    int64_t ack_delay_ns; /* an ack is sent this long after something was consumed (longer if many receive), */
    uint64_t ack_bytes; /* or at once after this much (charged bytes), at most half a window; 0: see streams/acks.c */
    uint32_t ack_packets; /* or after this many packets; 0: an eighth of a ring, at most half */
    int64_t probe_ns_min, probe_ns_max; /* tail probe without progress, doubling */
    int64_t heartbeat_ns;
    int64_t suspect_ns; /* silence after which SC_EVENT_SUSPECT is raised ... */
    int64_t suspect_ns_max; /* ... by a member that has reason to trust its own judgement less */
    int64_t install_ns; /* this long after a view, a member still in the previous one, or in none, counts as alive */
    int64_t slow_ns; /* a receiver that holds senders up for this long is reported as too slow; 0: none is */
    uint32_t skips; /* 1: such a receiver stays in the group, and skips messages instead */
    int64_t policy_ns; /* how long a batch may wait for the application's order policy; 0: there is none */
    uint64_t sealings_max; /* with a key: after this many in one view, SC_EVENT_WORN asks for another one */
    uint64_t seed; /* of the jitter */
} sc_config;

typedef struct sc_engine sc_engine;

sc_engine *sc_engine_new(const sc_config *config); /* NULL without memory */
void sc_engine_free(sc_engine *e);
sc_slab_pool *sc_engine_pool(sc_engine *e);
/* Called before the first datagram: this member seals its datagrams with the first of these secrets, and receives only
 * datagrams that are sealed with one of them. 0, or -1 without memory. */
int sc_engine_seal(sc_engine *e, const sc_cipher_library *library, const sc_seal_secret *from, size_t n);
/* Other secrets take the place of those: the key file has changed. */
void sc_engine_refile(sc_engine *e, const sc_seal_secret *from, size_t n);
/* The secret of the view with this tag, SC_SEAL_SECRET bytes, and its cipher: known before the view is installed. 0, or
 * -1: there is no such cipher. */
int sc_engine_know(sc_engine *e, uint64_t tag, unsigned cipher, const uint8_t *secret);

/* ---- the world: datagrams in -------------------------------------------------------------------------------- */

/* One received buffer. `segment` is the size that UDP_GRO reported (the buffer is then a run of datagrams of that size,
 * the last one may be shorter), or 0 for a single datagram. `slab` is the slab that holds `p`; the caller keeps its
 * reference. With slab == NULL, or while many slabs are in use, the bytes are copied. The socket of a datagram does not
 * matter: SC_FLAG_GROUP marks those for the group. Our own multicasts, looped back, are ignored. Returns how many
 * datagrams were accepted. */
int sc_engine_receive(sc_engine *e, sc_slab *slab, uint8_t *p, size_t len, size_t segment, const sc_address *from,
                      int64_t now);

/* Why a member is suspected. */
enum {
    SC_EVIDENCE_SILENCE, /* no answer to pings, and nobody vouches */
    SC_EVIDENCE_PORT, /* its port is closed: ECONNREFUSED for a unicast */
    SC_EVIDENCE_GUARD /* its guard connection was closed, and the next one refused */
};
/* Evidence, SC_EVIDENCE_PORT or _GUARD, that the process of the member at `to` has ended. */
void sc_engine_refused(sc_engine *e, const sc_address *to, int evidence, int64_t now);

/* Runs due timers: NAKs, acks, probes, heartbeats, verification. */
void sc_engine_tick(sc_engine *e, int64_t now);
/* The time by which sc_engine_tick must run; SC_NEVER: no need. */
int64_t sc_engine_deadline(const sc_engine *e);

/* ---- the world: datagrams out ------------------------------------------------------------------------------- */

/* Where a transmission goes. How the transport reaches the group is its own matter (native/io/transport.h). */
enum {
    SC_LANE_DATA = 0, /* to the group: packets */
    SC_LANE_CONTROL = 1, /* to the group: all else, which packets must not hold up */
    SC_LANE_UNICAST = 2 /* to `to` */
};

/* One run of datagrams for one destination: `n` datagrams, all `segment` bytes long except the last, which may be
 * shorter. The pointers stay valid, and the bytes unchanged, until the next sc_engine_transmit. */
#define SC_TX_SEGMENTS 44
typedef struct {
    int lane;
    int whole; /* 1: no fragments */
    int unheard; /* 1: no control frame came from `to`: perhaps nobody has that address */
    sc_address to;
    uint32_t n;
    uint32_t segment;
    uint64_t bytes;
    const uint8_t *p[SC_TX_SEGMENTS];
    uint32_t len[SC_TX_SEGMENTS];
} sc_tx;

/* Fills `out` with at most `max` runs, control first; each run holds at most SC_TX_SEGMENTS datagrams and SC_PACKET_MAX
 * bytes. With `all`, open packets are closed and sent too; otherwise they stay open to be filled by later messages.
 * Returned datagrams count as sent. 0: nothing (more) to send. */
int sc_engine_transmit(sc_engine *e, sc_tx *out, int max, int64_t now, int all);
/* Bytes that are packed but not yet transmitted, by which a caller decides whether to transmit now. */
uint64_t sc_engine_unsent(const sc_engine *e);
/* Packets that this member has ordered, as the sequencer. */
uint64_t sc_engine_stamped(const sc_engine *e);
/* The smaller of the windows of group and forward streams: letting this much accumulate stalls their senders. 0 at a
 * member that multicasts the others' forwards: until then they have no new credit, and nothing may accumulate. */
uint64_t sc_engine_window(const sc_engine *e);
/* Bytes of a full packet of this view on the wire; 0: there is no view yet. */
uint32_t sc_engine_packet_bytes(const sc_engine *e);
/* Bytes of the largest packet that reaches every member from every other one, as far as is known; 0: unknown. */
uint32_t sc_engine_path_bytes(const sc_engine *e);
/* Paths may carry less than before: measures them at once. */
void sc_engine_measure(sc_engine *e, int64_t now);
/* 1 if control datagrams (acks, NAKs, control frames ...) or retransmissions are waiting to be sent. */
int sc_engine_urgent(const sc_engine *e);

/* ---- the application: sending ------------------------------------------------------------------------------- */

enum {
    SC_SENT = 0, /* the whole message is packed */
    SC_AGAIN = 1, /* no credit or the gate is closed: call again with the same state when sc_engine_sendable changes */
    SC_NO_VIEW = 2, /* not in a view (not yet, or no longer) */
    SC_NO_MEMBER = 3, /* the destination is not in the view */
    SC_TOO_LARGE = 4,
    SC_ENDED = 5, /* sc_engine_end_sends was called first; no part of it is delivered, unless it was `packed` */
    SC_OBSERVER = 6 /* an observer sends to single members only */
};

/* Progress of one message that may need several calls. Zeroed before the first. A view change midway restarts the
 * message, so `p[0..len)` must not change until SC_SENT. */
typedef struct {
    uint64_t done;
    uint64_t epoch;
    uint64_t wait_seqno;
    int packed; /* as a whole, perhaps in a closed view: lost members may deliver this even if the send fails */
    int at_once; /* the caller waits for nothing: a message whose send would wait for its order is not begun */
    int of_callback; /* of a block callback: may use room that others leave free while members are uncounted */
} sc_send_state;

/* Packs one message for the group (`to` == 0) or for one member (its incarnation). `beside`: a message to the group has
 * no place in the total order, if the order allows that. Messages of several threads must not be interleaved: the
 * caller holds one lock from the first call to SC_SENT. */
int sc_engine_send(sc_engine *e, uint64_t to, int beside, const uint8_t *p, uint64_t len, sc_send_state *state,
                   int64_t wall);
/* Abandons a message that sc_engine_send has partly packed (a timeout): receivers drop that part. */
void sc_engine_send_abort(sc_engine *e, uint64_t to, sc_send_state *state);
/* Packs messages [first, n) of `data` until credit ends: message i is data[offsets[i]..offsets[i + 1]). The n + 1
 * offsets must not decrease, and must not change until all is sent. Returns the number of the next message to send;
 * `state` belongs to that one, `*result` has the reason for the stop. */
uint64_t sc_engine_send_batch(sc_engine *e, int beside, const uint8_t *data, const uint64_t *offsets, uint64_t first,
                              uint64_t n, sc_send_state *state, int64_t wall, int *result);
/* Did the last send to the group (`to` == 0), or to one member, wait for packets to leave, whose rate send_bytes_per_s
 * or congestion bounds? */
int sc_engine_paced(sc_engine *e, uint64_t to);
/* Number of messages sent while the gate was closed, or during a pause, that wait to be packed: in order when the gate
 * opens, before anything newer, which gets SC_AGAIN until then. */
uint64_t sc_engine_blocked(const sc_engine *e);
/* How many have ever waited so; less those that still wait, this is how many have left. */
uint64_t sc_engine_queued(const sc_engine *e);
/* The oldest of them, if it is large, may be packed as a whole and wait to be ordered: in this view, or in an earlier
 * one, whose other members may have delivered that message. */
typedef enum { SC_OLDEST_NOT_PACKED, SC_OLDEST_PACKED, SC_OLDEST_PACKED_BEFORE } sc_blocked_oldest;
sc_blocked_oldest sc_engine_blocked_oldest(const sc_engine *e);
/* Drops these messages, accepts no more, and returns how many were never packed as a whole. */
uint64_t sc_engine_blocked_end(sc_engine *e);
/* Packets with own messages that the sequencer has not ordered yet, as far as is known here, and packets of all that
 * wait until delivery is safe; 0 without a sequencer. A pause waits until there are none. */
uint64_t sc_engine_unordered(const sc_engine *e);
/* The application sends nothing more (it leaves): from now on every send gets SC_ENDED, even waiting for credit or for
 * the gate; only a completely packed large forward still waits to be ordered. This is final, and separate from the gate
 * and from pauses. Accepted messages are still sent; SC_EVENT_DRAINED follows as soon as the sequencer has ordered all
 * of them (SEQ-24) and the receivers of unicasts have acknowledged theirs, in this view or a later one. */
void sc_engine_end_sends(sc_engine *e);
int sc_engine_sends_ended(const sc_engine *e);
int sc_engine_drained(const sc_engine *e);
/* Own messages to the group by the packets in which they end, numbered as at their receivers (sc_run.seqno). */
typedef struct {
    uint64_t first; /* the messages of the packets after this one can be counted */
    uint64_t last; /* the last packet of the view, without the open one */
    uint64_t all; /* all members of the view are known to have delivered up to here; */
    uint64_t any; /* at least one other member is */
} sc_own;
void sc_engine_own(const sc_engine *e, sc_own *out);
/* Number of own messages that end in packets up to `seqno`. The count starts anywhere: only differences within a view
 * mean something. Known for the last two rings of packets; an older one gets the count of the oldest. `waiting`: also
 * the large message that is completely packed and waits to be ordered. The result of its send tells its fate, except
 * across a merge, where the send counts as done. */
uint32_t sc_engine_own_messages(const sc_engine *e, uint64_t seqno, int waiting);
/* For each other member of the view, by rank: the number of unacknowledged unicast messages. */
void sc_engine_unacknowledged(const sc_engine *e, uint64_t *out);
/* 1 if a quarter of the window of the own messages, or more, is on the way to members that have yet to take them. */
int sc_engine_ahead(const sc_engine *e);
/* A member for whose application, or machine, senders to the group wait now. */
typedef struct {
    uint64_t member; /* also this one, whose own application has to take its messages */
    int64_t since; /* as of the heartbeats; SC_NEVER: since the last one */
} sc_stall;
/* Returns how many there are, at most SC_MEMBERS_MAX. None while they wait for a view change or a pause. */
size_t sc_engine_stalls(const sc_engine *e, sc_stall *out);
/* Members, also this one, that a sender calls too slow to stay: ids of them, at most SC_MEMBERS_MAX; returns how
 * many. */
size_t sc_engine_too_slow(const sc_engine *e, uint64_t *ids);
/* A counter that changes whenever a sender that got SC_AGAIN may make progress. */
uint64_t sc_engine_sendable(const sc_engine *e);

/* ---- the application: messages that others have taken ------------------------------------------------------------ */

/* A wait until the applications of all other members have taken the messages that this one had sent when it began. The
 * memory is the caller's, and stays linked until sc_taking_end. */
typedef struct sc_taking {
    struct sc_taking *next;
    uint64_t target; /* in the own numbering */
    uint64_t queued; /* messages that waited for the gate then, and are not packed yet */
    int lost; /* part was unordered when subgroups merged, and is not resent */
} sc_taking;
void sc_taking_begin(sc_engine *e, sc_taking *w, int64_t now);
/* SC_SENT: taken, or lost; SC_AGAIN: not yet, sc_engine_sendable changes at that time; SC_NO_VIEW. */
int sc_taking_state(const sc_engine *e, const sc_taking *w);
void sc_taking_end(sc_engine *e, sc_taking *w);
/* Own seqno up to which all others are known to have taken everything. If something is missing they are asked, so a
 * later call may know more. 0 outside a view. */
uint64_t sc_engine_consumed(sc_engine *e, int64_t now);
/* The last own seqno that contains anything. */
uint64_t sc_engine_last_sent(const sc_engine *e);

/* ---- the application: delivery ------------------------------------------------------------------------------ */

/* The messages of one packet inside a batch. */
typedef struct {
    uint64_t sender; /* incarnation */
    uint64_t seqno; /* of the sender's packet in which the messages end */
    uint64_t global_seqno; /* of the first message; 0: no place in a total order */
    int64_t sent_ns; /* wall clock of the sender */
    uint32_t first; /* index of the first message in the batch */
    uint32_t n;
    uint32_t index; /* of the first message in its packet */
    uint16_t unicast; /* 1: was sent to this member only */
    uint16_t transitional; /* 1: members that fell may have delivered something else in this place */
} sc_run;

/* A part of a message, in a packet. */
typedef struct {
    const uint8_t *data;
    sc_slab *slab; /* the containing one */
    uint32_t len;
} sc_piece;

/* Where the messages of a run lie: the first one in pieces, if there are any; the next ones in the batch's own memory,
 * the others in their packet. */
typedef struct {
    uint32_t piece, pieces; /* [piece, piece + pieces) of the batch */
    uint32_t at, copied; /* messages [at, at + copied) of the own memory */
    const uint8_t *data; /* of the packet */
    sc_wholes wholes; /* the others, there */
} sc_place;

/* Messages of one sender that this member skips: all that end in its packets `first` to `last`. */
typedef struct {
    uint64_t sender, first, last, messages;
} sc_skipped;

#define SC_BORROWED_MAX 64 /* slabs, by all batches and open messages together */

/* Large packets are not copied: a batch borrows their memory, until passed to the next sc_engine_deliver or
 * sc_engine_give_back. After sc_batch_flatten, and if nothing is borrowed, `data` and `offsets` are an Arrow array of
 * all its messages. */
typedef struct {
    uint8_t *data; /* data_len bytes, and room for data_cap */
    uint64_t data_len, data_cap;
    int32_t *offsets; /* n_copied + 1 */
    uint32_t n, n_copied, offsets_cap; /* messages, and those in `data` */
    sc_run *runs;
    sc_place *places; /* one for each run */
    sc_piece *pieces;
    uint32_t n_runs, n_pieces, n_slabs, runs_cap, pieces_cap;
    sc_slab *slabs[SC_BORROWED_MAX]; /* borrowed */
    uint64_t borrowed_bytes; /* of messages that lie in packets */
    uint64_t view_tag;
    uint64_t packet_bytes; /* of the packets of a kept batch, for sc_engine_takes */
    sc_skipped skipped;
} sc_batch;

enum { SC_DELIVER_NONE = 0, SC_DELIVER_BATCH = 1, SC_DELIVER_MARKER = 2, SC_DELIVER_SKIPPED = 3 };

/* The next item for the application: a batch of at most about `bytes_max` bytes (one message may be larger), all of one
 * view, the marker that a view call put between two messages, or, in `skipped`, the messages missed in this place. The
 * batch's buffers grow as needed and belong to the caller, which frees them with sc_batch_clear after
 * sc_engine_give_back. */
int sc_engine_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now);
/* The same for an application that cannot take the item yet: the item is kept for it. Credit counts it as taken, and
 * the rule for slow receivers does not, until sc_engine_takes. */
int sc_engine_keep(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now);
/* The application takes a kept item: a batch, or an item of another kind (NULL). A batch that is given back and taken
 * again counts once, but the work on that batch counts each time. */
void sc_engine_takes(sc_engine *e, sc_batch *batch, int64_t now);
/* The application looks for something to take: its work on the last batch is over. */
void sc_engine_looks(sc_engine *e, int64_t now);
/* The thread that works on the last batch waits in a send, and the wait does not count as work: returns its beginning;
 * 0: the thread has no batch. Afterwards the thread works on, unless another one has looked for something to take
 * meanwhile. */
int64_t sc_engine_rests(sc_engine *e, int64_t now);
void sc_engine_works_on(sc_engine *e, int64_t rest, int64_t now);
int sc_engine_works(const sc_engine *e); /* on the last batch */
/* The application has received everything that sc_engine_deliver returned: members that asked are told. A separate
 * call, because a caller may hand out the messages of a batch one by one. */
void sc_engine_taken(sc_engine *e);
/* Bytes waiting to be delivered, plus 1 if a marker is waiting. */
uint64_t sc_engine_deliverable(const sc_engine *e);
/* The batch is not used any more: its borrowed memory can be received into again. */
void sc_engine_give_back(sc_engine *e, sc_batch *batch);
/* Without the engine, and so without its lock: copies borrowed bytes. The packets are given back with the batch. -1
 * without memory, and the batch is unchanged. */
int sc_batch_flatten(sc_batch *batch);
/* Where message `i`, of run `r`, lies; NULL: in pieces, as no message of a flat batch is. */
const uint8_t *sc_batch_message(const sc_batch *batch, uint32_t r, uint32_t i, size_t *len);
void sc_batch_clear(sc_batch *batch);
/* Copies only the unicasts of a flat batch to an empty `out`; -1 without memory. For a joiner: group messages from
 * before its state are void, but messages to it alone are not. */
int sc_batch_unicasts(const sc_batch *batch, sc_batch *out);

/* ---- the application: state for a joiner --------------------------------------------------------------------- */

/* A reliable stream of bytes from one member to another, separate from their messages, with its own window; the callers
 * define the meaning of the bytes. The stream lives as long as both are members. */

/* Packs p[*done..len) for the member `to` and advances *done: SC_SENT when all is packed, otherwise as sc_engine_send.
 * Only one caller at a time per member. */
int sc_engine_state_send(sc_engine *e, uint64_t to, const uint8_t *p, uint64_t len, uint64_t *done, int64_t wall);
/* Nothing follows for now: the ring's memory is freed when `to` has everything. */
void sc_engine_state_end(sc_engine *e, uint64_t to);
/* Reads up to `len` of the bytes that `sender` has sent; returns how many. Unread bytes wait, within the window. */
size_t sc_engine_state_read(sc_engine *e, uint64_t sender, uint8_t *p, size_t len, int64_t now);
int sc_engine_state_readable(const sc_engine *e, uint64_t sender);
/* From now on state that `sender` sends is kept until read, also if dropped before. */
void sc_engine_state_want(sc_engine *e, uint64_t sender);
/* From now on state that `sender` sends is dropped; 0: from every member. */
void sc_engine_state_void(sc_engine *e, uint64_t sender);

/* ---- the control plane -------------------------------------------------------------------------------------- */

/* Queues a control frame: to the group's control lane, or to one address. `outside`: for those who are in no view, or
 * in another one, too; SC_FOR_ANYBODY: for whoever is at the address, even if a member of our view has that address,
 * too. 0, or -1 when the queue is full. */
#define SC_FOR_ANYBODY 2
int sc_engine_control_send(sc_engine *e, const sc_address *to, const uint8_t *p, size_t len, int outside);
/* A standing frame, which is meant for processes outside our view; the members of our view report only the first of a
 * row. The frame is multicast now, and then every `every` ns, `times` times in all, but no longer than the view, or
 * until the next standing frame. 0 times: only the last one ends. 0, or -1 when the queue is full or without memory. */
int sc_engine_stand(sc_engine *e, const uint8_t *p, size_t len, int64_t every, uint32_t times, int64_t now);

#define SC_FOREIGN_SIGNS 2 /* a joiner decides by as many datagrams of another wire version: lifecycle.py */
enum {
    SC_EVENT_CONTROL = 1, /* a control frame arrived: sender, from, payload; evidence 1: the key file alone sealed it */
    SC_EVENT_SUSPECT = 2, /* `sender` is taken for dead: evidence */
    SC_EVENT_ALIVE = 3, /* a suspected member was heard again, or another member vouches */
    SC_EVENT_CUT_REACHED = 4, /* everything up to the cut is here */
    SC_EVENT_LINKS = 5, /* a result of sc_engine_links has changed; raised once until that call */
    SC_EVENT_DRAINED = 6, /* everything accepted before sc_engine_end_sends is ordered and acknowledged; once */
    SC_EVENT_STARVED = 7, /* received packets are dropped here, as there are no slabs left */
    SC_EVENT_SLOW = 8, /* `sender` holds up everyone: for suspect_ns_max it was starved, or kept places unused */
    SC_EVENT_FOREIGN = 9, /* a datagram of another wire version was dropped: the first SC_FOREIGN_SIGNS times */
    SC_EVENT_OFFERS = 10, /* packets wait for the order policy: sc_engine_offers */
    SC_EVENT_HOLDUP = 11, /* senders wait for `sender`, which may be this member: evidence, rate, took */
    SC_EVENT_KEY =
        12, /* a datagram of `from` is sealed otherwise than ours: evidence, and in `rate` how many in a row */
    SC_EVENT_TOO_SLOW = 13, /* a result of sc_engine_too_slow has changed */
    SC_EVENT_WAY = 14, /* the way to `sender` has changed: evidence */
    SC_EVENT_STRANGER = 15, /* heartbeats of another view have come from `from` for a long time */
    SC_EVENT_LOST = 16, /* no repeat of a packet has reached `sender` for `took` ns; `rate`: bytes of that packet */
    SC_EVENT_SIZE =
        17, /* packets of another size than the view's reach all: `rate`, bytes; no larger ones to or from `sender` */
    SC_EVENT_WORN = 18 /* the secret of the view has sealed sealings_max datagrams; again from time to time */
};
/* Evidence of SC_EVENT_KEY, which comes at the first such datagram, which may be damaged, and at the last of this many
 * in a row. */
#define SC_KEY_SIGNS 3
enum {
    SC_KEY_OTHER = 0, /* another key */
    SC_KEY_LACKS = 1, /* none, and this member has one */
    SC_KEY_HAS = 2 /* a key, and this member has none */
};
/* Evidence of SC_EVENT_HOLDUP. The rate is in bytes of our packets per second; for this member itself in messages that
 * its application takes per second. */
enum {
    SC_HOLDUP_SLOW = 0, /* takes less than others: rate */
    SC_HOLDUP_STUCK = 1, /* takes nothing: for `took` ns; again at each doubling of that */
    SC_HOLDUP_OVER = 2 /* no longer, after `took` ns */
};
typedef struct {
    int kind;
    int evidence; /* SC_EVIDENCE_*, SC_HOLDUP_*, SC_KEY_*, or SC_WAY_* */
    uint64_t rate;
    int64_t took;
    uint64_t sender;
    uint64_t view_tag;
    sc_address from;
    uint8_t *payload; /* to be freed with free() */
    size_t len;
} sc_event;
/* Takes the oldest event; 0 when there is none. */
int sc_engine_event(sc_engine *e, sc_event *out);
int sc_engine_has_event(const sc_engine *e);

/* Members under verification, neither heard nor suspected yet: their ids into `ids` (SC_MEMBERS_MAX). */
size_t sc_engine_doubted(const sc_engine *e, uint64_t *ids);
/* Links that are cut in one direction: pairs (listener, speaker), at most `max`, where the listener has not heard the
 * speaker for its suspicion time and neither is suspected here. With `unicast`: links on which the listener hears the
 * speaker, but gets no unicast of the speaker. For other members, as of their last heartbeats. */
size_t sc_engine_links(sc_engine *e, int unicast, uint64_t *pairs, size_t max);
/* Number of addresses from which heartbeats of another view, with this tag, arrived within the last suspicion time. */
size_t sc_engine_strangers(const sc_engine *e, uint64_t tag);
/* Sends the next heartbeat now: other views learn that this one has members. */
void sc_engine_beat(sc_engine *e, int64_t now);
/* Sends a heartbeat to somebody outside the view. */
void sc_engine_show(sc_engine *e, const sc_address *to);

/* ---- reliability by gossip (called by the core only, if sc_config.pulled is set) --------------------------- */

/* The state of the group stream of `rank`: the oldest seqno kept, and the fields of an ACK. The window is promised with
 * the ack. */
typedef struct {
    uint64_t kept, delivered, received, consumed, window;
    uint16_t claim;
} sc_marks;
int sc_engine_marks(sc_engine *e, uint32_t rank, sc_marks *out);
/* Ranges within [first, last] of the group stream of `rank` that did not arrive: (lo, hi) pairs, at most `max`, of at
 * most `most` packets. Only packets that the receive ring has places for. Returns their number. */
size_t sc_engine_lacks(const sc_engine *e, uint32_t rank, uint64_t first, uint64_t last, uint64_t most,
                       uint64_t *ranges, size_t max);
/* Member `holder` has packets [lo, hi] of the group stream of `rank`: requests the missing ones among them. */
void sc_engine_ask(sc_engine *e, uint32_t rank, uint64_t lo, uint64_t hi, uint32_t holder, int64_t now);
/* Member `rank` has reported this about our group stream, directly or through others. */
void sc_engine_vote(sc_engine *e, uint32_t rank, const sc_marks *marks, int64_t now);
/* All members have delivered the group stream of `rank` up to here. */
void sc_engine_stable(sc_engine *e, uint32_t rank, uint64_t seqno);
/* Another member has heard of member `rank`: a sign of life that counts as a PONG passed on. */
void sc_engine_vouch(sc_engine *e, uint32_t rank, int64_t now);

/* ---- the core: those that may know this machine by another hardware address ----------------------------------- */

/* Pings a member, or a stranger, at once. */
void sc_engine_greet(sc_engine *e, uint64_t id, const sc_address *to);

/* ---- the application: its order policy ----------------------------------------------------------------------- */

/* A packet that waits for its place in the order, at the sequencer. */
#define SC_HEAD_MAX 32
#define SC_OFFERS_MAX 128
typedef struct {
    uint64_t seqno; /* Message.seqno of its messages */
    int64_t sent_ns; /* wall clock of the sender when the packet was opened */
    uint32_t rank; /* of the sender */
    uint32_t messages; /* that end there */
    uint32_t bytes; /* of its messages */
    uint32_t head_len;
    uint8_t head[SC_HEAD_MAX]; /* first bytes of the first message that begins there */
} sc_offer;
/* The next batch of waiting packets, at most SC_OFFERS_MAX, and its number; 0: none waits, or a batch is with the
 * policy already. Members take turns, each with its packets in their sequence. */
size_t sc_engine_offers(sc_engine *e, sc_offer *out, uint64_t *batch);
/* The policy has ordered a batch: packets are delivered in the sequence of `ranks`, each time the next one of that
 * member, so no policy can change the order of one sender's messages. NULL: the policy has failed, and everything that
 * waits is ordered by arrival. 0: too late, the batch was ordered by arrival. */
int sc_engine_decide(sc_engine *e, uint64_t batch, const uint16_t *ranks, size_t n, int64_t now);

/* ---- views (called by the core only) ------------------------------------------------------------------------ */

typedef struct {
    uint64_t tag;
    uint32_t n;
    uint32_t rank; /* own */
    uint32_t mechanism; /* SC_ORDER_*: how messages are ordered */
    int32_t sequencer; /* rank of the member that orders them, if the mechanism has one */
    uint64_t window_bytes; /* limit of one group stream, in charged bytes */
    uint64_t share_bytes; /* the part of window_bytes that each group stream always has; 0: all */
    uint64_t room_bytes; /* of all group streams together, at one receiver; at least the sum of their shares */
    uint64_t forward_window_bytes; /* of each forward stream */
    uint64_t unicast_window_bytes; /* of each unicast stream */
    uint64_t state_window_bytes; /* of each stream of state */
    uint32_t packet_bytes; /* size of a full packet, before sealing */
    uint32_t path_bytes; /* of the largest that this member could send; 0: paths are not measured */
    uint64_t ids[SC_MEMBERS_MAX];
    sc_address addresses[SC_MEMBERS_MAX];
    uint32_t safe; /* 1: messages to the group are delivered when all members have them in order, or the view ends */
    uint32_t merge; /* 1: subgroups merge; own messages that the old sequencer never stamped are not resent */
    uint8_t apart[SC_MEMBERS_MAX]; /* by rank, 1: comes from another subgroup; the streams with it start over */
    uint8_t fell[SC_MEMBERS_MAX]; /* by rank in the view that is closed, 1: fell */
    uint64_t base[SC_MEMBERS_MAX]; /* digest: each group stream continues after this seqno */
    uint64_t origin_base[SC_MEMBERS_MAX]; /* received table: each sender's own numbering continues after this one */
} sc_view;

/* Closes the send gate and returns the last seqno of the own group stream, in one step (E-15). Idempotent. With
 * `unicasts` the cut is reached only once every survivor has the unicasts sent to it until then (E-16). */
uint64_t sc_engine_gate_close(sc_engine *e, int unicasts);
/* A pause: nothing new is sent to the group until sc_engine_resume, or until another view is installed; messages
 * already sent are still ordered and delivered. Independent of the gate, which only a view opens. */
void sc_engine_pause(sc_engine *e);
void sc_engine_resume(sc_engine *e);
/* Puts `marker` into the delivery queue, between two packets. -1 without memory. */
int sc_engine_mark(sc_engine *e, uint64_t marker);
/* Before a view is closed: `lost` members are about to be given up and no longer count for credit, so that block
 * callbacks can send. Packets that they lack are kept: they may be survivors of a later attempt. So the send ring may
 * fill up, and other senders leave a part of it to the callbacks. A later call with another set replaces this one. */
void sc_engine_uncount(sc_engine *e, const uint64_t *lost, size_t n);
/* From now on nothing of this view is accepted from `lost` members (they no longer count for credit either). A later
 * call with another set replaces this one. Packets that the lost members lack are kept: they may be survivors of a
 * later attempt. With `still` nothing more is delivered until a view is installed. */
void sc_engine_freeze(sc_engine *e, const uint64_t *lost, size_t n, int still);
/* Ranges held of the group stream of `rank`: the end of the prefix in *prefix, then up to `max` (lo, hi) pairs. */
size_t sc_engine_held(const sc_engine *e, uint32_t rank, uint64_t *prefix, uint64_t *ranges, size_t max);
typedef struct {
    uint64_t lo, hi;
    uint32_t rank; /* of the stream */
    uint32_t holder; /* rank of the holder */
} sc_fetch;
/* Fixes the cut (by rank): fetches missing packets, accepts no other packet, and delivers nothing more until install.
 * SC_EVENT_CUT_REACHED follows when everything is here. A later call (a new attempt) replaces the cut. */
void sc_engine_cut(sc_engine *e, const uint64_t *cut, const sc_fetch *fetch, size_t n_fetch);
int sc_engine_cut_reached(const sc_engine *e);
/* The received table at the cut: by rank, the highest seqno of that member's own numbering. Only after the cut was
 * reached. */
void sc_engine_received_table(const sc_engine *e, uint64_t *out);
/* Delivers up to the cut, then `marker`, then opens the gate in the new view. `cut` is NULL for the first view. Own
 * messages that the old sequencer never stamped are resent, before anything newer, except when subgroups merge: a
 * sequencer on the other side may have delivered them (the cut, step 11). */
int sc_engine_install(sc_engine *e, const sc_view *view, const uint64_t *cut, uint64_t marker, int64_t now);
/* Tag of the view to which messages sent now belong; 0 outside a view. */
uint64_t sc_engine_view(const sc_engine *e);
/* The way of the group's traffic to a member. */
enum {
    SC_WAY_MULTICAST,
    SC_WAY_BOTH, /* multicasts are heard again: for a moment a copy goes by unicast too */
    SC_WAY_UNICAST
};
/* Whom transmissions to the group are for: the other members of the view. */
typedef struct {
    uint64_t view; /* its tag, or 0 */
    uint64_t ways; /* changes with the ways to them */
    uint32_t n;
    uint32_t alone; /* the first ones, which get packets by unicast; */
    uint32_t together; /* the last ones, which get them by multicast */
    uint32_t first; /* in `to`: whose message came last, and who may wait for the answer; `n`: nobody */
    uint32_t place[SC_MEMBERS_MAX]; /* by rank: in `to` */
    sc_address to[SC_MEMBERS_MAX];
} sc_targets;
/* If they are others than in `out`: puts them there, and returns 1. `first` is put there in any case. */
int sc_engine_targets(const sc_engine *e, sc_targets *out);
/* Leaves the view: delivers up to the cut (NULL: nothing more), then `marker`; from then on only control frames are
 * sent or accepted. `fell`, by rank: see sc_view; NULL: none. */
void sc_engine_close(sc_engine *e, const uint64_t *cut, const uint8_t *fell, uint64_t marker);

/* ---- counters ----------------------------------------------------------------------------------------------- */

/* Names and values, at most `n`; returns how many there are. */
size_t sc_engine_counter_values(const sc_engine *e, const char **names, uint64_t *values, size_t n);

/* The memory of a board (native/board/board.h): the counters are there from now on, and at each heartbeat gauges and a
 * row for each member are written. The policy must outlive the engine. -1 without room. */
struct sc_board;
int sc_engine_board(sc_engine *e, struct sc_board *board);
/* An event for the board's flight recorder; `member`: id of the member concerned, or 0. */
void sc_engine_note(sc_engine *e, uint64_t member, const char *text, size_t len, int64_t now);

/* State of one member's stream at this member, for status and tests: highest delivered, highest received, stable. Of
 * that member: the number of our packets not in order there yet, and the time of a round trip, 0 if none is known. */
typedef struct {
    uint64_t delivered, received, stable, lacks;
    int64_t rtt;
} sc_stream_state;
int sc_engine_stream(const sc_engine *e, uint32_t rank, sc_stream_state *out);
