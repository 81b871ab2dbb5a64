/* What follows from what, in one place. Parts only note what happened to them; every call of the engine that may have changed
 * something for another part ends here:
 *
 *   a receiver acknowledged, or the own application took something  →  credit of the own group stream, and what is stable
 *   credit, or forwards that came                                   →  the order stamps them
 *   credit, or an open gate                                         →  what was sent while it was closed is packed
 *   all of that                                                     →  the cut is reached; a leaver has nothing left to send
 *
 * Packing and stamping may take the last credit and give none, so once around is enough, but for a stream without receivers
 * and a member that takes nothing, which credit themselves. */
#include "engine/self.h"

void sc_settle(sc_engine *e, int64_t now) {
    if (!e->in_view) return;
    do {
        if (e->credit.due) sc_flow_recount(e, now);
        if (e->order.ops->settle) e->order.ops->settle(e, now);
        if (e->blocked.first || e->blocked.full) sc_blocked_drain(e);
    } while (e->credit.due);
    if (e->cut.set) sc_view_cut_check(e);
    if (e->leave.ended) sc_drained_check(e);
}
