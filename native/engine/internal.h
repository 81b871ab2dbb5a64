/* What the engine's parts share. Each struct says who owns it and what its marks mean. */
#ifndef SEQCAST_INTERNAL_H
#define SEQCAST_INTERNAL_H

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "order/order.h"

#define SC_GAPS_MAX 128
#define SC_SPENT_SLABS 1024
#define SC_NOT_LENT UINT64_MAX
#define SC_TX_ALIGN 64u

/* ---- send ring (tx.c) --------------------------------------------------------------------------------------- */

typedef struct sc_tx_packet {
    uint8_t *p; /* the datagram as it goes out; a retransmission sends the same bytes */
    uint32_t len;
    uint32_t charge; /* what it takes of a receiver's socket buffer */
    uint64_t charged; /* sum of `charge` of this stream, this packet included */
    uint64_t again; /* sc_engine.again_gone + place in `again`, + 1, of its last retransmission; 0: none */
    uint64_t ring_end; /* where the byte ring goes on behind it (monotonic) */
    uint64_t
        message_start; /* seqno in which the message that goes on behind this packet began; else its own seqno + 1 */
    uint64_t own; /* of the group stream: the highest number of an own packet up to here (sc_own) */
    sc_slab *slab; /* a restamped forward lies in a slab, own packets (NULL) in the byte ring */
    int64_t retransmitted_at;
    uint32_t retransmitted_to; /* rank + 1 of the last requester, UINT32_MAX: all */
    uint32_t messages; /* that end here */
} sc_tx_packet;

typedef struct sc_tx_stream {
    int stream; /* SC_STREAM_* */
    uint8_t type;
    uint8_t *ring;
    uint64_t ring_bytes, head, tail; /* head, tail: monotonic positions */
    uint64_t lent; /* position of the oldest packet in the ring that the last transmit handed out, or SC_NOT_LENT */
    int lent_stall; /* for want of what is lent a packet could not be opened */
    sc_tx_packet *packets;
    uint32_t mask;
    uint64_t first; /* oldest seqno kept */
    uint64_t next; /* seqno of the open packet, or of the next one */
    uint64_t unsent; /* oldest seqno never transmitted */
    uint64_t stable; /* delivered by all receivers */
    uint64_t consumed; /* consumed by all receivers: gives credit */
    uint64_t charged, charged_consumed;
    uint64_t window;
    uint32_t packet_bytes;
    /* The open packet. */
    uint8_t *open;
    uint32_t open_len, open_pieces, open_messages;
    uint8_t open_flags;
    int64_t open_wall;
    int32_t *open_offsets;
    /* A message of which the beginning is packed and the end is not. */
    int in_message;
    uint64_t message_start; /* 0: too large to be kept for a view change */
    uint64_t big_start; /* where the last message that was too large began */
    uint64_t pair; /* of a unicast stream: sc_peer.pair */
    int ended; /* nothing follows: its memory goes when all is acknowledged */
    /* Tail probe. */
    int64_t probe_due, probe_wait;
} sc_tx_stream;

/* ---- receive ring (rx.c) ------------------------------------------------------------------------------------ */

typedef struct {
    uint8_t *p;
    uint32_t len;
    sc_slab *slab;
} sc_rx_packet;

typedef struct {
    uint64_t lo, hi;
    int64_t due, wait;
    uint32_t tries;
    int32_t holder; /* rank to fetch from, -1: the sender */
    int asked; /* a NAK went out: the answer may come from another member than the sender */
} sc_gap;

typedef struct {
    sc_rx_packet *packets; /* NULL until the first packet */
    uint64_t first; /* oldest seqno kept (all below are stable) */
    uint64_t next; /* end of the contiguous prefix, + 1 */
    uint64_t queued; /* next to go into the delivery queue (== next but after a CUT) */
    uint64_t highest; /* highest seqno received */
    uint64_t known; /* highest seqno known to exist; [next, known] is held or in `gaps` */
    uint64_t consumed; /* taken by the application */
    uint64_t stable;
    uint64_t limit; /* after a CUT: nothing above is accepted; else UINT64_MAX */
    sc_gap gaps[SC_GAPS_MAX];
    uint32_t n_gaps;
    uint64_t unacked_bytes;
    uint64_t acked_consumed;
    int64_t ack_due;
    /* What a sender that keeps to its window can have here is bounded, twice: in the ring, and in the delivery queue. */
    uint64_t ring_bytes, queue_bytes;
    sc_sharing sharing; /* takes copies of its small packets, so that they hold no slab of others */
} sc_rx_stream;

/* ---- members of the view ------------------------------------------------------------------------------------ */

typedef struct {
    uint64_t delivered, received;
} sc_mark;

/* What somebody may still say to the control plane: bytes, with a fixed cost of each frame; refilled with time. */
typedef struct {
    int64_t left, refilled;
} sc_budget;

/* Somebody that is not in the view, by its address. */
typedef struct {
    sc_address address;
    sc_budget budget;
} sc_source;

#define SC_SOURCES 64

/* A member of another view, by its last heartbeat. */
typedef struct {
    sc_address address;
    uint64_t tag;
    int64_t heard;
} sc_beat;

typedef struct sc_peer {
    uint64_t id;
    uint64_t pair; /* tag of the view since which both are together: the unicast streams between them began with it */
    sc_address address;
    uint32_t rank;
    sc_budget control;
    /* Retransmissions to it: what it may ask for grows with what is sent for the first time, and slowly with time. */
    int64_t again_left, again_refilled;
    uint64_t again_sent; /* sc_engine.first_bytes when that was last looked at */
    int64_t naks_left, naks_refilled; /* seqnos that may be looked up for it */
    int lost; /* given up by the running cut: counts for nothing */
    int uncounted; /* is to be given up: the others' credit does not wait for it, but what it lacks is kept */
    /* Failure detection (detect.c). */
    int doubted; /* under verification; set as long as one of the next two is */
    int silent; /* no multicast of it came for the suspicion time; it may answer unicasts, others may vouch for it */
    int suspected; /* told to the policies */
    int64_t starved; /* since when its heartbeats say that it gets nowhere for want of slabs; 0: they do not */
    int slow; /* told to the policies: that lasts */
    uint32_t pings; /* of this verification */
    int64_t heard; /* last sign of life, straight from it */
    int64_t overheard; /* last multicast, straight from it */
    int64_t vouched; /* last time that another member said that it answered */
    int64_t refused; /* its port was first refused, since it was heard; 0: not */
    int64_t ping_due; /* while doubted */
    uint8_t unheard[SC_MEMBERS_MAX / 8]; /* whom it does not hear, by rank, as its last heartbeat says */
    sc_mark acked; /* of my group stream */
    uint64_t consumed; /* of my group stream */
    /* What applications took (taken.c), each in the numbering of whoever sent it. */
    uint64_t handed; /* of its messages: into a batch */
    uint64_t taken; /* of its messages, by our application */
    uint64_t asked; /* it waits to hear that so much of them is taken; 0: it does not */
    uint64_t took; /* of our messages, by its application, as far as we know */
    sc_rx_stream group, unicast, forward, state;
    sc_tx_stream *unicast_tx, *state_tx; /* NULL until something is sent */
    int state_void; /* what it sends of its state is dropped */
    uint32_t state_at; /* bytes read of the first packet of it */
    uint64_t unicast_mark; /* of `unicast_tx`: what it must have before the cut counts as reached */
    sc_mark digest[SC_MEMBERS_MAX]; /* its last heartbeat, by rank */
} sc_peer;

/* ---- delivery queue (deliver.c) ----------------------------------------------------------------------------- */

typedef struct {
    uint8_t *p; /* NULL: a marker */
    sc_slab *slab;
    uint64_t sender;
    uint64_t seqno; /* of the carrying stream, for credit */
    uint64_t marker;
    int inside; /* the marker stands inside a view: open messages go on behind it */
    int own; /* a copy of an own packet, which the pool does not bound */
    uint64_t pair; /* of a unicast: sc_peer.pair when it came */
    uint64_t view_tag;
    uint64_t epoch;
    uint64_t number; /* of the packet in the numbering of `sender` */
    uint64_t global; /* global seqno of the first message that ends in it; 0: no total order */
    uint32_t len;
    uint32_t carrier; /* rank of the stream's sender */
    uint32_t rank; /* of `sender`, whose messages these are */
    int stream;
} sc_delivery;

/* A message of which the end has not been delivered yet. */
typedef struct {
    uint64_t sender; /* 0: free */
    int unicast;
    int active; /* a message is open */
    int skip; /* its pieces are dropped: too large, or no memory */
    uint8_t *p;
    uint64_t len, cap;
} sc_assembly;

#define SC_ASSEMBLIES (2 * SC_MEMBERS_MAX)

/* Behind the end of a ring, so that it can be given up without memory, and without a write to what may be lent. */
typedef struct sc_retired {
    struct sc_retired *next;
    void *memory;
} sc_retired;

/* ---- queues of datagrams and events ------------------------------------------------------------------------- */

typedef struct sc_out {
    struct sc_out *next;
    int lane;
    sc_address to;
    uint32_t len;
    uint8_t p[];
} sc_out;

typedef struct sc_blocked {
    struct sc_blocked *next;
    int64_t wall; /* when it was sent */
    uint64_t len;
    uint8_t p[];
} sc_blocked;

typedef struct {
    uint64_t owner; /* incarnation of the stream's sender */
    uint64_t seqno;
    int stream;
    uint32_t requester; /* rank */
    int multicast;
} sc_again;

#define SC_AGAIN_MAX 1024

typedef struct sc_event_node {
    struct sc_event_node *next;
    int strange; /* a frame of somebody that is not in the view */
    sc_event event;
} sc_event_node;

/* Once a CUT came (or, if so asked, a START) nothing is delivered until a view is installed. A newer START makes the cut
 * stale: what it named is no longer accepted. */
enum { SC_CUT_NONE = 0, SC_CUT_CURRENT = 1, SC_CUT_STALE = 2 };

struct sc_engine {
    sc_config config;
    sc_slab_pool *pool;
    sc_counters counters;
    uint64_t random;

    /* View. */
    int in_view;
    int takes_sends; /* in a view, and the application has not ended its sends: one look for both in each send */
    int sends_ended;
    int drained_told;
    uint64_t epoch; /* grows with each install and close */
    sc_view view;
    sc_peer *peers[SC_MEMBERS_MAX]; /* by rank, own rank too */
    sc_tx_stream group;
    sc_tx_stream forward;
    sc_order order;
    uint64_t own_last; /* number of the newest closed own packet */
    uint64_t own_base; /* the view's first own packet has the next number */
    uint64_t own_first; /* oldest number that `own_ends` has */
    uint32_t *own_ends; /* by number, two rings of packets: messages that have ended up to there */
    uint32_t own_ended; /* up to the newest */
    uint64_t self_consumed; /* own group stream, as its own receiver */
    uint64_t peers_consumed; /* and by all others */
    int recount_due; /* one of them, or what a receiver said, has changed */

    /* Cut. */
    int gate_closed;
    int paused;
    int frozen; /* a START was answered: `lost` holds */
    int still; /* and who is lost may come back in this view: what it lacks is kept */
    int cut_set; /* SC_CUT_* */
    int cut_told;
    uint64_t cut[SC_MEMBERS_MAX];

    /* Delivery. */
    sc_delivery *queue;
    uint64_t queue_head, queue_tail, queue_cap; /* monotonic; cap a power of two */
    uint64_t queue_bytes;
    uint64_t own_bytes, own_closed_bytes; /* of them copies of own packets; of those, of closed views */
    uint64_t markers;
    sc_assembly assemblies[SC_ASSEMBLIES];
    uint32_t assembly_last; /* looked up last */
    uint32_t assemblies_active; /* with an open message */

    /* Out. */
    sc_out *out_first, **out_last;
    sc_out *spent; /* handed out by the last transmit; freed by the next */
    sc_retired *retired; /* rings that were replaced; likewise */
    uint64_t out_bytes;
    sc_again again[SC_AGAIN_MAX];
    uint32_t n_again;
    uint64_t again_gone; /* entries that have left the front of `again` */
    uint64_t first_bytes; /* sent for the first time, of all streams */
    sc_slab *spent_slabs[SC_SPENT_SLABS]; /* of what the last transmit handed out */
    uint32_t n_spent_slabs;
    int64_t again_tokens;
    int64_t again_refilled;

    /* In. */
    sc_event_node *event_first, **event_last;
    uint64_t event_bytes;
    uint64_t stranger_bytes; /* of them: frames of those that are not in the view */
    sc_budget strangers; /* all of them together */
    sc_source sources[SC_SOURCES]; /* the last used first */
    sc_beat beats[SC_MEMBERS_MAX];
    int64_t starved; /* when something was last dropped for want of slabs; 0: never */
    int stuck; /* and nothing was received in order or taken between the last two heartbeats */
    uint64_t progress; /* what progress() said at the last heartbeat */

    /* Time. */
    int64_t now; /* of the last receive or tick */
    int64_t wall; /* of the last send */
    int64_t heartbeat_due;
    int64_t installed; /* the present view */
    uint64_t view_before; /* tag of the view that it closed, or 0 */
    int health; /* 0: well; each step adds suspect_ns to the suspicion time */
    int64_t health_due; /* when it gets better by one */
    int links_told;
    uint64_t sendable;
    uint64_t unsent; /* bytes packed and not transmitted */

    /* The message under way that is too large to be kept for a view change: it starts in packet `big_first` of the
     * forward stream and ends in `big_last`; its sender waits until `big_returned`. */
    uint64_t big_first, big_last;
    int big_returned;
    uint64_t self_seqno; /* of messages sent to itself, */
    uint64_t self_bytes; /* which lie in the delivery queue: their window is that of a unicast stream */

    /* Sent while the gate was closed. */
    sc_blocked *blocked_first, **blocked_last;
    uint64_t blocked_bytes, blocked_messages;
    sc_send_state blocked_state; /* of the first */
    int blocked_full; /* the bound was hit since the gate closed */

    /* Who waits until what was sent is taken (taken.c). */
    sc_taking *takings;
    uint64_t curious; /* or asked how far it is; 0: nobody did */
    int64_t ask_due, ask_wait;
    int handed; /* something that is not taken yet */

    int state_void; /* nobody's state is wanted */
};

static inline int sc_same_address(const sc_address *a, const sc_address *b) {
    return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}
/* Streams between two members live as long as both are, across views; all others belong to one view. */
static inline int sc_of_pair(uint64_t stream) { return stream == SC_STREAM_UNICAST || stream == SC_STREAM_STATE; }
static inline sc_peer *sc_self(sc_engine *e) { return e->peers[e->view.rank]; }
/* After which own number the messages of the member `rank` go on in this view. */
static inline uint64_t sc_number_base(const sc_engine *e, uint32_t rank) {
    return e->order.ops->renumbers ? e->view.origin_base[rank] : e->view.base[rank];
}

/* base/base.c, out.c, events.c */
sc_peer *sc_find_peer(sc_engine *e, uint64_t id);
uint64_t sc_random(sc_engine *e);
uint8_t *sc_out_new(sc_engine *e, int lane, const sc_address *to, uint8_t type, size_t len);
void sc_push_event(sc_engine *e, int kind, uint64_t sender, uint64_t view_tag, const sc_address *from, const uint8_t *p,
                   size_t len);

/* streams/tx.c */
int sc_tx_init(sc_tx_stream *tx, int stream, uint32_t ring_packets);
void sc_tx_free(sc_engine *e, sc_tx_stream *tx);
int sc_tx_reset(sc_engine *e, sc_tx_stream *tx, uint64_t base, uint64_t window, uint32_t packet_bytes,
                uint64_t ring_bytes);
int sc_tx_pack(sc_engine *e, sc_tx_stream *tx, const uint8_t *p, uint64_t len, uint64_t *done, int64_t wall, int force);
uint64_t sc_tx_pack_whole(sc_engine *e, sc_tx_stream *tx, const uint8_t *data, const uint64_t *offsets, uint64_t first,
                          uint64_t n);
void sc_tx_close(sc_engine *e, sc_tx_stream *tx);
/* Our own stream of a kind, as `peer` receives it; NULL where there is none yet. sc_tx_to makes it, or is NULL without
 * memory. */
sc_tx_stream *sc_tx_of(sc_engine *e, const sc_peer *peer, int stream);
sc_tx_stream *sc_tx_to(sc_engine *e, sc_peer *peer, int stream);
void sc_tx_rewindow(sc_engine *e, sc_peer *peer);
void sc_tx_restamp(sc_engine *e, sc_tx_stream *tx, const sc_rx_packet *forward, uint32_t messages, uint64_t own);
int sc_tx_may_restamp(const sc_tx_stream *tx, uint32_t len);
void sc_tx_purge(sc_tx_stream *tx, uint64_t upto);
void sc_tx_credit(sc_tx_stream *tx, uint64_t consumed);
void sc_tx_release(sc_engine *e, sc_tx_stream *tx);
void sc_tx_probe_restart(sc_engine *e, sc_tx_stream *tx, int outstanding, int64_t now);
static inline int sc_tx_has(const sc_tx_stream *tx, uint64_t seqno) { return seqno >= tx->first && seqno < tx->next; }
static inline sc_tx_packet *sc_tx_at(const sc_tx_stream *tx, uint64_t seqno) { return &tx->packets[seqno & tx->mask]; }
static inline int sc_tx_outstanding(const sc_tx_stream *tx, uint64_t acked) { return acked + 1 < tx->unsent; }
uint32_t sc_charge(uint32_t len, int full);
/* Is a message of `len` bytes kept whole in the ring until it is ordered? One that could fill the ring, its bytes or its
 * descriptors, is not. */
static inline int sc_tx_keeps(const sc_tx_stream *tx, uint64_t len) {
    return len <= tx->window / 2 && len / (tx->packet_bytes - SC_DATA_HEADER - 64) + 2 <= tx->mask / 2;
}

/* streams/own.c */
void sc_own_reset(sc_engine *e, uint64_t base);
void sc_own_packet(sc_engine *e, uint64_t number, uint32_t messages);
void sc_large_none(sc_engine *e);
void sc_large_begins(sc_engine *e, uint64_t first);
void sc_large_packed(sc_engine *e, uint64_t first, uint64_t last);
int sc_large_returned(const sc_engine *e);
void sc_large_done(sc_engine *e);
void sc_large_view_ends(sc_engine *e, int merge);

/* streams/ring.c */
sc_rx_stream *sc_rx_of(sc_peer *peer, int stream);
void sc_rx_reset(sc_engine *e, sc_rx_stream *rx, uint64_t base);
void sc_rx_free(sc_engine *e, sc_rx_stream *rx);
int sc_rx_put(sc_engine *e, sc_rx_stream *rx, uint64_t seqno, uint8_t *p, size_t len, sc_slab *slab);
void sc_rx_extend(const sc_engine *e, sc_rx_stream *rx);
void sc_rx_stable(sc_engine *e, sc_rx_stream *rx, uint64_t stable);
/* The packet `queued`: it is passed over; or dropped, so that its place is empty again. */
void sc_rx_skip(sc_rx_stream *rx);
void sc_rx_drop(const sc_engine *e, sc_rx_stream *rx);
void sc_rx_release(const sc_engine *e, sc_rx_stream *rx);
void sc_rx_moved(sc_rx_stream *rx, sc_rx_packet *slot); /* its reference to the slab went elsewhere */
static inline sc_rx_packet *sc_rx_at(const sc_engine *e, const sc_rx_stream *rx, uint64_t seqno) {
    return &rx->packets[seqno & (e->config.ring_packets - 1)];
}

/* streams/gaps.c */
void sc_rx_gap_add(sc_engine *e, sc_rx_stream *rx, uint64_t lo, uint64_t hi, int64_t due, int32_t holder);
void sc_rx_known(sc_engine *e, sc_rx_stream *rx, uint64_t highest, int64_t due);
void sc_gaps_came(sc_engine *e, sc_rx_stream *rx, uint64_t seqno, int64_t now);
int sc_gaps_asked(const sc_rx_stream *rx, uint64_t seqno);
void sc_gaps_prune(sc_rx_stream *rx);
void sc_gaps_cut(sc_rx_stream *rx, uint64_t limit);
void sc_gaps_fetch(sc_engine *e, sc_rx_stream *rx, uint64_t lo, uint64_t hi, uint32_t holder);
void sc_rx_naks(sc_engine *e, int64_t now);
int64_t sc_rx_deadline(const sc_engine *e);

/* streams/acks.c, probes.c */
uint64_t sc_window_of(const sc_engine *e, int stream);
void sc_ack(sc_engine *e, sc_peer *peer, int stream);
void sc_flow_consumed(sc_engine *e, sc_peer *peer, int stream, uint64_t bytes, int64_t now);
void sc_flow_self(sc_engine *e, uint64_t seqno);
void sc_flow_progress(sc_engine *e, sc_rx_stream *rx, int stream, int64_t now);
void sc_flow_recount(sc_engine *e, int64_t now);
void sc_flow_sent(sc_engine *e, sc_tx_stream *tx, int64_t now);
void sc_on_ack(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now);
void sc_on_probe(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now);
void sc_flow_tick(sc_engine *e, int64_t now);
int64_t sc_flow_deadline(const sc_engine *e);

/* streams/again.c, transmit.c, state.c */
void sc_on_nak(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now);
void sc_again_forget(sc_engine *e);
int sc_transmit_return(sc_engine *e);
int sc_transmit(sc_engine *e, sc_tx *out, int max, int64_t now, int all);
void sc_tx_spent_free(sc_engine *e);
void sc_state_advance(sc_engine *e, sc_peer *peer);

/* delivery/queue.c */
/* Credit ends with its view: an application that takes nothing would be left with a window of its own packets for each
 * view. It may not send while those of closed views that it has not taken are more than a ring. */
static inline int sc_own_closed_full(const sc_engine *e) { return e->own_closed_bytes > e->config.ring_bytes; }
int sc_queue_packet(sc_engine *e, const sc_delivery *packet);
int sc_queue_marker(sc_engine *e, uint64_t marker, int inside);
void sc_queue_own(sc_engine *e, const uint8_t *p, uint32_t len, uint64_t seqno, uint64_t number, uint64_t global);
void sc_queue_unicasts(sc_engine *e, sc_peer *peer);
sc_delivery *sc_queue_first(const sc_engine *e);
void sc_queue_pop(sc_engine *e, int64_t now);
void sc_queue_closed(sc_engine *e);
void sc_queue_free(sc_engine *e);
/* What an order does with the packet `queued` of a group stream: delivers it, 0 without memory; or refuses it, so that it is
 * asked for again. sc_rx_skip passes it over. */
int sc_rx_deliver(sc_engine *e, sc_peer *peer, uint32_t rank, uint64_t number, uint64_t global);
void sc_rx_refuse(sc_engine *e, sc_rx_stream *rx);

/* delivery/assembly.c, batch.c */
sc_assembly *sc_assembly_of(sc_engine *e, uint64_t sender, int unicast);
void sc_assembly_open(sc_engine *e, sc_assembly *a);
void sc_assembly_append(sc_engine *e, sc_assembly *a, const uint8_t *p, uint64_t len);
void sc_assembly_close(sc_engine *e, sc_assembly *a);
void sc_assembly_drop(sc_engine *e, sc_assembly *a);
void sc_assembly_release(sc_assembly *a);
void sc_assembly_view_ends(sc_engine *e);
void sc_assembly_free(sc_engine *e);
int sc_deliver(sc_engine *e, sc_batch *batch, uint64_t bytes_max, uint64_t *marker, int64_t now);

/* delivery/taken.c */
void sc_taken_hand(sc_engine *e, const sc_delivery *d, int now);
void sc_on_ask(sc_engine *e, sc_peer *peer, const uint8_t *p);
void sc_on_taken(sc_engine *e, sc_peer *peer, const uint8_t *p);
void sc_taking_packed(sc_engine *e);
void sc_taking_installed(sc_engine *e, int64_t now);
void sc_taken_tick(sc_engine *e, int64_t now);

/* detect/detect.c */
void sc_detect_undoubt(sc_engine *e, sc_peer *peer);
void sc_detect_overheard(sc_engine *e, sc_peer *peer, int64_t now);
static inline int sc_hears_not(const sc_peer *peer, uint32_t rank) { return peer->unheard[rank / 8] >> rank % 8 & 1; }
/* Neither its multicasts nor its answers come. */
static inline int sc_is_mute(const sc_peer *peer) { return peer->silent && peer->doubted; }
void sc_on_ping(sc_engine *e, const sc_peer *sender, const uint8_t *p, const sc_address *from);
void sc_on_pong(sc_engine *e, const sc_peer *sender, const uint8_t *p, int64_t now);
void sc_detect_stranger(sc_engine *e, uint64_t tag, const sc_address *from, int64_t now);
void sc_detect_starved(sc_engine *e, int64_t now);
void sc_on_heartbeat(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now);
void sc_detect_tick(sc_engine *e, int64_t now);
int64_t sc_detect_deadline(const sc_engine *e);

/* view/cut.c, resend.c, install.c */
void sc_view_resume(sc_engine *e);
void sc_view_uncount(sc_engine *e, const uint64_t *lost, size_t n);
void sc_view_freeze(sc_engine *e, const uint64_t *lost, size_t n, int still);
void sc_view_cut(sc_engine *e, const uint64_t *cut, const sc_fetch *fetch, size_t n_fetch);
void sc_view_cut_check(sc_engine *e);
int sc_view_install(sc_engine *e, const sc_view *view, const uint64_t *cut, uint64_t marker, int64_t now);
void sc_view_leave(sc_engine *e);
typedef struct {
    uint8_t *data; /* the messages, one behind another */
    uint64_t *ends;
    uint64_t n;
    uint64_t len; /* of the data while it is collected; */
    int open; /* and whether a message is */
} sc_resend;
int sc_resend_collect(const sc_engine *e, sc_resend *r);
uint64_t sc_resend_ring(const sc_resend *r, uint32_t packet_bytes);
int sc_resend_pack(sc_engine *e, const sc_resend *r, int64_t wall);
void sc_resend_free(sc_resend *r);

/* engine/group.c, blocked.c, leave.c, settle.c */
int sc_send_group(sc_engine *e, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall);
int sc_send_await_large(sc_engine *e);
int sc_blocked_take(sc_engine *e, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall);
void sc_blocked_drain(sc_engine *e);
void sc_leave_end_sends(sc_engine *e);
void sc_drained_check(sc_engine *e);
void sc_settle(sc_engine *e, int64_t now);

#endif
