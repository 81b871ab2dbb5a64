/* Sending for the application: to the group, to one member, to itself. */
#include "engine/internal.h"

/* A message to itself goes straight into the delivery queue, as one or more packets of a separate stream. Taking
 * messages gives credit, as with any stream. */
static int send_to_self(sc_engine *e, const uint8_t *p, uint64_t len, uint64_t *progress, int64_t wall) {
    uint8_t packet[SC_SLAB_BYTES];
    const uint64_t most = SC_PACKET_MAX - SC_DATA_HEADER - 16;
    uint64_t window = e->view.unicast_window_bytes, done = *progress;
    if (!e->config.receive) return SC_SENT;
    if (window > e->config.unicast_bytes) window = e->config.unicast_bytes;
    do {
        uint64_t take = len - done < most ? len - done : most;
        if (e->queue.self_bytes && e->queue.self_bytes + take > window) {
            e->counters->credit_stalls++;
            return SC_AGAIN;
        }
        size_t at = sc_wire_offsets((uint32_t)take);
        memset(packet, 0, SC_DATA_HEADER);
        sc_put_type(packet, SC_TYPE_UNICAST);
        sc_put_flags(packet, (uint8_t)((done ? SC_FLAG_CONT_IN : 0) | (done + take < len ? SC_FLAG_CONT_OUT : 0)));
        sc_put_seqno(packet, e->self_seqno + (done + take == len));
        sc_put_sent_ns(packet, (uint64_t)wall);
        sc_put_data_len(packet, (uint32_t)take);
        sc_put_pieces(packet, 1);
        if (take) memcpy(packet + SC_DATA_HEADER, p + done, take);
        memset(packet + SC_DATA_HEADER + take, 0, at - SC_DATA_HEADER - take);
        sc_put_offset(packet + at, 0, 0);
        sc_put_offset(packet + at, 1, (uint32_t)take);
        sc_slab *slab;
        uint8_t *copy = sc_slab_copy_own(e->pool, NULL, packet, at + 8, &slab);
        if (!copy) return SC_AGAIN;
        uint64_t seqno = sc_get_seqno(packet);
        int queued = sc_queue_packet(e, &(sc_delivery){.p = copy,
                                                       .len = (uint32_t)at + 8,
                                                       .slab = slab,
                                                       .stream = SC_STREAM_UNICAST,
                                                       .carrier = (uint16_t)e->view.rank,
                                                       .rank = (uint16_t)e->view.rank,
                                                       .sender = e->config.member,
                                                       .seqno = seqno,
                                                       .number = seqno});
        sc_slab_unref(slab);
        if (!queued) return SC_AGAIN;
        *progress = done += take;
    } while (done < len);
    e->self_seqno++;
    e->counters->messages_sent++;
    return SC_SENT;
}

/* A send outside a view, or after sending has ended. */
static int send_late(sc_engine *e, uint64_t to, sc_send_state *state) {
    if (state->wait_seqno && sc_large_returned(e))
        return sc_send_await_large(e); /* perhaps through the cut of the view that was left */
    if (!e->in_view) return SC_NO_VIEW;
    if (state->wait_seqno && state->epoch == e->epoch) return SC_AGAIN;
    sc_engine_send_abort(e, to, state);
    state->done = state->wait_seqno = 0;
    return SC_ENDED;
}

int sc_engine_send(sc_engine *e, uint64_t to, int beside, const uint8_t *p, uint64_t len, sc_send_state *state,
                   int64_t wall) {
    e->wall = wall;
    if (len > e->config.message_bytes_max) return SC_TOO_LARGE;
    if (!e->in_view || e->leave.ended) return send_late(e, to, state);
    if (to == e->config.member) return send_to_self(e, p, len, &state->done, wall);
    if (to) {
        sc_peer *peer = sc_find_peer(e, to);
        if (!peer) return SC_NO_MEMBER;
        sc_tx_stream *tx = sc_tx_to(e, peer, SC_STREAM_UNICAST);
        if (!tx) return SC_AGAIN;
        if (state->epoch != tx->pair) { /* the two were apart in between: the stream started over */
            state->done = 0;
            state->epoch = tx->pair;
        }
        return sc_tx_pack(e, tx, p, len, &state->done, wall, 0);
    }
    if (e->config.observer) return SC_OBSERVER;
    /* A packed large forward is not queued: the view will show its order, if any. */
    if ((e->cut.gate_closed || e->cut.paused || e->blocked.first) && !state->wait_seqno)
        return sc_blocked_take(e, beside, p, len, state, wall);
    return sc_send_group(e, beside, p, len, state, wall);
}

uint64_t sc_engine_send_batch(sc_engine *e, int beside, const uint8_t *data, const uint64_t *offsets, uint64_t first,
                              uint64_t n, sc_send_state *state, int64_t wall, int *result) {
    *result = SC_SENT;
    while (first < n) {
        uint64_t len = offsets[first + 1] - offsets[first];
        *result = sc_engine_send(e, 0, beside, data + offsets[first], len, state, wall);
        if (*result != SC_SENT) return first;
        state->done = state->wait_seqno = state->packed = 0;
        first++;
        if (e->cut.gate_closed || e->cut.paused) continue; /* queued */
        /* Packed: the stream is open for the next messages. */
        first += sc_tx_pack_whole(e, e->order.own, data, offsets, first, n);
    }
    return first;
}

uint64_t sc_engine_sendable(const sc_engine *e) { return e->sendable; }
