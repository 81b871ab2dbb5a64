#pragma once

#include "order/order.h"

/* Shared by the orders in which the sequencer multicasts everyone's packets: the table of such an order has these
 * functions, or calls them, and its private state begins with sc_stamping. */

typedef struct {
    uint64_t global_next; /* of the next message to be stamped */
    uint64_t origin_next; /* own numbering of the sequencer */
    uint32_t first; /* rank whose forwards are considered first */
    uint64_t forwarded[SC_MEMBERS_MAX]; /* by rank: bytes of forwards stamped since the last count */
    int64_t count_due; /* of the members that forward much */
} sc_stamping;

void sc_stamping_begin(sc_engine *e);
void sc_stamping_packed(sc_engine *e, struct sc_tx_stream *tx, struct sc_tx_packet *packet);
/* The next forward of `peer` becomes a packet of the own group stream. The caller has checked credit. */
void sc_stamping_take(sc_engine *e, struct sc_peer *peer, int64_t now);
void sc_stamping_settle(sc_engine *e, int64_t now);
int64_t sc_stamping_deadline(const sc_engine *e);
int sc_stamping_accepts(const sc_engine *e, const struct sc_peer *peer, int stream, const uint8_t *p);
void sc_stamping_advance(sc_engine *e, struct sc_peer *peer);
uint64_t sc_stamping_ordered(const sc_engine *e);
void sc_stamping_finish(sc_engine *e);
extern const sc_order_forwarding sc_stamping_forwarding;
