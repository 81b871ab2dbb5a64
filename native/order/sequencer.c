/* The sequencer mechanism (S0): any member of the view may be the one that orders; the view names that one. */
#include "engine/internal.h"
#include "order/stamping.h"

static const sc_order_work work = {.settle = sc_stamping_settle, .deadline = sc_stamping_deadline};

const sc_order_ops sc_order_sequencer = {
    .name = "sequencer",
    .beside = 1,
    .state_bytes = sizeof(sc_stamping),
    .begin = sc_stamping_begin,
    .packed = sc_stamping_packed,
    .accepts = sc_stamping_accepts,
    .advance = sc_stamping_advance,
    .finish = sc_stamping_finish,
    .forwarding = &sc_stamping_forwarding,
    .work = &work,
    .fits = sc_has_sequencer,
    .ordered = sc_stamping_ordered,
};
