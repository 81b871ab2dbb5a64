#pragma once

#include "base/budget.h"
#include "engine/engine.h"

/* Rate limits on control frames: a budget is how many bytes a source may still send to the control plane, with a fixed
 * cost per frame. */

/* A source outside the view, by its address. */
typedef struct {
    sc_address address;
    sc_budget budget; /* of frames, in bytes */
    sc_budget vain; /* of datagrams that do not open, or came before */
} sc_source;

#define SC_SOURCES 64
#define SC_ODD_SOURCES 16

/* A source whose datagrams are not sealed as ours are, or one of whose datagrams was damaged. */
typedef struct {
    sc_address address;
    uint32_t signs; /* how many in a row */
    int64_t told; /* when it was reported last */
} sc_odd_source;

typedef struct {
    sc_budget strangers, vain; /* all of them together */
    sc_source sources[SC_SOURCES]; /* by address */
    sc_odd_source odd[SC_ODD_SOURCES];
    uint32_t n_odd, odd_next;
    int64_t odd_since; /* when a source got the last place */
} sc_intake;
