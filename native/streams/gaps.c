/* Gaps of the receive rings, their timers, and the NAKs that request missing packets. */
#include "engine/internal.h"

static int64_t when(const sc_rx_stream *rx, int32_t holder, int64_t due) {
    return holder < 0 && !sc_rx_requests_by_timer(rx) ? SC_NEVER : due;
}

void sc_rx_gap_add(sc_engine *e, sc_rx_stream *rx, uint64_t lo, uint64_t hi, int64_t due, int32_t holder) {
    if (rx->n_gaps == SC_GAPS_MAX) { /* the last gap grows; its NAK leaves out the packets held inside */
        e->counters->gaps_full++;
        sc_gap *last = &rx->gaps[SC_GAPS_MAX - 1];
        if (hi > last->hi) last->hi = hi;
        return;
    }
    rx->gaps[rx->n_gaps++] = (sc_gap){.lo = lo,
                                      .hi = hi,
                                      .due = when(rx, holder, due),
                                      .wait = e->config.nak_backoff_ns_min,
                                      .tries = 0,
                                      .holder = holder};
}

static void gap_remove(sc_rx_stream *rx, uint32_t i) {
    rx->n_gaps--;
    memmove(&rx->gaps[i], &rx->gaps[i + 1], (rx->n_gaps - i) * sizeof *rx->gaps);
}

/* Part of a gap arrived: answers are under way, so the rest is requested only when they stop, but then soon. */
static void gap_fill(sc_engine *e, sc_rx_stream *rx, uint64_t seqno, int64_t now) {
    for (uint32_t i = 0; i < rx->n_gaps; i++) {
        sc_gap *gap = &rx->gaps[i];
        if (seqno < gap->lo || seqno > gap->hi) continue;
        gap->wait = e->config.nak_backoff_ns_min;
        gap->due = when(rx, gap->holder, now + gap->wait);
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

void sc_gaps_prune(sc_rx_stream *rx) {
    for (uint32_t i = rx->n_gaps; i-- > 0;)
        if (rx->gaps[i].hi < rx->next) gap_remove(rx, i);
}

/* The sender has sent up to `highest`: packets beyond `known` are missing. They are requested at `due`. */
void sc_rx_known(sc_engine *e, sc_rx_stream *rx, uint64_t highest, int64_t due) {
    if (highest <= rx->known || highest > rx->limit) return;
    /* Packets beyond the ring are not requested: a sender within its window is never that far ahead. */
    if (highest >= rx->first + e->config.ring_packets) highest = rx->first + e->config.ring_packets - 1;
    if (highest <= rx->known) return;
    sc_rx_gap_add(e, rx, rx->known + 1, highest, due, -1);
    rx->known = highest;
}

int sc_gaps_asked(const sc_rx_stream *rx, uint64_t seqno) {
    for (uint32_t i = 0; i < rx->n_gaps; i++)
        if (seqno >= rx->gaps[i].lo && seqno <= rx->gaps[i].hi) return rx->gaps[i].asked;
    return 0;
}

/* The packet `seqno` arrived: unknown packets before this one are missing. */
void sc_gaps_came(sc_engine *e, sc_rx_stream *rx, uint64_t seqno, int64_t now) {
    if (seqno <= rx->known) {
        if (rx->n_gaps) gap_fill(e, rx, seqno, now);
        return;
    }
    if (seqno > rx->known + 1) sc_rx_gap_add(e, rx, rx->known + 1, seqno - 1, now + e->config.nak_delay_ns, -1);
    rx->known = seqno;
}

/* After a CUT only the named packets are requested. */
void sc_gaps_cut(sc_rx_stream *rx, uint64_t limit) {
    rx->limit = limit;
    rx->n_gaps = 0;
}

void sc_gaps_fetch(sc_engine *e, sc_rx_stream *rx, uint64_t lo, uint64_t hi, uint32_t holder) {
    if (lo < rx->next) lo = rx->next;
    if (hi > rx->limit) hi = rx->limit;
    if (lo > hi) return;
    sc_rx_gap_add(e, rx, lo, hi, e->now, (int32_t)holder);
    if (hi > rx->known) rx->known = hi;
}

/* The core knows that `holder` has [lo, hi]: the gaps that they touch are requested there, now. */
void sc_gaps_ask(sc_engine *e, sc_rx_stream *rx, uint64_t lo, uint64_t hi, uint32_t holder) {
    for (uint32_t i = 0; i < rx->n_gaps; i++) {
        sc_gap *gap = &rx->gaps[i];
        if (gap->hi < lo || gap->lo > hi) continue;
        gap->holder = (int32_t)holder;
        gap->due = e->now;
        gap->wait = e->config.nak_backoff_ns_min;
        gap->tries = 0;
    }
}

/* ---- NAKs ---------------------------------------------------------------------------------------------------- */

static int may_hold(sc_engine *e, const sc_peer *peer, const sc_peer *owner) {
    return peer != sc_self(e) && peer != owner && !peer->cut.lost;
}

/* A holder that the CUT named, and now and then another survivor: if there are more gaps than the table holds, one
 * entry stands for ranges of several holders. */
static sc_peer *named_target(sc_engine *e, const sc_peer *owner, const sc_gap *gap) {
    for (uint32_t i = 0; i < e->view.n && gap->tries % 3 == 2; i++) {
        sc_peer *peer = e->peers[(gap->tries / 3 + i) % e->view.n];
        if (may_hold(e, peer, owner)) return peer;
    }
    return e->peers[gap->holder];
}

/* Neither its multicasts nor its answers arrive. */
static int is_mute(const sc_peer *peer) { return peer->detect.silent && peer->detect.doubted; }

/* The sender first. After its end, or every second time without an answer, a member whose heartbeat says that it
 * received more (which does not prove that it holds this very packet: two members that lack it must not ask each other
 * for ever). */
static sc_peer *nak_target(sc_engine *e, sc_peer *owner, int stream, const sc_gap *gap) {
    if (gap->holder >= 0) return named_target(e, owner, gap);
    int gone = owner->cut.lost || owner->detect.suspected || is_mute(owner);
    if (stream != SC_STREAM_GROUP || (!gone && (gap->tries < 3 || gap->tries % 2 == 0))) return gone ? NULL : owner;
    for (uint32_t i = 0; i < e->view.n; i++) {
        sc_peer *peer = e->peers[(gap->tries + i) % e->view.n];
        if (!may_hold(e, peer, owner) || peer->detect.suspected || is_mute(peer)) continue;
        if (peer->digest[owner->rank].received >= gap->lo) return peer;
    }
    return gone ? NULL : owner;
}

typedef struct {
    uint64_t pairs[2 * SC_NAK_RANGES_MAX]; /* lo, hi */
    uint32_t n;
} ranges;

/* The missing ranges of a gap: packets inside it may be held, and the gap may reach beyond the ring. */
static void add_missing(const sc_engine *e, const sc_rx_stream *rx, const sc_gap *gap, ranges *out) {
    out->n += (uint32_t)sc_rx_ranges(e, rx, 0, gap->lo, gap->hi, UINT64_MAX, out->pairs + 2 * out->n,
                                     SC_NAK_RANGES_MAX - out->n);
}

int64_t sc_back_off(sc_engine *e, int64_t *wait, int64_t now) {
    int64_t due = now + *wait + (int64_t)(sc_random(e) % (uint64_t)(*wait / 4 + 1));
    *wait = *wait * 2 < e->config.nak_backoff_ns_max ? *wait * 2 : e->config.nak_backoff_ns_max;
    return due;
}

static void asked(sc_engine *e, sc_gap *gap, int64_t now) {
    gap->tries++;
    gap->asked = 1;
    gap->due = sc_back_off(e, &gap->wait, now);
}

static int send_nak(sc_engine *e, const sc_peer *target, const sc_peer *owner, int stream, const ranges *missing) {
    uint8_t *p = sc_out_new(e, &target->address, SC_TYPE_NAK, SC_NAK_LEN(missing->n));
    if (!p) return 0;
    if (sc_of_pair((uint64_t)stream)) sc_put_view_tag(p, owner->pair);
    sc_put_nak_owner(p, owner->id);
    sc_put_nak_stream(p, (uint32_t)stream);
    sc_put_nak_n(p, missing->n);
    for (uint32_t k = 0; k < missing->n; k++) {
        sc_put_nak_lo(p, k, missing->pairs[2 * k]);
        sc_put_nak_hi(p, k, missing->pairs[2 * k + 1]);
    }
    e->counters->naks_sent++;
    return 1;
}

/* Everything due now with the same target goes into one NAK. */
static void nak_stream(sc_engine *e, sc_peer *owner, int stream, int64_t now) {
    sc_rx_stream *rx = sc_rx_of(owner, stream);
    for (uint32_t i = 0; i < rx->n_gaps;) {
        if (rx->gaps[i].due > now) {
            i++;
            continue;
        }
        sc_peer *target = nak_target(e, owner, stream, &rx->gaps[i]);
        ranges missing = {.n = 0};
        for (; i < rx->n_gaps && missing.n < SC_NAK_RANGES_MAX; i++) {
            sc_gap *gap = &rx->gaps[i];
            if (gap->due > now) continue;
            if (nak_target(e, owner, stream, gap) != target) break;
            asked(e, gap, now);
            add_missing(e, rx, gap, &missing);
        }
        if (missing.n && target && !send_nak(e, target, owner, stream, &missing)) return;
    }
}

void sc_rx_naks(sc_engine *e, int64_t now) {
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (r == e->view.rank) continue;
        /* Between START and CUT nothing of lost members is requested; the CUT names packets and holders. */
        if (peer->group.n_gaps && (!peer->cut.lost || e->cut.set == SC_CUT_CURRENT))
            nak_stream(e, peer, SC_STREAM_GROUP, now);
        if (peer->cut.lost) continue;
        if (peer->unicast.n_gaps) nak_stream(e, peer, SC_STREAM_UNICAST, now);
        if (peer->forward.n_gaps) nak_stream(e, peer, SC_STREAM_FORWARD, now);
        if (peer->state.n_gaps) nak_stream(e, peer, SC_STREAM_STATE, now);
    }
}

int64_t sc_rx_deadline(const sc_engine *e) {
    int64_t due = SC_NEVER;
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (peer->cut.lost && e->cut.set != SC_CUT_CURRENT) continue;
        for (int s = SC_STREAM_GROUP; s <= SC_STREAM_STATE; s++) {
            const sc_rx_stream *rx = sc_rx_of(peer, s);
            if (peer->cut.lost && s != SC_STREAM_GROUP) continue;
            for (uint32_t i = 0; i < rx->n_gaps; i++)
                if (rx->gaps[i].due < due) due = rx->gaps[i].due;
        }
    }
    return due;
}
