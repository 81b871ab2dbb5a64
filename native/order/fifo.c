/* Order per sender only: a packet is ordered as soon as its own stream is contiguous. */
#include "engine/internal.h"

static void begin(sc_engine *e) { e->order.own = &e->group; }

static int accepts(const sc_engine *e, const sc_peer *peer, int stream, const uint8_t *p) {
    (void)e, (void)peer;
    return stream == SC_STREAM_GROUP && sc_get_type(p) == SC_TYPE_DATA;
}

static void advance(sc_engine *e, sc_peer *peer) {
    sc_rx_stream *rx = &peer->group;
    while (rx->queued < rx->next && sc_rx_deliver(e, peer, peer->rank, rx->queued, 0)) {}
}

static void finish(sc_engine *e) {
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank) advance(e, e->peers[r]);
}

const sc_order_ops sc_order_fifo = {
    .name = "fifo",
    .begin = begin,
    .packed = sc_packed_and_ordered,
    .accepts = accepts,
    .advance = advance,
    .finish = finish,
};
