#pragma once

#include "engine/engine.h"

/* Outgoing datagrams without messages. */

typedef struct sc_out {
    struct sc_out *next;
    sc_address to; /* len 0: the group */
    uint32_t len;
    uint8_t p[];
} sc_out;

typedef struct {
    sc_out *first, **last;
    uint64_t bytes;
} sc_out_queue;

/* The frame that is multicast again while this member is in the view. */
typedef struct {
    uint8_t *frame;
    size_t len;
    int64_t every, due; /* ns */
    uint32_t left; /* sends left; 0: there is none */
} sc_repeats;

void sc_out_init(sc_engine *e);
void sc_out_free(sc_engine *e);
/* A new datagram in the queue, for one member, or with NULL for the group; its common header filled, the caller fills
 * the body. NULL when the bound is hit. */
uint8_t *sc_out_new(sc_engine *e, const sc_address *to, uint8_t type, size_t len);
/* This datagram is for those outside the view, too. */
void sc_out_outside(const sc_engine *e, uint8_t *p);
sc_out *sc_out_pop(sc_engine *e);
/* Queues a copy of a datagram that is for the group for one member alone. */
void sc_out_copy(sc_engine *e, const sc_out *o, const sc_address *to);

int64_t sc_stand_deadline(const sc_engine *e);
void sc_stand_tick(sc_engine *e, int64_t now);
void sc_stand_end(sc_engine *e);
