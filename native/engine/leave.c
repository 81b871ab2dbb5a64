/* The end of the application's sends: a leaving member waits until every accepted message is ordered or acknowledged,
 * and reports those that are not. */
#include "engine/internal.h"

void sc_engine_unacknowledged(const sc_engine *e, uint64_t *out) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        const sc_tx_stream *tx = e->peers[r]->unicast_tx;
        out[r] = 0;
        if (!tx || !tx->packets) continue;
        for (uint64_t seqno = tx->stable + 1; seqno < tx->next; seqno++) out[r] += sc_tx_at(tx, seqno)->messages;
        if (tx->open) out[r] += tx->open_messages;
    }
}

void sc_leave_end_sends(sc_engine *e) {
    e->leave.ended = 1;
    sc_may_send(e); /* wakes senders that wait for credit */
}

int sc_engine_sends_ended(const sc_engine *e) { return e->leave.ended; }

int sc_engine_drained(const sc_engine *e) {
    if (!e->in_view || e->blocked.first || (e->order.waits && sc_own_unordered(e))) return 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_tx_stream *tx = e->peers[r]->unicast_tx;
        if (tx && tx->packets && (tx->stable + 1 < tx->next || (tx->open && tx->open_messages))) return 0;
    }
    return 1;
}

void sc_drained_check(sc_engine *e) {
    if (!e->leave.ended || e->leave.told || !sc_engine_drained(e)) return;
    e->leave.told = 1;
    sc_push_event(e, SC_EVENT_DRAINED, 0, e->view.tag, NULL, NULL, 0);
}
