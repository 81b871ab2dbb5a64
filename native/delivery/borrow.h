#pragma once

#include "engine/engine.h"

/* Slabs of packets whose messages are not copied. */

/* Takes a reference to the slab; 0: batches and open messages hold as many as they may. */
int sc_borrow(sc_engine *e, sc_slab *slab);
void sc_unborrow(sc_engine *e, sc_slab *slab);
