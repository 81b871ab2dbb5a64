#pragma once

#include "engine/engine.h"
#include "streams/rx.h"

/* Delivery queue. */

typedef struct {
    uint8_t *p; /* NULL: a marker, or a gap */
    sc_slab *slab;
    uint64_t sender;
    uint64_t seqno; /* of the carrying stream, for credit; of a gap the first */
    uint64_t number; /* of the packet in the numbering of `sender`; of a gap the last; or a marker's value */
    uint64_t global; /* global seqno of the first message that ends there; 0: no total order */
    uint64_t pair; /* of a unicast: sc_peer.pair on arrival */
    uint64_t ends; /* of a gap: messages that end in its packets */
    uint64_t view_tag;
    uint64_t epoch;
    uint32_t len;
    uint16_t carrier; /* rank of the stream's sender */
    uint16_t rank; /* of `sender`, whose messages these are */
    uint8_t stream; /* SC_STREAM_* */
    uint8_t inside; /* the marker is inside a view: open messages continue afterwards */
    uint8_t own; /* a copy of an own packet, which the pool does not bound */
    uint8_t gap; /* packets of `sender` that this member skips: one for each sender and view */
    uint8_t continues; /* the first packet of the gap continues a message, */
    uint8_t open; /* a message continues after its last one */
    uint8_t transitional; /* members that fell may have delivered something else in its place, or (safe) nothing */
} sc_delivery;

typedef struct {
    sc_delivery *entries;
    uint64_t head, tail, cap; /* they begin at 0 again when empty; cap a power of two */
    uint64_t bytes;
    uint64_t own_bytes, closed_bytes; /* of `bytes`, copies of own packets; of these, of closed views */
    uint64_t taken; /* bytes, by the application, ever */
    uint64_t kept; /* bytes kept for the application, of packets that end no message: the next kept batch has them */
    int64_t handed; /* time of the batch on which the application works; 0: none */
    uint64_t worked; /* ns from each batch to the next look for more, ever; sc_worked */
    int64_t rests; /* since when the work waits for a send; 0: the work does not wait */
    uint64_t carried; /* packets of the own group stream in this view: own ones, and forwards of others */
    uint64_t passed; /* the last packet of that stream that the application does without */
    uint64_t self_bytes; /* of messages to itself, which have the window of a unicast stream */
    uint64_t markers;
    int transitional; /* additions are transitional, until the view is over */
} sc_delivery_queue;

/* In a safe view, ordered packets of the group wait here until all members have them in order. */
typedef struct {
    sc_delivery *entries;
    uint64_t head, tail, cap; /* monotonic; cap a power of two */
} sc_gate;

/* Skipping, if an application is too slow. */

/* The state of each member, as a sender. */
typedef struct {
    int64_t skips; /* messages of its stream are skipped, at least until then; 0: none are */
    uint64_t mark; /* and until the application has taken this packet */
    int64_t patient; /* until then nothing is skipped: the application keeps up */
    int emptied; /* the packets that waited last were skipped, not taken */
} sc_peer_skip;

struct sc_peer;

int sc_queue_packet(sc_engine *e, const sc_delivery *packet);
/* Safe delivery. Release: passes on packets that all members have. Flush: passes on the rest, when the view is over;
 * `undecided`: lost members may lack its order. Drop: drops the rest, if this member does not learn how its view
 * ends. */
void sc_gate_release(sc_engine *e);
void sc_gate_flush(sc_engine *e, int undecided);
void sc_gate_drop(sc_engine *e);
int sc_queue_marker(sc_engine *e, uint64_t marker, int inside);
void sc_queue_own(sc_engine *e, const uint8_t *p, uint32_t len, uint64_t seqno, uint64_t number, uint64_t global);
void sc_queue_unicasts(sc_engine *e, struct sc_peer *peer);
void sc_queue_pop(sc_engine *e, int64_t now);
void sc_queue_handed(sc_engine *e, int64_t now); /* the application has a batch */
/* Packets with so many bytes are kept for the application; `whole`: in a batch. Returns the bytes that this has. */
uint64_t sc_queue_keep(sc_engine *e, uint64_t bytes, int whole);
void sc_queue_unkeep(sc_engine *e); /* a message of which a part was kept is taken at once */
void sc_skip_begin(struct sc_peer *peer);
/* Its heartbeat came. */
void sc_skip_heard(sc_engine *e, struct sc_peer *peer, int64_t now);
void sc_skip_look(sc_engine *e, int64_t now);
/* The packet that follows a gap, which is the first entry, in its stream; NULL: none has come yet. */
const sc_delivery *sc_queue_behind(const sc_engine *e, const sc_delivery *gap);
void sc_queue_closed(sc_engine *e);
/* Only survivors of this view know the order from here on. */
void sc_queue_transitional(sc_engine *e);
void sc_queue_free(sc_engine *e);
/* An order's verdict on the packet `queued` of a group stream: delivers it, 0 without memory; or refuses the packet, so
 * that another copy is requested. sc_rx_skip skips one. */
int sc_rx_deliver(sc_engine *e, struct sc_peer *peer, uint32_t rank, uint64_t number, uint64_t global);
void sc_rx_refuse(sc_engine *e, sc_rx_stream *rx);
