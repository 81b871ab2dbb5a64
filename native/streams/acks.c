/* Acks: the report of a receiver about a stream, and its time. credit.c has the allowance that follows for the sender.
 *
 * The receivers of a multicast take turns: together they send about one ack for two packets, each at its own place in
 * the stream, so that neither their number nor a burst of acks burdens the sender. */
#include "engine/internal.h"

void sc_ack(sc_engine *e, sc_peer *peer, int stream) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    rx->ack_due = SC_NEVER;
    uint64_t window = stream == SC_STREAM_GROUP ? sc_credit_promise(e, rx) : 0;
    if (peer->cut.lost) return;
    uint8_t *p = sc_out_new(e, &peer->address, SC_TYPE_ACK, SC_ACK_LEN);
    if (!p) {
        rx->ack_due = e->now + e->config.ack_delay_ns;
        return;
    }
    if (sc_of_pair((uint64_t)stream)) sc_put_view_tag(p, peer->pair);
    sc_put_ack_stream(p, (uint64_t)stream);
    sc_put_ack_delivered(p, sc_rx_delivered(rx));
    sc_put_ack_received(p, rx->highest);
    sc_put_ack_consumed(p, rx->consumed);
    if (stream == SC_STREAM_GROUP) {
        sc_put_ack_window(p, window);
        sc_put_ack_claim(p, rx->claim);
    }
    rx->acked_charged = rx->charged;
    rx->acked_consumed = rx->consumed;
    rx->ack_at = 0;
    e->counters->acks_sent++;
}

/* Which of the receivers of this member's multicasts we are: 0 to n - 2. */
static uint32_t nth_receiver(const sc_engine *e, const sc_peer *peer) {
    return (e->view.rank + e->view.n - peer->rank - 1) % e->view.n;
}

/* Delivery in a safe view, or a congestion window, waits for the acks of all members, so they are sent soon. */
void sc_ack_soon(const sc_engine *e, sc_rx_stream *rx) {
    int64_t due = e->now + e->config.ack_delay_ns / SC_ACK_SOON;
    if (due < rx->ack_due) rx->ack_due = due;
}

void sc_ack_ordered(sc_engine *e, sc_peer *peer) { sc_ack_soon(e, &peer->group); }

/* The timer lets an ack wait for a pause of the stream. All receivers of a multicast would answer at once, so each has
 * its own moment in the second half of the delay (STA-04), so that their acks do not collide in the sender's buffer.
 * While packets keep coming, one of the receivers answers within each delay, on average. */
void sc_ack_progress(sc_engine *e, sc_peer *peer, int stream, int64_t now) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    if (!sc_rx_acknowledges(rx)) return;
    if ((stream == SC_STREAM_GROUP && e->view.safe) || sc_congestion_tells(e, peer)) {
        sc_ack_soon(e, rx);
        return;
    }
    if (rx->progressed == now && rx->ack_due != SC_NEVER) return; /* packets that came, or were taken, together */
    rx->progressed = now;
    int64_t delay = e->config.ack_delay_ns, wait = delay, receivers = stream == SC_STREAM_GROUP ? e->view.n - 1 : 1;
    if (receivers > 1) {
        delay = sc_tx_spread(e, delay);
        wait = delay / 2 + delay / 2 * (nth_receiver(e, peer) + 1) / receivers;
    }
    int64_t due = now + wait, latest = receivers * e->config.ack_delay_ns;
    if (rx->ack_due == SC_NEVER) {
        rx->ack_latest = now + (latest > wait ? latest : wait);
        rx->ack_due = due;
    } else if (due > rx->ack_due) {
        rx->ack_due = due < rx->ack_latest ? due : rx->ack_latest;
    }
}

/* An ack is due each time this many more bytes are consumed; *at is where this receiver begins to count. The sender
 * must never wait for an ack that waits for the sender, who stops when less than a packet of its window is left. */
static uint64_t ack_interval(const sc_engine *e, const sc_peer *peer, int stream, uint64_t *at) {
    const sc_rx_stream *rx = sc_rx_of((sc_peer *)peer, stream);
    uint64_t packet = sc_charge_most(e->view.packet_bytes);
    *at = 0;
    if (stream != SC_STREAM_GROUP) {
        uint64_t window = sc_window_of(e, stream);
        return e->config.ack_bytes ? sc_least(e->config.ack_bytes, window / 2) : window / 4;
    }
    uint64_t window =
        sc_most(rx->promised > rx->acked_charged ? rx->promised - rx->acked_charged : 0, e->view.share_bytes);
    if (e->config.ack_bytes) return sc_least(e->config.ack_bytes, window / 2);
    uint64_t receivers = e->view.n - 1,
             interval = sc_most(window / 4, sc_least(2 * receivers * packet, window / 4 * 3));
    if (interval + packet > window) interval = window > packet ? window - packet : 0;
    *at = interval / receivers * nth_receiver(e, peer);
    return interval;
}

static uint64_t ack_due_at(const sc_engine *e, const sc_peer *peer, int stream) {
    uint64_t at, acked = sc_rx_of((sc_peer *)peer, stream)->acked_charged;
    uint64_t interval = sc_most(ack_interval(e, peer, stream, &at), 1);
    return at ? ((acked + at) / interval + 1) * interval - at : acked + interval;
}

static int ack_is_due(const sc_engine *e, sc_peer *peer, int stream) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    uint64_t ring = e->config.ring_packets;
    uint64_t packets = e->config.ack_packets ? sc_least(e->config.ack_packets, ring / 2) : ring / 8;
    if (rx->consumed - rx->acked_consumed >= packets) return 1;
    if (stream != SC_STREAM_GROUP) return rx->charged >= ack_due_at(e, peer, stream);
    if (!rx->ack_at || rx->ack_for != rx->promised) {
        rx->ack_at = ack_due_at(e, peer, stream);
        rx->ack_for = rx->promised;
    }
    return rx->charged >= rx->ack_at;
}

/* `bytes` more were consumed (STA-02): an ack at once if enough bytes or packets have accumulated, otherwise by timer.
 * Forwards that are consumed are multicast, which gives their sender its credit. */
void sc_ack_consumed(sc_engine *e, sc_peer *peer, int stream, uint64_t bytes, int64_t now) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    rx->charged += sc_charge((uint32_t)bytes, bytes == e->view.packet_bytes); /* as counted by the sender */
    if (!sc_rx_acknowledges(rx)) return;
    if (stream != SC_STREAM_FORWARD && ack_is_due(e, peer, stream))
        sc_ack(e, peer, stream);
    else
        sc_ack_progress(e, peer, stream, now);
}

void sc_on_ack(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    uint64_t delivered = sc_get_ack_delivered(p), received = sc_get_ack_received(p), consumed = sc_get_ack_consumed(p);
    sc_tx_stream *tx = sc_tx_of(e, peer, (int)sc_get_ack_stream(p));
    int others = tx == &e->forward && (int32_t)peer->rank != e->order.forward_to; /* only their receiver has forwards */
    if (!tx || others || !tx->packets || consumed > delivered || delivered >= tx->unsent || received >= tx->unsent) {
        e->counters->drop_field++;
        return;
    }
    e->counters->acks_received++;
    sc_congestion_acked(e, peer, tx, received, now);
    if (tx == &e->group)
        sc_credit_group(e, peer, p);
    else
        sc_credit_stream(e, tx, delivered, consumed, now);
}
