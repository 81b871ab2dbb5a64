#pragma once

#include "engine/engine.h"

/* Gate, pause, freeze, cut. */

struct sc_peer;

/* After a CUT (or, on request, a START) nothing is delivered until a view is installed. A newer START makes the cut
 * stale: its named packets are no longer accepted. */
enum { SC_CUT_NONE = 0, SC_CUT_CURRENT = 1, SC_CUT_STALE = 2 };

typedef struct {
    int gate_closed;
    int paused;
    int uncounts; /* some members */
    int set; /* SC_CUT_* */
    int told;
    uint8_t fell[SC_MEMBERS_MAX]; /* by rank: did not survive the view */
    uint64_t end[SC_MEMBERS_MAX];
} sc_cut;

/* The state of each member. */
typedef struct {
    int lost; /* given up by the running cut: no wait of credit, and nothing is accepted from there */
    int uncounted; /* about to be given up: no wait of credit, but its missing packets are kept */
    /* In our unicast stream to this member: the cut is reached only once this packet is there. */
    uint64_t unicast_mark;
} sc_peer_cut;

void sc_cut_peer_begin(struct sc_peer *peer);
void sc_cut_over(sc_engine *e, const uint8_t *fell);
void sc_cut_reset(sc_engine *e);

void sc_view_resume(sc_engine *e);
void sc_view_uncount(sc_engine *e, const uint64_t *lost, size_t n);
void sc_view_freeze(sc_engine *e, const uint64_t *lost, size_t n, int still);
void sc_view_cut(sc_engine *e, const uint64_t *cut, const sc_fetch *fetch, size_t n_fetch);
void sc_view_cut_check(sc_engine *e);
