/* The sequencer mechanism (S0): any member of the view may be the one that orders; the view names it. */
#include "engine/self.h"
#include "order/stamping.h"

static size_t state_bytes(const sc_config *config, const sc_view *view) {
    (void)config, (void)view;
    return sizeof(sc_stamping);
}

const sc_order_ops sc_order_sequencer = {
    .name = "sequencer",
    .renumbers = 1,
    .beside = 1,
    .forwards = 1,
    .fits = sc_has_sequencer,
    .state_bytes = state_bytes,
    .begin = sc_stamping_begin,
    .packed = sc_stamping_packed,
    .ordered = sc_stamping_ordered,
    .stable = sc_stamping_stable,
    .accepts = sc_stamping_accepts,
    .advance = sc_stamping_advance,
    .settle = sc_stamping_settle,
    .received = sc_stamping_received,
    .finish = sc_stamping_finish,
};
