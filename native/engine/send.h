#pragma once

#include "engine/engine.h"

/* The application's messages on their way into packets. */

typedef struct sc_blocked {
    struct sc_blocked *next;
    int64_t wall; /* time of sending */
    uint64_t len;
    int beside;
    int packed; /* as sc_send_state.packed */
    uint8_t p[];
} sc_blocked;

/* Messages sent while the gate was closed. */
typedef struct {
    sc_blocked *first, **last;
    uint64_t bytes, messages;
    uint64_t bytes_max; /* 0: nothing is taken */
    sc_send_state state; /* of the first */
    int full; /* the bound was hit since the gate closed */
} sc_blocked_queue;

typedef struct {
    int ended; /* the application sends nothing more */
    int told; /* SC_EVENT_DRAINED was raised */
} sc_leaving;

void sc_blocked_init(sc_engine *e);

int sc_send_group(sc_engine *e, int beside, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall);
int sc_send_await_large(sc_engine *e);
int sc_blocked_take(sc_engine *e, int beside, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall);
void sc_blocked_drain(sc_engine *e);
void sc_leave_end_sends(sc_engine *e);
void sc_drained_check(sc_engine *e);
void sc_settle(sc_engine *e, int64_t now);
