#pragma once

#include "engine/engine.h"

/* The stream of application state. */

struct sc_peer;

typedef struct {
    int is_void; /* state from there is dropped */
    uint32_t at; /* bytes read of the stream's first waiting packet */
} sc_peer_state;

void sc_state_advance(sc_engine *e, struct sc_peer *peer);
void sc_state_entered(sc_engine *e);
