/* Receive ring: packets keyed by seqno. A packet stays here until stable, so that any member can serve the packet once
 * its sender is gone. */
#include "engine/internal.h"

sc_rx_stream *sc_rx_of(sc_peer *peer, int stream) {
    return stream == SC_STREAM_GROUP     ? &peer->group
           : stream == SC_STREAM_UNICAST ? &peer->unicast
           : stream == SC_STREAM_FORWARD ? &peer->forward
                                         : &peer->state;
}

static void drop_slot(sc_rx_stream *rx, sc_rx_packet *slot) {
    if (!slot->p) return;
    sc_slab_unref(slot->slab);
    sc_rx_moved(rx, slot);
}

void sc_rx_moved(sc_rx_stream *rx, sc_rx_packet *slot) {
    slot->p = NULL;
    rx->ring_bytes -= slot->len;
}

static void clear(sc_engine *e, sc_rx_stream *rx) {
    if (!rx->packets) return;
    for (uint64_t seqno = rx->first; seqno <= rx->highest; seqno++) drop_slot(rx, sc_rx_at(e, rx, seqno));
}

void sc_rx_reset(sc_engine *e, sc_rx_stream *rx, uint64_t base) {
    clear(e, rx);
    sc_rx_packet *packets = rx->packets;
    memset(rx, 0, sizeof *rx);
    rx->packets = packets;
    rx->first = rx->next = rx->queued = base + 1;
    rx->highest = rx->known = rx->consumed = rx->stable = base;
    rx->acked_consumed = base;
    rx->limit = UINT64_MAX;
    rx->ack_due = SC_NEVER;
}

void sc_rx_free(sc_engine *e, sc_rx_stream *rx) {
    clear(e, rx);
    free(rx->packets);
    rx->packets = NULL;
}

/* No other member lacks packets at or below `upto`: delivered ones are kept no longer. */
void sc_rx_purge(const sc_engine *e, sc_rx_stream *rx, uint64_t upto) {
    if (!rx->packets) return;
    while (rx->first <= upto && rx->first < rx->queued) drop_slot(rx, sc_rx_at(e, rx, rx->first++));
}

void sc_rx_stable(sc_engine *e, sc_rx_stream *rx, uint64_t stable) {
    if (stable > rx->stable) rx->stable = stable;
    sc_rx_purge(e, rx, rx->stable);
}

int sc_rx_ready(const sc_engine *e, sc_rx_stream *rx) {
    return rx->packets || (rx->packets = calloc(e->config.ring_packets, sizeof *rx->packets));
}

/* The contiguous prefix ends before the first slot that is empty. */
void sc_rx_extend(const sc_engine *e, sc_rx_stream *rx) {
    while (rx->next <= rx->highest && sc_rx_at(e, rx, rx->next)->p) rx->next++;
}

size_t sc_rx_ranges(const sc_engine *e, const sc_rx_stream *rx, int held, uint64_t first, uint64_t last, uint64_t most,
                    uint64_t *ranges, size_t max) {
    uint64_t end = rx->first + e->config.ring_packets, lo = 0;
    size_t n = 0;
    if (last >= end) last = end - 1;
    for (uint64_t seqno = first; seqno <= last + 1 && n < max; seqno++) {
        int is_here = seqno <= last && rx->packets && sc_rx_at(e, rx, seqno)->p;
        if (seqno <= last && most && is_here == held) {
            most--;
            if (!lo) lo = seqno;
        } else if (lo) {
            ranges[2 * n] = lo;
            ranges[2 * n++ + 1] = seqno - 1;
            lo = 0;
        }
        if (!most && !lo) break;
    }
    return n;
}

void sc_rx_end(sc_rx_stream *rx, uint64_t last) {
    if (rx->next > last + 1) rx->next = last + 1;
}

/* Skipped packets are consumed once everything before them is. */
void sc_rx_consumed(sc_rx_stream *rx) {
    if (!rx->queue_bytes && rx->consumed + 1 < rx->queued) rx->consumed = rx->queued - 1;
}

void sc_rx_skip(sc_rx_stream *rx) {
    rx->queued++;
    sc_rx_consumed(rx);
}

/* Stores a packet that has a free slot in the ring. The next packet in sequence always finds a slab: the others leave
 * the last slabs to that one. So do those behind packets that wait for an order, which may wait for a packet of another
 * stream. 0 without slabs. */
int sc_rx_put(sc_engine *e, sc_rx_stream *rx, uint64_t seqno, uint8_t *p, size_t len, sc_slab *slab) {
    sc_rx_packet *slot = sc_rx_at(e, rx, seqno);
    int next = seqno == rx->next && (rx->queued == rx->next || e->cut.set);
    if (!next && sc_slab_pool_scarce(e->pool)) return 0;
    if (slab && sc_slab_pool_ample(e->pool)) {
        sc_slab_ref(slab);
        slot->slab = slab;
        slot->p = p;
    } else if (!(slot->p = sc_slab_copy(e->pool, &rx->sharing, p, len, &slot->slab))) {
        return 0;
    }
    slot->len = (uint32_t)len;
    rx->ring_bytes += len;
    if (seqno > rx->highest) rx->highest = seqno;
    return 1;
}

/* The next packet for delivery does not belong to the stream: its slot is empty again. */
void sc_rx_drop(const sc_engine *e, sc_rx_stream *rx) {
    drop_slot(rx, sc_rx_at(e, rx, rx->queued));
    rx->next = rx->queued;
}

/* Everything up to `queued` has left, and no other member is ever served from this ring. */
void sc_rx_release(const sc_engine *e, sc_rx_stream *rx) {
    while (rx->first < rx->queued) drop_slot(rx, sc_rx_at(e, rx, rx->first++));
}
