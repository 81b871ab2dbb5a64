#pragma once

#include "engine/engine.h"

/* Datagrams of the next view that come before its VIEW. */

#define SC_EARLY_MAX 1024

typedef struct {
    sc_slab *slab;
    uint8_t *p;
    uint32_t len;
    int lane;
    sc_address from;
} sc_early;

typedef struct {
    sc_early kept[SC_EARLY_MAX];
    uint32_t n;
    sc_sharing sharing; /* of copies of small datagrams */
} sc_early_queue;

/* Keeps a datagram that may be of the next view; 0: it is dropped. */
int sc_early_keep(sc_engine *e, const struct sc_peer *peer, uint8_t *p, size_t len, sc_slab *slab,
                  const sc_address *from, int lane);
void sc_early_forget(sc_engine *e);
