#include "engine/internal.h"

#define X(number, ops) extern const sc_order_ops ops;
SC_ORDERS(X)
#undef X

int sc_has_sequencer(const sc_view *view) { return view->sequencer >= 0 && (uint32_t)view->sequencer < view->n; }

void sc_packed_and_ordered(sc_engine *e, sc_tx_stream *tx, sc_tx_packet *packet) {
    uint64_t seqno = tx->next - 1;
    packet->own = seqno;
    sc_own_packet(e, seqno, packet->messages);
    sc_queue_own(e, packet->p, packet->len, seqno, seqno, 0);
}

int64_t sc_never_due(const sc_engine *e) {
    (void)e;
    return SC_NEVER;
}

const sc_order_ops *sc_order_of(uint32_t mechanism) {
    switch (mechanism) {
#define X(number, ops)                                                                                                 \
    case number: return &ops;
        SC_ORDERS(X)
#undef X
    default: return NULL;
    }
}
