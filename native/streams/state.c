/* The stream of application state from one member to a joiner. State uses the same rings, windows and acknowledgements
 * as messages to one member, but received packets wait in the receive ring for their reader: they must not queue behind
 * messages that a joiner's application takes only with the state. */
#include "engine/internal.h"

enum { WANTED = 1, ARRIVED };

int sc_engine_state_send(sc_engine *e, uint64_t to, const uint8_t *p, uint64_t len, uint64_t *done, int64_t wall) {
    e->wall = wall;
    if (!e->in_view) return SC_NO_VIEW;
    sc_peer *peer = sc_find_peer(e, to);
    if (!peer || peer == sc_self(e)) return SC_NO_MEMBER;
    sc_tx_stream *tx = sc_tx_to(e, peer, SC_STREAM_STATE);
    if (!tx) return SC_AGAIN;
    tx->ended = 0;
    uint64_t before = *done;
    int result = sc_tx_pack(e, tx, p, len, done, wall, 0);
    e->counters->state_bytes_sent += *done - before;
    if (result == SC_SENT) e->counters->messages_sent--; /* state is not a message */
    return result;
}

void sc_engine_state_end(sc_engine *e, uint64_t to) {
    sc_peer *peer = sc_find_peer(e, to);
    if (!peer || !peer->state_tx) return;
    sc_tx_close(e, peer->state_tx);
    peer->state_tx->ended = 1;
    sc_tx_release(e, peer->state_tx);
}

/* The first waiting packet was read to its end. */
static void next_packet(sc_engine *e, sc_peer *peer) {
    sc_rx_stream *rx = &peer->state;
    sc_rx_packet *slot = sc_rx_at(e, rx, rx->queued);
    uint32_t len = slot->len;
    peer->reading.at = 0;
    sc_rx_skip(rx);
    sc_rx_release(e, rx);
    sc_ack_consumed(e, peer, SC_STREAM_STATE, len, e->now);
}

/* Packets of `peer` have become contiguous. */
void sc_state_advance(sc_engine *e, sc_peer *peer) {
    while ((e->state_void || peer->reading.is_void) && peer->state.queued < peer->state.next) next_packet(e, peer);
}

void sc_engine_state_void(sc_engine *e, uint64_t sender) {
    if (!sender) {
        e->state_void = 1;
        if (e->loads) e->loads = ARRIVED;
    }
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        if (e->peers[r]->id == sender) e->peers[r]->reading.is_void = 1;
        sc_state_advance(e, e->peers[r]);
    }
}

/* The application takes messages. */
void sc_state_entered(sc_engine *e) {
    if (e->loads == ARRIVED) e->loads = 0;
}

void sc_engine_state_want(sc_engine *e, uint64_t sender) {
    sc_peer *peer = sc_find_peer(e, sender);
    e->state_void = 0;
    e->loads = WANTED;
    if (peer) peer->reading.is_void = 0;
}

int sc_engine_state_readable(const sc_engine *e, uint64_t sender) {
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++)
        if (e->view.ids[r] == sender) return e->peers[r]->state.queued < e->peers[r]->state.next;
    return 0;
}

size_t sc_engine_state_read(sc_engine *e, uint64_t sender, uint8_t *p, size_t len, int64_t now) {
    sc_peer *peer = sc_find_peer(e, sender);
    size_t done = 0;
    if (!peer) return 0;
    e->now = now;
    while (done < len && peer->state.queued < peer->state.next) {
        const sc_rx_packet *slot = sc_rx_at(e, &peer->state, peer->state.queued);
        uint32_t left = sc_get_data_len(slot->p) - peer->reading.at;
        size_t take = left < len - done ? left : len - done;
        memcpy(p + done, slot->p + SC_DATA_HEADER + peer->reading.at, take);
        done += take;
        peer->reading.at += (uint32_t)take;
        if (take == left) next_packet(e, peer);
    }
    e->counters->state_bytes_read += done;
    return done;
}
