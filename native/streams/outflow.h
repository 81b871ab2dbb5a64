#pragma once

#include "base/budget.h"
#include "engine/engine.h"
#include "streams/ring.h"

/* The rate at which packets leave: their first transmission and their repeats, each copy, but no other datagram. */

typedef struct {
    sc_budget budget; /* all copies */
    sc_budget path; /* of the group: one of them */
    int64_t per_s; /* of this one; 0: no bound */
    int64_t due; /* packets wait until then; SC_NEVER: none does */
    int full; /* senders wait for packets to leave */
    int ready; /* they have waited until then */
    int closes; /* open packets were to be sent meanwhile */
    uint32_t transmissions; /* while packets to single members waited */
} sc_outflow;

/* Do all packets for the group go to its members one by one? */
int sc_outflow_singly(const sc_engine *e);
void sc_outflow_init(sc_engine *e);
/* Packets that waited may leave now: returns whether a transmission closes open packets. */
int sc_outflow_begin(sc_engine *e, int all);
/* May another packet leave now? If not, sc_outflow_deadline says when. */
int sc_outflow_open(sc_engine *e, int64_t now);
void sc_outflow_spend(sc_engine *e, int lane, uint64_t bytes);
/* Do packets to single members go first, before those to the group? */
int sc_outflow_yields(sc_engine *e);
/* Is there room for another packet of a stream before its unsent ones become too many? */
int sc_outflow_room(sc_engine *e, sc_tx_stream *tx);
void sc_outflow_tick(sc_engine *e, int64_t now);
int64_t sc_outflow_deadline(const sc_engine *e);
/* Do packets wait no longer? */
int sc_outflow_ready(const sc_engine *e);
