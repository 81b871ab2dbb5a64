#pragma once

#include "base/budget.h"
#include "engine/engine.h"

/* Retransmission. */

typedef struct {
    uint64_t owner; /* incarnation of the stream's sender */
    uint64_t seqno;
    int stream;
    uint32_t requester; /* rank */
    int multicast;
    uint32_t back; /* distance to the entry before of the same packet; 0: there is none */
} sc_again;

#define SC_AGAIN_MAX 1024

typedef struct {
    sc_again queue[SC_AGAIN_MAX];
    uint32_t n;
    uint64_t gone; /* entries that have left the front */
    uint32_t waits; /* at the front, for room on the paths to their members, */
    int64_t due; /* until then; SC_NEVER: none does */
    sc_budget budget;
} sc_again_queue;

/* Of each member: its allowance of requests grows with each first transmission, and slowly with time. */
typedef struct {
    int64_t left, refilled;
    uint64_t sent; /* sc_lent.first_bytes when its allowance was last updated */
    int64_t naks_left, naks_refilled; /* seqnos that may be looked up for this one */
    uint64_t lacks; /* the first packet that was repeated for this member, and has not arrived */
    uint32_t repeats; /* of that packet; 0: there is none */
    int64_t since; /* the first of them */
    int64_t told; /* how long that had lasted when the control plane was told; 0: never */
} sc_peer_again;

void sc_again_peer_begin(sc_engine *e, struct sc_peer *peer, int64_t now);
/* Entry `i` waits until then, as entry `kept`. */
void sc_again_keep(sc_engine *e, uint32_t i, uint32_t kept, int64_t until);
/* The first `kept` wait; those after them, up to the `n`th, have been transmitted. */
void sc_again_pop(sc_engine *e, uint32_t kept, uint32_t n);
/* Are there repeats that need not wait for the paths to their members? */
int sc_again_ready(const sc_engine *e);
void sc_again_tick(sc_engine *e, int64_t now);
int64_t sc_again_deadline(const sc_engine *e);

struct sc_peer;

void sc_on_nak(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
/* The packet `seqno` of the own group stream is sent to this member again, without its request. 0: a bound was
 * reached. */
int sc_again_unasked(sc_engine *e, struct sc_peer *peer, uint64_t seqno, int64_t now);
void sc_again_forget(sc_engine *e);
