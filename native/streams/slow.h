#pragma once

#include "engine/engine.h"

/* Which receivers are too slow to stay in the group: the findings of a sender, and the reports of the members. */

/* Bytes that an application took, and how long the work on these was. */
typedef struct {
    uint64_t bytes, ns;
} sc_work;

/* The bytes that an application had taken at a time of those that count. */
typedef struct {
    int64_t time;
    uint64_t bytes;
} sc_slow_mark;

/* The evidence about each member, at its sender. */
typedef struct {
    int64_t evidence; /* ns for which this one has held our senders at their limit */
    sc_slow_mark marks[2]; /* of the last two times slow_ns of that, and not from before it */
    int64_t busy; /* above 0: some of our packets were left to take at too many of the looks */
    sc_work ever; /* by its last heartbeat */
    sc_work lately[2]; /* since `since`, and before that */
    int64_t since;
    uint32_t gives_up; /* 1 + rank of the member that this one's heartbeats call too slow; 0: none */
    int loads; /* its heartbeats report a transfer of state, */
    int only_sends; /* and that its application is delivered nothing */
} sc_peer_slow;

typedef struct {
    int64_t counted; /* ns that count, ever: one that could take nothing is not slow for that */
    int64_t looked; /* time of the last look, */
    uint64_t taken; /* the bytes that the own application had taken then, */
    uint64_t left; /* and those that it has now, if it takes too long for them */
    uint32_t gives_up; /* as of a peer: as in our heartbeats */
} sc_slow;

struct sc_peer;

void sc_slow_begin(sc_engine *e, int lost_one, int64_t now);
void sc_slow_look(sc_engine *e, int64_t now);
void sc_slow_heard(sc_engine *e, struct sc_peer *peer, uint32_t gives_up, uint8_t flags);
/* The bytes that its application has taken, and its work, ever. */
void sc_slow_took(const sc_engine *e, struct sc_peer *peer, sc_work ever, int64_t now);
