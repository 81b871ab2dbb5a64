#pragma once

#include "engine/engine.h"

/* Records that an order puts into the own group stream: SC_TYPE_RECORD. */

/* By how much a record may exceed the window: a few records even of a small one. */
#define SC_RECORD_RESERVE(window) ((window) / 16 + 4096)

/* A copy of p[0..len), which is zero but for entries and place, as the next own packet; NULL without memory. */
uint8_t *sc_record_copy(sc_engine *e, sc_sharing *sharing, uint8_t *p, uint32_t len, sc_slab **slab);
/* Puts a record with these entries, and the place, if any, that stand in p[0..SC_RECORD_LEN(entries)), which is zero
 * otherwise, after the last packet. The caller has checked credit. 0 without memory. */
int sc_record_put(sc_engine *e, sc_sharing *sharing, uint8_t *p, uint32_t entries);
