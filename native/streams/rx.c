/* Receive ring: packets keyed by seqno, gaps with their timers, NAKs. A packet stays here until it is stable, so that
 * any member can serve it after its sender is gone. */
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

/* ---- gaps --------------------------------------------------------------------------------------------------- */

void sc_rx_gap_add(sc_engine *e, sc_rx_stream *rx, uint64_t lo, uint64_t hi, int64_t due, int32_t holder) {
    if (rx->n_gaps == SC_GAPS_MAX) { /* the last one grows; what is held inside it is left out when it is asked for */
        e->counters.gaps_full++;
        sc_gap *last = &rx->gaps[SC_GAPS_MAX - 1];
        if (hi > last->hi) last->hi = hi;
        return;
    }
    rx->gaps[rx->n_gaps++] =
        (sc_gap){.lo = lo, .hi = hi, .due = due, .wait = e->config.nak_backoff_ns_min, .tries = 0, .holder = holder};
}

static void gap_remove(sc_rx_stream *rx, uint32_t i) {
    rx->n_gaps--;
    memmove(&rx->gaps[i], &rx->gaps[i + 1], (rx->n_gaps - i) * sizeof *rx->gaps);
}

/* Something of a gap came: answers are under way, so the rest is asked for only when they stop, and soon then. */
static void gap_fill(sc_engine *e, sc_rx_stream *rx, uint64_t seqno, int64_t now) {
    for (uint32_t i = 0; i < rx->n_gaps; i++) {
        sc_gap *gap = &rx->gaps[i];
        if (seqno < gap->lo || seqno > gap->hi) continue;
        gap->wait = e->config.nak_backoff_ns_min;
        gap->due = now + gap->wait;
        gap->tries = 0;
        if (gap->lo == gap->hi) {
            gap_remove(rx, i);
        } else if (seqno == gap->lo) {
            gap->lo++;
        } else if (seqno == gap->hi) {
            gap->hi--;
        } else if (rx->n_gaps < SC_GAPS_MAX) {
            memmove(gap + 1, gap, (rx->n_gaps++ - i) * sizeof *gap);
            gap[0].hi = seqno - 1;
            gap[1].lo = seqno + 1;
        }
        return;
    }
}

static void gaps_prune(sc_rx_stream *rx) {
    for (uint32_t i = rx->n_gaps; i-- > 0;)
        if (rx->gaps[i].hi < rx->next) gap_remove(rx, i);
}

/* The sender has sent up to `highest`: what is beyond `known` is missing. Asked for at `due`. */
void sc_rx_known(sc_engine *e, sc_rx_stream *rx, uint64_t highest, int64_t due) {
    if (highest <= rx->known || highest > rx->limit) return;
    /* What the ring cannot hold is not asked for: a sender within its window never is that far ahead. */
    if (highest >= rx->first + e->config.ring_packets) highest = rx->first + e->config.ring_packets - 1;
    if (highest <= rx->known) return;
    sc_rx_gap_add(e, rx, rx->known + 1, highest, due, -1);
    rx->known = highest;
}

/* ---- packets ------------------------------------------------------------------------------------------------ */

void sc_rx_stable(sc_engine *e, sc_rx_stream *rx, uint64_t stable) {
    if (stable > rx->stable) rx->stable = stable;
    if (!rx->packets) return;
    while (rx->first <= rx->stable && rx->first < rx->queued) drop_slot(rx, sc_rx_at(e, rx, rx->first++));
}

static int deliver(sc_engine *e, sc_peer *peer, int stream, uint32_t rank, uint64_t number, uint64_t global) {
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    const sc_rx_packet *slot = sc_rx_at(e, rx, rx->queued);
    if (!sc_queue_packet(e, &(sc_delivery){.p = slot->p,
                                           .len = slot->len,
                                           .slab = slot->slab,
                                           .stream = stream,
                                           .carrier = peer->rank,
                                           .rank = rank,
                                           .sender = e->view.ids[rank],
                                           .seqno = rx->queued,
                                           .number = number,
                                           .global = global}))
        return 0;
    rx->queued++;
    return 1;
}

int sc_rx_deliver(sc_engine *e, sc_peer *peer, uint32_t rank, uint64_t number, uint64_t global) {
    return deliver(e, peer, SC_STREAM_GROUP, rank, number, global);
}

void sc_rx_skip(sc_rx_stream *rx) { rx->consumed = rx->queued++; }

void sc_rx_refuse(sc_engine *e, sc_rx_stream *rx) {
    drop_slot(rx, sc_rx_at(e, rx, rx->queued));
    rx->next = rx->queued;
    sc_rx_gap_add(e, rx, rx->queued, rx->queued, e->now, -1);
}

static void advance_unicast(sc_engine *e, sc_peer *peer) {
    sc_rx_stream *rx = &peer->unicast;
    while (rx->queued < rx->next && deliver(e, peer, SC_STREAM_UNICAST, peer->rank, rx->queued, 0)) {
        drop_slot(rx, sc_rx_at(e, rx, rx->queued - 1)); /* nobody else is ever served from here */
        rx->first = rx->queued;
    }
}

/* Puts what is contiguous in order; what came on a forward stream the order takes when it settles. */
void sc_rx_advance(sc_engine *e, sc_peer *peer, sc_rx_stream *rx, int stream) {
    if (!rx->packets) return;
    while (rx->next <= rx->highest && sc_rx_at(e, rx, rx->next)->p) rx->next++;
    if (stream == SC_STREAM_UNICAST) {
        advance_unicast(e, peer);
    } else if (stream == SC_STREAM_STATE) {
        sc_state_advance(e, peer);
    } else if (stream == SC_STREAM_GROUP && !e->cut_set) { /* after CUT nothing is delivered until VIEW */
        e->order.ops->advance(e, peer);
        sc_rx_stable(e, rx, rx->stable);
    }
}

static int was_asked_for(const sc_rx_stream *rx, uint64_t seqno) {
    for (uint32_t i = 0; i < rx->n_gaps; i++)
        if (seqno >= rx->gaps[i].lo && seqno <= rx->gaps[i].hi) return rx->gaps[i].asked;
    return 0;
}

/* Has the sender more here than one that keeps to its window can have? Twice the window, as what a view change sends again
 * is forced past it. What is dropped so is asked for again; the packet that comes next always has a place. */
static int beyond_share(const sc_engine *e, const sc_rx_stream *rx, int stream, uint64_t seqno, size_t len) {
    uint64_t share = 2 * (sc_window_of(e, stream) + e->view.packet_bytes);
    if (rx->queue_bytes + len > share && rx->queue_bytes) return 1;
    return rx->ring_bytes + len > share && seqno != rx->next;
}

/* A data packet of `peer` whose wire form is valid and whose view tag fits; not `direct`: from another member, as we asked
 * for it. Returns 1 when it was new. */
int sc_rx_data(sc_engine *e, sc_peer *peer, uint8_t *p, size_t len, sc_slab *slab, int direct, int64_t now) {
    int stream = sc_get_type(p) == SC_TYPE_DATA      ? SC_STREAM_GROUP
                 : sc_get_type(p) == SC_TYPE_UNICAST ? SC_STREAM_UNICAST
                 : sc_get_type(p) == SC_TYPE_FORWARD ? SC_STREAM_FORWARD
                                                     : SC_STREAM_STATE;
    sc_rx_stream *rx = sc_rx_of(peer, stream);
    uint64_t seqno = sc_get_seqno(p);
    if (!sc_of_pair((uint64_t)stream) && !e->order.ops->accepts(e, peer, stream, p)) {
        e->counters.drop_field++;
        return 0;
    }
    if (stream == SC_STREAM_GROUP) {
        /* From its OK on a survivor takes nothing of this view from outside the survivors but what the CUT names. */
        if ((peer->lost && e->cut_set != SC_CUT_CURRENT) || seqno > rx->limit) {
            e->counters.drop_frozen++;
            return 0;
        }
    } else if (peer->lost || (stream == SC_STREAM_FORWARD && e->gate_closed)) {
        e->counters.drop_frozen++;
        return 0;
    }
    if (direct)
        sc_rx_stable(e, rx, sc_get_stable(p));
    else if (!was_asked_for(rx, seqno)) {
        e->counters.drop_address++;
        return 0;
    }
    if (seqno < rx->next) {
        e->counters.packets_duplicate++;
        return 0;
    }
    if (seqno >= rx->first + e->config.ring_packets) {
        e->counters.drop_window++;
        return 0;
    }
    if (!rx->packets && !(rx->packets = calloc(e->config.ring_packets, sizeof *rx->packets))) {
        e->counters.drop_slabs++;
        return 0;
    }
    sc_rx_packet *slot = sc_rx_at(e, rx, seqno);
    if (slot->p) {
        e->counters.packets_duplicate++;
        return 0;
    }
    if (beyond_share(e, rx, stream, seqno, len)) {
        e->counters.drop_share++;
        return 0;
    }
    if (seqno == rx->next || !sc_slab_pool_scarce(e->pool)) {
        if (slab) {
            sc_slab_ref(slab);
            slot->slab = slab;
            slot->p = p;
        } else {
            slot->p = sc_slab_copy(e->pool, &rx->sharing, p, len, &slot->slab);
        }
    }
    if (!slot->p) {
        e->counters.drop_slabs++;
        sc_detect_starved(e, now);
        return 0;
    }
    slot->len = (uint32_t)len;
    rx->ring_bytes += len;
    e->counters.packets_received++;
    if (seqno > rx->known) {
        if (seqno > rx->known + 1) sc_rx_gap_add(e, rx, rx->known + 1, seqno - 1, now + e->config.nak_delay_ns, -1);
        rx->known = seqno;
    } else if (rx->n_gaps) {
        gap_fill(e, rx, seqno, now);
    }
    if (seqno > rx->highest) rx->highest = seqno;
    uint64_t before = rx->next;
    sc_rx_advance(e, peer, rx, stream);
    if (rx->next != before) {
        if (rx->n_gaps) gaps_prune(rx);
        sc_flow_progress(e, rx, stream, now);
    }
    return 1;
}

/* ---- NAKs --------------------------------------------------------------------------------------------------- */

/* The sender first; where it is gone, or each second time where it does not answer, whoever said in a heartbeat that it
 * received more (which does not say that it holds just this one: two that lack it must not ask each other for ever). */
static sc_peer *nak_target(sc_engine *e, sc_peer *owner, int stream, const sc_gap *gap) {
    /* A holder that the CUT named, and now and then another survivor: where gaps are more than the table holds, one
     * entry stands for ranges of several holders. */
    if (gap->holder >= 0) {
        if (gap->tries % 3 != 2) return e->peers[gap->holder];
        for (uint32_t i = 0; i < e->view.n; i++) {
            sc_peer *peer = e->peers[(gap->tries / 3 + i) % e->view.n];
            if (peer != sc_self(e) && peer != owner && !peer->lost) return peer;
        }
        return e->peers[gap->holder];
    }
    int gone = owner->lost || owner->suspected || sc_is_mute(owner);
    if (stream != SC_STREAM_GROUP || (!gone && (gap->tries < 3 || gap->tries % 2 == 0))) return gone ? NULL : owner;
    for (uint32_t i = 0; i < e->view.n; i++) {
        sc_peer *peer = e->peers[(gap->tries + i) % e->view.n];
        if (peer == sc_self(e) || peer == owner || peer->lost || peer->suspected || sc_is_mute(peer)) continue;
        if (peer->digest[owner->rank].received >= gap->lo) return peer;
    }
    return gone ? NULL : owner;
}

static void nak_stream(sc_engine *e, sc_peer *owner, int stream, int64_t now) {
    sc_rx_stream *rx = sc_rx_of(owner, stream);
    for (uint32_t i = 0; i < rx->n_gaps;) {
        if (rx->gaps[i].due > now) {
            i++;
            continue;
        }
        sc_peer *target = nak_target(e, owner, stream, &rx->gaps[i]);
        uint64_t ranges[2 * SC_NAK_RANGES_MAX];
        uint32_t n = 0;
        /* All that is due now and has the same target goes into one NAK. */
        for (; i < rx->n_gaps && n < SC_NAK_RANGES_MAX; i++) {
            sc_gap *gap = &rx->gaps[i];
            if (gap->due > now) continue;
            if (nak_target(e, owner, stream, gap) != target) break;
            gap->tries++;
            gap->asked = 1;
            gap->due = now + gap->wait + (int64_t)(sc_random(e) % (uint64_t)(gap->wait / 4 + 1));
            gap->wait = gap->wait * 2 < e->config.nak_backoff_ns_max ? gap->wait * 2 : e->config.nak_backoff_ns_max;
            uint64_t hi =
                gap->hi < rx->first + e->config.ring_packets ? gap->hi : rx->first + e->config.ring_packets - 1;
            uint64_t lo = 0;
            for (uint64_t seqno = gap->lo; seqno <= hi + 1 && n < SC_NAK_RANGES_MAX; seqno++) {
                int missing = seqno <= hi && !(rx->packets && sc_rx_at(e, rx, seqno)->p);
                if (missing && !lo) lo = seqno;
                if (!missing && lo) {
                    ranges[2 * n] = lo;
                    ranges[2 * n++ + 1] = seqno - 1;
                    lo = 0;
                }
            }
        }
        if (!n || !target) continue;
        uint8_t *p = sc_out_new(e, SC_LANE_UNICAST, &target->address, SC_TYPE_NAK, SC_NAK_LEN(n));
        if (!p) return;
        if (sc_of_pair((uint64_t)stream)) sc_put_view_tag(p, owner->pair);
        sc_put_nak_owner(p, owner->id);
        sc_put_nak_stream(p, (uint32_t)stream);
        sc_put_nak_n(p, n);
        for (uint32_t k = 0; k < n; k++) {
            sc_put_nak_lo(p, k, ranges[2 * k]);
            sc_put_nak_hi(p, k, ranges[2 * k + 1]);
        }
        e->counters.naks_sent++;
    }
}

void sc_rx_naks(sc_engine *e, int64_t now) {
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank) continue;
        /* Between START and CUT nothing of the lost is asked for; the CUT says what is to be fetched from whom. */
        if (peer->group.n_gaps && (!peer->lost || e->cut_set == SC_CUT_CURRENT))
            nak_stream(e, peer, SC_STREAM_GROUP, now);
        if (peer->lost) continue;
        if (peer->unicast.n_gaps) nak_stream(e, peer, SC_STREAM_UNICAST, now);
        if (peer->forward.n_gaps) nak_stream(e, peer, SC_STREAM_FORWARD, now);
        if (peer->state.n_gaps) nak_stream(e, peer, SC_STREAM_STATE, now);
    }
}

int64_t sc_rx_deadline(const sc_engine *e) {
    int64_t due = SC_NEVER;
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (peer->lost && e->cut_set != SC_CUT_CURRENT) continue;
        for (int s = SC_STREAM_GROUP; s <= SC_STREAM_STATE; s++) {
            const sc_rx_stream *rx = sc_rx_of(peer, s);
            if (peer->lost && s != SC_STREAM_GROUP) continue;
            for (uint32_t i = 0; i < rx->n_gaps; i++)
                if (rx->gaps[i].due < due) due = rx->gaps[i].due;
        }
    }
    return due;
}
