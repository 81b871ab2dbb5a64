/* Propagates consequences between parts, in one place. Parts only note events; every engine call that may affect
 * another part ends here:
 *
 *   a receiver acknowledged, or the own application took something  →  credit of the own group stream, and stability
 *   credit, or forwards have arrived                                →  the order stamps forwards
 *   credit, or an open gate                                         →  the blocked queue is packed
 *   stability of a safe view                                        →  the gate passes on packets that all members have
 *   any of these                                                    →  the cut may be reached, or a leaver drained
 *
 * Packing and stamping use up credit and give none, so one pass is enough, except for a stream without receivers and a
 * member that takes nothing, which give themselves credit. */
#include "engine/internal.h"

void sc_settle(sc_engine *e, int64_t now) {
    if (!e->in_view) return;
    do {
        if (e->credit.due) sc_credit_recount(e, now);
        if (e->order.ops->work && !e->cut.set) e->order.ops->work->settle(e, now);
        if (e->blocked.first || e->blocked.full) sc_blocked_drain(e);
    } while (e->credit.due);
    if (e->view.safe) sc_gate_release(e);
    if (e->cut.set) sc_view_cut_check(e);
    if (e->leave.ended) sc_drained_check(e);
}
