#pragma once

#include "engine/engine.h"

/* Round trips, measured by heartbeats: each has its time of sending, by its sender's clock, and returns that of the
 * last heartbeat of one member, with the time until the answer. So no clocks are compared, and no more datagrams
 * are sent. Members are answered in turn. */

typedef struct {
    uint64_t sent; /* from its last heartbeat; 0: there was none */
    int64_t came; /* when that came */
    int64_t smooth, least; /* of its round trips, in ns; 0: none is known */
} sc_peer_rtt;

struct sc_peer;

/* Into our heartbeat. `only`: the one that gets this heartbeat; NULL: all do. */
void sc_rtt_say(sc_engine *e, const struct sc_peer *only, uint8_t *heartbeat);
void sc_rtt_heard(const sc_engine *e, struct sc_peer *peer, const uint8_t *heartbeat, int64_t now);
