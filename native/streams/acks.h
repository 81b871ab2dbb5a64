#ifndef SEQCAST_STREAMS_ACKS_H
#define SEQCAST_STREAMS_ACKS_H

#include "engine/engine.h"
#include "streams/ring.h"
#include "streams/tx.h"

/* Acks, credit, stability, tail probes: with gaps.h (what is missing, NAKs) and again.h (retransmission) this is reliability,
 * which makes each stream complete at its receivers and tells when a packet is needed no more. What it owes the rest:
 *  - what this member has reported as held in a cut, it keeps until the view is closed;
 *  - a gap is filled as long as one counted member holds the packet, by the sender or any holder;
 *  - `stable` never exceeds what every counted member has delivered;
 *  - NAKs, retransmissions and what one member may draw are bounded in rate;
 *  - nothing is sent where nothing is outstanding.
 * Rings and orders know nothing of how that comes about; docs/architecture.md says how another kind would fit. */

typedef struct {
    uint64_t delivered, received;
} sc_mark;

typedef struct {
    uint64_t self; /* own group stream, as its own receiver has consumed it */
    uint64_t peers; /* and as all others have */
    int due; /* one of them, or what a receiver said, has changed: to be counted anew */
} sc_credit;

/* Of each member: what it said of our group stream. */
typedef struct {
    sc_mark acked;
    uint64_t consumed;
} sc_peer_credit;

void sc_credit_begin(sc_engine *e, uint64_t base);
void sc_credit_due(sc_engine *e);
void sc_credit_peer_begin(struct sc_peer *peer, uint64_t base);

uint64_t sc_window_of(const sc_engine *e, int stream);
void sc_ack(sc_engine *e, struct sc_peer *peer, int stream);
void sc_flow_consumed(sc_engine *e, struct sc_peer *peer, int stream, uint64_t bytes, int64_t now);
void sc_flow_self(sc_engine *e, uint64_t seqno);
void sc_flow_progress(sc_engine *e, sc_rx_stream *rx, int stream, int64_t now);
void sc_flow_recount(sc_engine *e, int64_t now);
void sc_flow_sent(sc_engine *e, sc_tx_stream *tx, int64_t now);
void sc_on_ack(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
void sc_on_probe(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
void sc_flow_tick(sc_engine *e, int64_t now);
int64_t sc_flow_deadline(const sc_engine *e);

#endif
