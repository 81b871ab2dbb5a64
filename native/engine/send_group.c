/* Packs a message to the group, over as many calls as credit and view changes require. */
#include "engine/internal.h"

static int send_large(sc_engine *e, sc_tx_stream *tx, const uint8_t *p, uint64_t len, sc_send_state *state,
                      int64_t wall) {
    int result = sc_tx_pack(e, tx, p, len, &state->done, wall, 0);
    if (!e->own.large_first && tx->in_message) sc_large_begins(e, tx->big_start);
    if (result != SC_SENT) return result;
    state->packed = 1;
    state->wait_seqno = tx->next; /* the open packet, in which the message ends */
    sc_large_packed(e, tx->big_start, tx->next);
    return SC_AGAIN;
}

/* A large message is packed: sent counts from its return. */
int sc_send_await_large(sc_engine *e) {
    if (!sc_large_returned(e)) return SC_AGAIN;
    sc_large_done(e);
    return SC_SENT;
}

/* Room that is left to block callbacks is also for messages that have begun, behind which a callback would wait. */
static int may_go_on(const sc_engine *e, const sc_tx_stream *tx, uint64_t len, const sc_send_state *state) {
    return state->of_callback || state->done || sc_tx_leaves_room(e, tx, len);
}

int sc_send_group(sc_engine *e, int beside, const uint8_t *p, uint64_t len, sc_send_state *state, int64_t wall) {
    if (state->epoch != e->epoch) { /* a view change midway: receivers dropped their part */
        if (state->wait_seqno && sc_large_returned(e)) return SC_SENT;
        state->done = state->wait_seqno = 0;
        state->epoch = e->epoch;
    }
    if (e->cut.gate_closed) return SC_AGAIN;
    if (state->wait_seqno) return sc_send_await_large(e);
    if (e->cut.paused) return SC_AGAIN;
    sc_tx_stream *tx = e->order.own;
    if (!may_go_on(e, tx, len, state)) return SC_AGAIN;
    sc_tx_beside(e, tx, beside && e->order.ops->beside);
    if (!state->done && !tx->in_message) sc_large_none(e);
    if (e->order.waits && !sc_tx_keeps(tx, len))
        return state->at_once ? SC_AGAIN : send_large(e, tx, p, len, state, wall);
    return sc_tx_pack(e, tx, p, len, &state->done, wall, 0);
}

void sc_engine_send_abort(sc_engine *e, uint64_t to, sc_send_state *state) {
    if (!e->in_view || !state->done) return;
    sc_tx_stream *tx = e->order.own;
    if (to) {
        sc_peer *peer = sc_find_peer(e, to);
        tx = peer && peer->unicast_tx && peer->unicast_tx->pair == state->epoch ? peer->unicast_tx : NULL;
    } else if (state->epoch != e->epoch || state->wait_seqno) {
        return;
    }
    if (tx) sc_tx_abandon(tx);
}
