/* The engine's struct. Each part belongs to the file named beside it, its only writer (a test checks this); all files
 * may read. For .c files only: a header includes only headers of lower layers, and this one is the top layer. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/out.h"
#include "delivery/assembly.h"
#include "delivery/batch.h"
#include "delivery/borrow.h"
#include "delivery/queue.h"
#include "delivery/taken.h"
#include "detect/detect.h"
#include "detect/rtt.h"
#include "engine/engine.h"
#include "engine/posts.h"
#include "engine/receive.h"
#include "engine/send.h"
#include "order/order.h"
#include "streams/acks.h"
#include "streams/congestion.h"
#include "streams/credit.h"
#include "streams/retransmit.h"
#include "streams/gaps.h"
#include "streams/gossip.h"
#include "streams/holdup.h"
#include "streams/slow.h"
#include "streams/outflow.h"
#include "streams/own.h"
#include "streams/pieces.h"
#include "streams/reliability.h"
#include "streams/rx.h"
#include "streams/sizes.h"
#include "streams/state.h"
#include "streams/transmit.h"
#include "streams/tx.h"
#include "view/cut.h"
#include "view/install.h"
#include "view/resend.h"

/* A member of the view. */
typedef struct sc_peer {
    uint64_t id;
    uint64_t pair; /* tag of the view in which both came together: their unicast streams began with it */
    sc_address address;
    uint32_t rank;
    sc_rx_stream group, unicast, forward, state;
    sc_tx_stream *unicast_tx, *state_tx; /* NULL until something is sent */
    sc_peer_credit credit; /* streams/credit.c */
    uint32_t awaits; /* streams/holdup.c: as its last heartbeat says */
    int64_t waited; /* streams/holdup.c: ns for which our senders have waited */
    sc_peer_slow slow; /* streams/slow.c */
    sc_peer_skip skip; /* delivery/queue.c */
    sc_peer_congestion congestion; /* streams/congestion.c */
    sc_peer_again again; /* streams/retransmit.c */
    sc_peer_size size; /* streams/sizes.c */
    sc_peer_pieces pieces; /* streams/pieces.c */
    sc_peer_state reading; /* streams/state.c */
    sc_peer_taken taken; /* delivery/taken.c */
    sc_peer_cut cut; /* view/cut.c */
    sc_peer_detection detect; /* detect/detect.c */
    sc_peer_rtt rtt; /* detect/rtt.c */
    sc_budget budget; /* engine/receive.c: for its control frames */
    uint64_t standing; /* engine/receive.c: its last control frame, if that is a standing one of this view */
    sc_numbers numbers[SC_NUMBERS]; /* seal/seal.c: with a key, of its datagrams beside packets */
    sc_ahead ahead; /* seal/seal.c: of these, from a view that was not known here */
    sc_mark digest[SC_MEMBERS_MAX]; /* detect/detect.c: its last heartbeat, by rank */
} sc_peer;

struct sc_engine {
    sc_config config;
    sc_slab_pool *pool;
    sc_counters *counters; /* on the board, or `uncovered` */
    sc_counters uncovered;
    sc_posts posts; /* engine/posts.c */
    uint64_t random;
    int64_t now; /* of the last receive or tick */
    int64_t wall; /* of the last send */
    uint64_t sendable; /* grows when a waiting sender may make progress */

    sc_seal *seal; /* engine/engine.c: NULL: no key */
    uint32_t seal_room; /* engine/engine.c: bytes that sealing adds to each datagram */
    uint8_t *sealed; /* engine/engine.c: room for SC_SEALED_BYTES, for streams/transmit.c */

    int in_view; /* view/install.c */
    uint64_t epoch; /* view/install.c: grows with each install and close */
    sc_view view; /* view/install.c */
    sc_peer *peers[SC_MEMBERS_MAX]; /* view/install.c: by rank, own rank too */
    int64_t installed; /* view/install.c */
    uint64_t view_before; /* view/install.c: tag of the closed view, or 0 */
    uint32_t spoke; /* rank of the member whose message came last; the own one: nobody's has, in this view */
    sc_order order; /* order/ */

    sc_tx_stream group, forward;
    sc_packing packing; /* streams/tx.c */
    sc_lent lent; /* streams/transmit.c */
    sc_own_numbers own; /* streams/own.c */
    sc_credit credit; /* streams/credit.c */
    sc_holdup holdup; /* streams/holdup.c */
    sc_slow slow; /* streams/slow.c */
    sc_again_queue again; /* streams/retransmit.c */
    sc_congestion congestion; /* streams/congestion.c */
    sc_outflow outflow; /* streams/outflow.c */
    sc_sizes sizes; /* streams/sizes.c */
    sc_pieces pieces; /* streams/pieces.c */
    int state_void; /* streams/state.c: state is wanted from no member */
    int loads; /* streams/state.c: the application has not taken over the state yet, and so takes no messages */
    sc_delivery_queue queue; /* delivery/queue.c */
    sc_gate gate; /* delivery/queue.c */
    sc_assemblies assembly; /* delivery/assembly.c */
    uint32_t borrowed; /* delivery/borrow.c: slabs */
    sc_taken taken; /* delivery/taken.c */
    sc_cut cut; /* view/cut.c */
    sc_resend_memory resend; /* view/resend.c */
    sc_detection detect; /* detect/detect.c */
    uint32_t answered; /* detect/rtt.c: rank of the member whose heartbeat was answered last */
    sc_out_queue out; /* base/out.c */
    sc_repeats repeats; /* base/out.c */
    sc_event_queue events; /* base/events.c */
    sc_intake intake; /* engine/receive.c */
    uint64_t self_seqno; /* engine/send.c: of messages sent to itself */
    sc_blocked_queue blocked; /* engine/blocked.c */
    sc_leaving leave; /* engine/leave.c */
};

/* base/base.c */
sc_peer *sc_find_peer(sc_engine *e, uint64_t id);
const sc_peer *sc_peer_at(const sc_engine *e, const sc_address *address); /* NULL: no member of the view is there */
/* Each address has one place among the sources, in which the last source with that place is. */
uint32_t sc_source_at(const sc_address *from);
/* Has a control frame come from this address, outside the view, as far as that is remembered? */
int sc_is_source(const sc_engine *e, const sc_address *from);
uint64_t sc_random(sc_engine *e);

static inline void sc_may_send(sc_engine *e) { e->sendable++; }
static inline int sc_same_address(const sc_address *a, const sc_address *b) {
    return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}
/* Do packets that this member has taken count for credit and stability? */
static inline int sc_counts(const sc_peer *peer) { return !peer->cut.lost && !peer->cut.uncounted; }
/* Is a member that is slow compared with this one? With the sender, and with all others that take messages. */
static inline int sc_compares(const sc_engine *e, uint32_t rank) {
    const sc_peer *peer = e->peers[rank];
    return rank == e->view.rank || (sc_counts(peer) && !peer->slow.only_sends);
}
/* Is a view change, or a pause, the reason why senders wait? */
static inline int sc_is_closing(const sc_engine *e) { return e->cut.gate_closed || e->cut.paused || e->cut.set; }
static inline sc_peer *sc_self(sc_engine *e) { return e->peers[e->view.rank]; }
/* The application's work in ns, ever, with that on the batch that it has. */
static inline uint64_t sc_worked(const sc_engine *e, int64_t now) {
    const sc_delivery_queue *q = &e->queue;
    return q->worked + (q->handed && now > q->handed ? (uint64_t)(now - q->handed) : 0);
}
/* The own number after which the packets of member `rank` continue in this view. */
static inline uint64_t sc_number_base(const sc_engine *e, uint32_t rank) {
    return e->order.ops->forwarding ? e->view.origin_base[rank] : e->view.base[rank];
}
static inline int sc_is_sequencer(const sc_engine *e) { return (uint32_t)e->view.sequencer == e->view.rank; }
static inline sc_rx_packet *sc_rx_at(const sc_engine *e, const sc_rx_stream *rx, uint64_t seqno) {
    return &rx->packets[seqno & (e->config.ring_packets - 1)];
}
/* Credit ends with its view, so an application that takes nothing could accumulate a window of its own packets per
 * view. Such a member may not send while untaken own packets of closed views exceed a ring. */
static inline int sc_own_closed_full(const sc_engine *e) { return e->queue.closed_bytes > e->config.ring_bytes; }
