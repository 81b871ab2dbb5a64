/* Survivors install a view one after another: the VIEW waits for the Python of each. What the first ones send meanwhile, up to a
 * window each, would be dropped by the others, and each of them would have to ask for it again. So while the gate is closed,
 * what survivors send under another tag is kept, and is received when the view is installed.
 *
 * Whether the view will have this tag is not known yet. Memory is bounded by a number of datagrams and by half of the slabs: the
 * closed view's streams need at most the other half (config/derive.py, capacity). */
#include "engine/internal.h"

int sc_early_keep(sc_engine *e, const sc_peer *peer, uint8_t *p, size_t len, sc_slab *slab, const sc_address *from,
                  int lane) {
    sc_early_queue *q = &e->early;
    if (!e->cut.gate_closed || peer->cut.lost || sc_get_view_tag(p) == e->view_before) return 0;
    if (q->n == SC_EARLY_MAX || !sc_slab_pool_ample(e->pool)) {
        e->counters.drop_early++;
        return 0;
    }
    if (slab)
        sc_slab_ref(slab);
    else if (!(p = sc_slab_copy(e->pool, &q->sharing, p, len, &slab)))
        return 0;
    q->kept[q->n++] = (sc_early){.slab = slab, .p = p, .len = (uint32_t)len, .lane = lane, .from = *from};
    e->counters.early++;
    return 1;
}

void sc_early_forget(sc_engine *e) {
    while (e->early.n) sc_slab_unref(e->early.kept[--e->early.n].slab);
}
