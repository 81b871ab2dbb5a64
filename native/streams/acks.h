#pragma once

#include "engine/engine.h"
#include "streams/rx.h"
#include "streams/ring.h"

/* Acks and tail probes. Together with credit.h (credit, stability), gaps.h (missing packets, NAKs) and retransmit.h
 * (retransmission) these provide reliability: they make each stream complete at its receivers and tell when a packet is
 * no longer needed. Guarantees:
 *  - this member keeps the packets reported as held in a cut until the view is closed;
 *  - a gap is filled as long as one counted member holds the packet, by the sender or any holder;
 *  - `stable` never exceeds the seqno that every member of the view has delivered;
 *  - NAKs, retransmissions and the requests of one member are bounded in rate;
 *  - nothing is sent when nothing is outstanding.
 * Rings and orders do not know how this is achieved; docs/architecture.md says how another kind would fit. */

void sc_ack_consumed(sc_engine *e, struct sc_peer *peer, int stream, uint64_t bytes, int64_t now);
void sc_ack(sc_engine *e, struct sc_peer *peer, int stream);
void sc_ack_progress(sc_engine *e, struct sc_peer *peer, int stream, int64_t now);
void sc_ack_soon(const sc_engine *e, sc_rx_stream *rx);
void sc_ack_ordered(sc_engine *e, struct sc_peer *peer);
void sc_on_ack(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
void sc_on_probe(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
void sc_probe_entered(sc_engine *e, const struct sc_peer *peer);
/* Does this member owe us an ack? */
int sc_owes_ack(const sc_engine *e, const struct sc_peer *peer);
void sc_probe_now(sc_tx_stream *tx, int64_t now);
void sc_ack_tick(sc_engine *e, int64_t now);
int64_t sc_ack_deadline(const sc_engine *e);
