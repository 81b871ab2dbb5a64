#pragma once

#include "engine/engine.h"

/* Outgoing datagrams without messages. */

typedef struct sc_out {
    struct sc_out *next;
    int lane;
    sc_address to;
    uint32_t len;
    uint8_t p[];
} sc_out;

typedef struct {
    sc_out *first, **last;
    uint64_t bytes;
} sc_out_queue;

void sc_out_init(sc_engine *e);
void sc_out_free(sc_engine *e);
/* A new datagram in the queue, its common header filled; the caller fills the body. NULL when the bound is hit. */
uint8_t *sc_out_new(sc_engine *e, int lane, const sc_address *to, uint8_t type, size_t len);
sc_out *sc_out_pop(sc_engine *e);
