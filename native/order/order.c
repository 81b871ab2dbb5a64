#include "order/order.h"

#define X(number, ops) extern const sc_order_ops ops;
SC_ORDERS(X)
#undef X

int sc_has_sequencer(const sc_view *view) { return view->sequencer >= 0 && (uint32_t)view->sequencer < view->n; }

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
