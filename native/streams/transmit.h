#pragma once

#include "engine/engine.h"
#include "base/out.h"

/* Transmission: the runs of one transmit do not change until the next one. */

#define SC_SPENT_SLABS 1024
#define SC_SEALED_RUNS 16 /* that one transmit can seal */
#define SC_SEALED_BYTES ((size_t)SC_SEALED_RUNS << 16)

typedef struct {
    sc_out *spent;
    sc_slab *slabs[SC_SPENT_SLABS];
    uint32_t n_slabs;
    uint64_t first_bytes; /* sent for the first time, of all streams */
} sc_lent;

int sc_transmit_return(sc_engine *e);
int sc_transmit(sc_engine *e, sc_tx *out, int max, int64_t now, int all);
void sc_tx_spent_free(sc_engine *e);
