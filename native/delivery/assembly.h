#pragma once

#include "engine/engine.h"

/* Open messages. */

/* A message whose end has not been delivered yet. */
typedef struct {
    uint64_t sender; /* 0: free */
    int unicast;
    int active; /* a message is open */
    int skip; /* its pieces are dropped: too large, no memory, or some of it is in a gap; */
    int owed; /* and the application is not told so yet */
    uint8_t *p; /* `len` bytes of it; or else the pieces in packets so far: */
    uint64_t len, cap;
    sc_piece *kept;
    uint32_t n_kept, kept_cap;
} sc_assembly;

#define SC_ASSEMBLIES (2 * SC_MEMBERS_MAX)

typedef struct {
    sc_assembly of[SC_ASSEMBLIES];
    uint32_t last; /* the one looked up last */
    uint32_t active; /* how many have an open message */
    uint32_t owed; /* and one that the application is to be told as missed */
} sc_assemblies;

sc_assembly *sc_assembly_of(sc_engine *e, uint64_t sender, int unicast);
void sc_assembly_open(sc_engine *e, sc_assembly *a);
/* An open message, or one that began in a gap, is missed. */
void sc_assembly_miss(sc_engine *e, sc_assembly *a, int owed);
void sc_assembly_append(sc_engine *e, sc_assembly *a, const uint8_t *p, uint64_t len);
int sc_assembly_holds(const sc_assembly *a, uint32_t piece); /* a reference to the slab of this one */
int sc_assembly_keep(sc_engine *e, sc_assembly *a, const sc_piece *pieces, uint32_t n); /* 0: they are to be appended */
void sc_assembly_close(sc_engine *e, sc_assembly *a);
void sc_assembly_drop(sc_engine *e, sc_assembly *a);
void sc_assembly_release(sc_engine *e, sc_assembly *a);
void sc_assembly_view_ends(sc_engine *e, int newest);
void sc_assembly_free(sc_engine *e);
