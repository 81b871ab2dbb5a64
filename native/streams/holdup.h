#pragma once

#include "engine/engine.h"

/* Which receiver holds our senders up: judged by the engine at each heartbeat. */

typedef struct {
    uint64_t named; /* reported as the one that holds our senders up; 0: none was */
    uint64_t slowest; /* else the one that may be: always behind so far */
    int64_t evidence; /* ns against it: grows while this one holds us up, and falls otherwise */
    int64_t began; /* of the evidence */
    uint64_t charged; /* of our stream, taken by all then */
    uint64_t mark; /* up to here all had taken our stream at the last look */
    int64_t since; /* they have taken nothing more */
    int64_t stuck; /* duration of that as last reported */
    int64_t looked; /* time of the last look */
    int64_t awaited; /* when another member last said that its senders wait for us; 0: they do not */
    int64_t awaited_since; /* since its first report */
    int64_t stalled
        [SC_MEMBERS_MAX]; /* by rank: since when, at each look, our senders had to wait for it; 0: they had not */
    uint64_t delivered; /* messages to our application when its rate was last computed */
    int64_t rated; /* and when that was */
    uint64_t rate; /* messages per second */
} sc_holdup;

struct sc_peer;

void sc_holdup_begin(sc_engine *e, int64_t now);
/* How far this member has taken our group stream. */
uint64_t sc_taken_by(const sc_engine *e, uint32_t rank);
/* By rank: does a sender here wait for this member? Returns whether there is such a member. */
int sc_waited_for(const sc_engine *e, uint8_t *out);
void sc_holdup_look(sc_engine *e, int64_t now);
uint32_t sc_holdup_says(const sc_engine *e);
void sc_holdup_heard(sc_engine *e, struct sc_peer *peer, uint32_t says, int64_t now);
