/* Batches, and messages that are not whole yet, borrow the memory of received packets, as much as leaves enough to
 * receive into: the application may keep a batch for any time. */
#include "engine/internal.h"

#define BORROWED_PART 16 /* of all slabs */

int sc_borrow(sc_engine *e, sc_slab *slab) {
    if (e->borrowed >= SC_BORROWED_MAX || e->borrowed >= e->config.slabs_max / BORROWED_PART) return 0;
    sc_slab_ref(slab);
    e->borrowed++;
    return 1;
}

void sc_unborrow(sc_engine *e, sc_slab *slab) {
    sc_slab_unref(slab);
    e->borrowed--;
}
