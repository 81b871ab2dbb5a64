#pragma once

#include "engine/engine.h"

/* Own numbers, and the large message in progress. */

typedef struct {
    uint64_t last; /* number of the newest closed own packet of the view, or `base` */
    uint64_t sent; /* number of the newest one, of whatever view */
    uint64_t base; /* the view's first own packet has the next number */
    uint64_t first; /* oldest number in `ends` */
    uint32_t *ends; /* by number: messages that have ended up to there */
    uint64_t places; /* of `ends`: two rings of packets, a power of two */
    uint32_t ended; /* up to the newest */
    /* The message in progress that is too large to be kept for a view change: starts in packet `large_first` of the own
     * stream and ends in `large_last`; its sender waits for its return, which is remembered beyond its view. */
    uint64_t large_first, large_last;
    int large_returned;
} sc_own_numbers;

int sc_own_init(sc_engine *e); /* -1 without memory */
void sc_own_free(sc_engine *e);

int sc_own_reset(sc_engine *e, uint64_t base); /* -1 without memory */
void sc_own_packet(sc_engine *e, uint64_t number, uint32_t messages);
uint64_t sc_own_unordered(const sc_engine *e); /* packets that are not known to be ordered */
void sc_large_none(sc_engine *e);
void sc_large_begins(sc_engine *e, uint64_t first);
void sc_large_packed(sc_engine *e, uint64_t first, uint64_t last);
int sc_large_returned(const sc_engine *e);
void sc_large_done(sc_engine *e);
void sc_large_view_ends(sc_engine *e, int merge);
