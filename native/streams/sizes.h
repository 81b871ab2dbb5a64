#pragma once

#include "engine/engine.h"

/* How large packets may be on the way to each member. */

struct sc_peer;

/* The knowledge about each member. */
typedef struct {
    uint32_t bytes; /* of the largest packet that arrives whole, as far as is known; 0: never measured */
    uint32_t theirs; /* of the largest that reaches all others, as its last heartbeat says; 0: unknown */
    int entered; /* the member has shown itself in this view */
    int stage; /* of the round of questions that runs: SC_SIZE_... */
    uint32_t tries; /* of this stage */
    uint64_t number; /* of the last round */
    uint32_t passed; /* the largest size that arrived in this round */
    uint32_t doubts; /* packets that were repeated in vain, or in pieces, since the last round */
    int64_t ended; /* the last round; 0: there was none */
    int64_t due; /* the next question, or the next round; SC_NEVER: not before the member enters the view */
} sc_peer_size;

typedef struct {
    uint32_t narrow; /* members that full packets of this view do not reach whole, or perhaps do not */
    int way; /* -1: packets of this view are too large; 1: they could be larger; 0: neither */
    int64_t since;
} sc_sizes;

/* A member shows itself in this view, perhaps while the view is closed already, and may be asked from now on. */
void sc_size_entered(sc_engine *e, struct sc_peer *peer, int64_t now);
void sc_size_peer_begin(struct sc_peer *peer);
void sc_size_begin(sc_engine *e);
/* A packet of `len` bytes is asked for again and again by this member. */
void sc_size_doubt(sc_engine *e, struct sc_peer *peer, uint32_t len, int64_t now);
/* Bytes of the largest packet that is sure to reach this member whole; 0: any may. */
uint32_t sc_size_carries(const sc_engine *e, const struct sc_peer *peer);
int sc_size_fits(const sc_engine *e, const struct sc_peer *peer, uint32_t len);
void sc_on_size(sc_engine *e, const struct sc_peer *peer, const uint8_t *p);
void sc_on_sized(sc_engine *e, struct sc_peer *peer, const uint8_t *p, int64_t now);
/* For heartbeats: the least that reaches any member from here; 0: unknown. */
uint32_t sc_size_says(const sc_engine *e);
void sc_size_heard(struct sc_peer *peer, uint32_t says);
/* At each heartbeat: are packets of this view too large, or too small? */
void sc_size_look(sc_engine *e, int64_t now);
void sc_size_tick(sc_engine *e, int64_t now);
int64_t sc_size_deadline(const sc_engine *e);
