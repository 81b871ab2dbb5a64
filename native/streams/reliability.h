/* How the kinds of reliability differ: the questions that the engine asks about one, and nothing else. No other file
 * reads the flag `pulled` (a test checks this).
 *
 * Reliability fills the gaps of each stream and knows the packets that all its receivers have. The guarantees of a
 * kind, and the calls by which the rest of the engine uses it, are in docs/architecture.md, "Reliability". With the
 * default kind receivers request missing packets and acknowledge received ones, by timers of their own. With gossip the
 * core does both for the streams to the group (streams/gossip.c); all other streams are as with the default kind.
 *
 * These functions are called for each packet, so each is one load and one test. */
#pragma once

#include "engine/engine.h"
#include "streams/rx.h"
#include "streams/ring.h"

/* A view begins: settles the kind for the receive ring of a stream to the group. A ring that was only reset has the
 * default kind. */
static inline void sc_reliability_begin(const sc_config *config, sc_rx_stream *rx) { rx->pulled = config->pulled; }

/* Does this receiver acknowledge packets to the sender? If not, the core reports them. */
static inline int sc_rx_acknowledges(const sc_rx_stream *rx) { return !rx->pulled; }

/* Do the receivers of a group stream send acks to its sender? */
static inline int sc_group_acknowledges(const sc_config *config) { return !config->pulled; }

/* Is a gap requested from the stream's sender, by timer, while no other member is known to have the packets? If not,
 * the request follows once the core names a holder. */
static inline int sc_rx_requests_by_timer(const sc_rx_stream *rx) { return !rx->pulled; }

/* Does the sender ask receivers for missing acknowledgements, and so show them the end of the stream? */
static inline int sc_tx_probes(const sc_config *config, const sc_tx_stream *tx) {
    return tx->stream != SC_STREAM_GROUP || !config->pulled;
}
