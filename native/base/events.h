#pragma once

#include "engine/engine.h"

/* The engine's reports to the control plane. */

typedef struct sc_event_node {
    struct sc_event_node *next;
    int strange; /* a frame from outside the view */
    sc_event event;
} sc_event_node;

typedef struct {
    sc_event_node *first, **last;
    uint64_t bytes;
    uint64_t stranger_bytes; /* of them: frames from outside the view */
} sc_event_queue;

void sc_events_init(sc_engine *e);
void sc_events_free(sc_engine *e);
/* Returns the queued event; NULL: there is no room. */
sc_event *sc_push_event(sc_engine *e, int kind, uint64_t sender, uint64_t view_tag, const sc_address *from,
                        const uint8_t *p, size_t len);
/* The frame in the control datagram `p`, for Python. `strange`: its sender does not show that it is in our view. */
sc_event *sc_push_frame(sc_engine *e, int strange, const uint8_t *p, size_t len, const sc_address *from);
