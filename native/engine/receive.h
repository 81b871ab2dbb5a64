#ifndef SEQCAST_ENGINE_RECEIVE_H
#define SEQCAST_ENGINE_RECEIVE_H

#include "engine/engine.h"

/* Who may say how much to the control plane. */

/* What somebody may still say to the control plane: bytes, with a fixed cost of each frame; refilled with time. */
typedef struct {
    int64_t left, refilled;
} sc_budget;

/* Somebody that is not in the view, by its address. */
typedef struct {
    sc_address address;
    sc_budget budget;
} sc_source;

#define SC_SOURCES 64

typedef struct {
    sc_budget strangers; /* all of them together */
    sc_source sources[SC_SOURCES]; /* the last used first */
} sc_intake;

#endif
