#pragma once

#include "engine/engine.h"
#include "streams/ring.h"

#define SC_ACK_SOON 4 /* part of the delay of an ack for which a safe view, or a congestion window, waits */

/* Congestion: how much may be on the way to each member over a path that others share. */

enum { SC_CONGESTION_OFF, SC_CONGESTION_AUTO, SC_CONGESTION_ON }; /* sc_config.congestion */

/* The path to a member. Bytes are charges (sc_charge), so small packets count for more than their length. */
typedef struct {
    uint64_t window; /* may be on the way */
    uint64_t threshold; /* below it the window doubles with each round trip */
    uint64_t most; /* the window that was too large last */
    int64_t since; /* when that was; 0: never */
    int64_t smooth, least; /* round trips of packets; 0: none is known */
    uint64_t arrived; /* of the group stream: nothing up to here is on the way any more */
    uint64_t passed; /* the charges up to there */
    uint64_t asked; /* of the group stream: the highest seqno that was requested */
    uint64_t again; /* charges of repeats that are on the way, as far as is known */
    int64_t again_at;
    int64_t looked; /* when packets arrived last */
    int64_t round; /* when the count of these packets began: */
    uint32_t came, lost;
} sc_peer_congestion;

typedef struct {
    int blocked; /* packets wait for a window */
    int ready; /* and one has become wider */
    int64_t due; /* when repeats are taken for arrived */
} sc_congestion;

struct sc_peer;

void sc_congestion_peer_begin(const sc_engine *e, struct sc_peer *peer, uint64_t base);
/* Do windows bound the packets of this member? */
int sc_congestion_on(const sc_engine *e);
/* Windows bound packets from now on, or no longer do. */
void sc_congestion_turned(sc_engine *e);
/* There may be more room than when a packet waited, as after an ack, or when other members count. */
void sc_congestion_wider(sc_engine *e);
/* Does a sender need to know at once which of its packets have come, even after a gap? */
int sc_congestion_tells(const sc_engine *e, const struct sc_peer *peer);
/* The member has received a stream up to `received`. */
void sc_congestion_acked(sc_engine *e, struct sc_peer *peer, sc_tx_stream *tx, uint64_t received, int64_t now);
/* The member asks for packet `seqno` of a stream, for the first time or not. */
void sc_congestion_asked(sc_engine *e, struct sc_peer *peer, const sc_tx_stream *tx, uint64_t seqno, int64_t now);
/* A packet was sent to the member again. */
void sc_congestion_again(sc_engine *e, struct sc_peer *peer, uint32_t len, int64_t now);
/* How long another one waits, in ns: 0 if a window of them is not on the way. */
int64_t sc_congestion_pause(const sc_engine *e, const struct sc_peer *peer, int64_t now);
/* Charges that may leave now to `peer`, or to the group if NULL; 0: none may. */
uint64_t sc_congestion_room(sc_engine *e, const struct sc_peer *peer, int64_t now);
/* Packets wait for that. */
void sc_congestion_wait(sc_engine *e, int64_t now);
void sc_congestion_tick(sc_engine *e, int64_t now);
int64_t sc_congestion_deadline(const sc_engine *e);
void sc_congestion_begin(sc_engine *e);
/* The smallest window; UINT64_MAX: none bounds the group stream. */
uint64_t sc_congestion_window(const sc_engine *e);
/* At how many charges per second packets leave; 0: at once. */
int64_t sc_congestion_rate(const sc_engine *e);
int sc_congestion_ready(const sc_engine *e);
