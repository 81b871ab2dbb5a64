/* Congestion: a window for the path to each member. The smallest one bounds the group stream, as all wait for the
 * slowest anyway. Packets that are lost, or that wait in queues on the way, are the signs of a path with too much on
 * it. The window grows like that of CUBIC (RFC 9438), so that a group and TCP share a link; but single losses below
 * LOSS_PERCENT are repaired, and slow nothing. Everything with messages counts: the group stream, streams to single
 * members, and repeats. */
#include "engine/internal.h"

#define FIRST 10 /* packets at the beginning, as RFC 6928 */
#define FLOOR 4 /* packets always, so that losses show by those that come behind them */
#define LOSS_PERCENT 2 /* of the packets of a round trip may be lost at random; */
#define DEVIATIONS 3 /* a loss is too large from this many standard deviations above that on, */
#define LOSSES 2 /* if more packets than these are lost */
#define ROUND_PACKETS 50 /* fewer in a round trip are counted together with those of the next */
#define SMOOTHING 8 /* as in RFC 6298 */
#define SLACK_NS 1000000 /* a longer round trip than that of an empty path, with half as much again, shows a queue */
#define FORGETS 1024 /* the shortest round trip is forgotten over as many of them: paths change */
#define SHORT_NS 2000000 /* in so short a round trip packets need no pauses */
#define IDLE_TRIPS 2 /* round trips without a packet that arrives: nothing was sent, or nothing could be */
#define PART 4 /* of a round trip, after which more repeats may leave */

static uint64_t packet_of(const sc_engine *e) { return sc_charge(e->view.packet_bytes, 1); }

void sc_congestion_peer_begin(const sc_engine *e, sc_peer *peer, uint64_t base) {
    sc_peer_congestion before = peer->congestion;
    sc_peer_congestion *at = &peer->congestion;
    *at = (sc_peer_congestion){.window = FIRST * packet_of(e), .threshold = UINT64_MAX};
    if (before.window) { /* a former view has learned the path */
        at->window = sc_most(before.window, FLOOR * packet_of(e));
        at->threshold = before.threshold;
        at->most = before.most;
        at->since = before.since;
        at->looked = before.looked;
        at->smooth = before.smooth;
        at->least = before.least;
    }
    at->arrived = at->asked = base;
}

int sc_congestion_on(const sc_engine *e) {
    if (!sc_group_acknowledges(&e->config) || e->config.congestion == SC_CONGESTION_OFF || e->view.n < 2) return 0;
    return e->config.congestion == SC_CONGESTION_ON || e->config.unicast || e->detect.deaf;
}

int sc_congestion_tells(const sc_engine *e, const sc_peer *peer) {
    return sc_congestion_on(e) || (e->config.mixed && peer->detect.silent && e->config.congestion != SC_CONGESTION_OFF);
}

void sc_congestion_wider(sc_engine *e) {
    if (e->congestion.blocked) e->congestion.ready = 1;
}

/* ---- packets on the way -------------------------------------------------------------------------------------- */

static uint64_t charged_to(const sc_tx_stream *tx, uint64_t seqno) {
    return sc_tx_has(tx, seqno) ? sc_tx_at(tx, seqno)->charged : tx->charged_consumed;
}

/* How far a stream to one member has arrived there, but for gaps. Not `stable`, which stands still at a gap: each
 * further ack would count the packets behind it again. */
static uint64_t arrived(const sc_tx_stream *tx) { return sc_most(tx->arrived, tx->stable); }

/* Nothing was counted while windows bounded nothing. */
void sc_congestion_turned(sc_engine *e) {
    sc_congestion_wider(e);
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer_congestion *at = &e->peers[r]->congestion;
        at->arrived = sc_most(at->arrived, e->peers[r]->credit.acked.received);
        at->asked = sc_most(at->asked, at->arrived);
        at->passed = sc_most(at->passed, charged_to(&e->group, at->arrived));
    }
}

static uint64_t of_stream(const sc_tx_stream *tx, uint64_t passed) {
    if (!tx || !tx->packets || tx->unsent <= tx->first) return 0;
    uint64_t sent = charged_to(tx, tx->unsent - 1);
    return sent > passed ? sent - passed : 0;
}

/* Repeats to this member that are still on the way, as far as is known: after a round trip none is. */
static uint64_t repeats(const sc_peer_congestion *at, int64_t now) {
    int64_t since = now > at->again_at ? now - at->again_at : 0; /* threads may be late with their time */
    return since < at->smooth ? at->again * (uint64_t)(at->smooth - since) / (uint64_t)at->smooth : 0;
}

static uint64_t on_the_way(sc_engine *e, const sc_peer *peer, int64_t now) {
    const sc_peer_congestion *at = &peer->congestion;
    const sc_tx_stream *singly[] = {peer->unicast_tx, peer->state_tx,
                                    (int32_t)peer->rank == e->order.forward_to ? &e->forward : NULL};
    uint64_t bytes = of_stream(&e->group, at->passed);
    for (int i = 0; i < 3; i++)
        if (singly[i] && singly[i]->packets) bytes += of_stream(singly[i], charged_to(singly[i], arrived(singly[i])));
    return bytes + repeats(at, now);
}

void sc_congestion_again(sc_engine *e, sc_peer *peer, uint32_t len, int64_t now) {
    sc_peer_congestion *at = &peer->congestion;
    at->again = repeats(at, now) + sc_charge(len, len == e->view.packet_bytes);
    at->again_at = now;
}

int64_t sc_congestion_pause(const sc_engine *e, const sc_peer *peer, int64_t now) {
    const sc_peer_congestion *at = &peer->congestion;
    int full = sc_congestion_on(e) && now - at->again_at < at->smooth && at->again >= at->window;
    return full ? at->smooth / PART : 0;
}

static uint64_t room_to(sc_engine *e, const sc_peer *peer, int64_t now) {
    uint64_t bytes = on_the_way(e, peer, now);
    if (peer->congestion.window >= e->view.window_bytes) return UINT64_MAX; /* credit is the bound */
    return peer->congestion.window > bytes ? peer->congestion.window - bytes : 0;
}

uint64_t sc_congestion_room(sc_engine *e, const sc_peer *peer, int64_t now) {
    uint64_t room = UINT64_MAX;
    if (!sc_congestion_on(e) || e->cut.gate_closed || e->cut.set) return room; /* a view change waits for the rest */
    if (peer) return room_to(e, peer, now);
    for (uint32_t r = 0; r < e->view.n; r++)
        if (r != e->view.rank && sc_counts(e->peers[r])) room = sc_least(room, room_to(e, e->peers[r], now));
    return room;
}

/* Acks and requests make room; repeats are forgotten by time alone, as nobody says that they have come. */
void sc_congestion_wait(sc_engine *e, int64_t now) {
    e->counters->congestion_stalls += !e->congestion.blocked;
    e->congestion.blocked = 1;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer_congestion *at = &e->peers[r]->congestion;
        if (r == e->view.rank || !repeats(at, now)) continue;
        if (at->again_at + at->smooth < e->congestion.due) e->congestion.due = at->again_at + at->smooth;
    }
}

void sc_congestion_begin(sc_engine *e) {
    e->congestion.blocked = e->congestion.ready = 0;
    e->congestion.due = SC_NEVER;
}

void sc_congestion_tick(sc_engine *e, int64_t now) {
    if (e->congestion.due > now) return;
    e->congestion.due = SC_NEVER;
    sc_congestion_wider(e);
}

int64_t sc_congestion_deadline(const sc_engine *e) { return e->congestion.due; }

int sc_congestion_ready(const sc_engine *e) { return e->congestion.ready; }

uint64_t sc_congestion_window(const sc_engine *e) {
    uint64_t least = UINT64_MAX;
    if (!e->in_view || !sc_congestion_on(e)) return least;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (r != e->view.rank && sc_counts(peer)) least = sc_least(least, peer->congestion.window);
    }
    return least < e->view.window_bytes ? least : UINT64_MAX;
}

/* A little faster than a window per round trip, so that the window is the bound. */
int64_t sc_congestion_rate(const sc_engine *e) {
    double least = 0;
    for (uint32_t r = 0; sc_congestion_on(e) && r < e->view.n; r++) {
        const sc_peer_congestion *at = &e->peers[r]->congestion;
        if (r == e->view.rank || !sc_counts(e->peers[r]) || at->smooth < SHORT_NS) continue;
        if (at->window >= e->view.window_bytes) continue;
        double gain = at->window < at->threshold ? 2.0 : 1.25;
        double rate = gain * (double)at->window * 1e9 / (double)at->smooth;
        if (!least || rate < least) least = rate;
    }
    return (int64_t)least;
}

/* ---- growth and events --------------------------------------------------------------------------------------- */

static uint64_t cube_root(uint64_t x) {
    uint64_t root = 0;
    for (int bit = 20; bit >= 0; bit--) {
        uint64_t next = root | 1ull << bit;
        if (next * next * next <= x) root = next;
    }
    return root;
}

/* CUBIC's window at this time after the last event; its C is 0.4 and its beta 0.7. */
static double cubic(const sc_engine *e, const sc_peer_congestion *at, int64_t now) {
    double packet = (double)packet_of(e), most = (double)at->most / packet, took = (double)(now - at->since) / 1e9;
    double flat = (double)cube_root((uint64_t)(most * 0.3 / 0.4 * 1e9)) / 1e3;
    double cubes = 0.4 * (took - flat) * (took - flat) * (took - flat) + most;
    double reno = 0.7 * most + 0.53 * took * 1e9 / (double)(at->smooth + 1);
    return (cubes > reno ? cubes : reno) * packet;
}

/* The window does not grow in time in which it was not used (RFC 9438, section 5.8). */
static void leave_out(sc_peer_congestion *at, int half_full, int64_t now) {
    int64_t since = now - (at->looked > at->since ? at->looked : at->since);
    if (at->since && since > 0 && (!half_full || since > IDLE_TRIPS * at->smooth)) at->since += since;
    at->looked = now;
}

static void grow(sc_engine *e, sc_peer_congestion *at, uint64_t bytes, int64_t now) {
    if (at->window < at->threshold) {
        at->window += bytes;
    } else {
        double target = cubic(e, at, now), half = 1.5 * (double)at->window;
        if (target > half) target = half;
        if (target > (double)at->window)
            at->window += (uint64_t)((target - (double)at->window) * (double)bytes / (double)at->window) + 1;
    }
    at->window = sc_least(at->window, e->view.window_bytes);
}

static int queues(const sc_engine *e, const sc_peer_congestion *at) {
    return at->smooth > at->least + at->least / 2 + SLACK_NS + e->config.ack_delay_ns / SC_ACK_SOON;
}

static void shrink(sc_engine *e, sc_peer_congestion *at, int64_t now) {
    at->round = now;
    at->came = at->lost = 0;
    if (at->since && now - at->since < at->smooth) return; /* once in a round trip */
    e->counters->congestion_events++;
    at->most = at->window < at->most ? at->window / 20 * 17 : at->window; /* another one may need a share */
    at->window = sc_most(at->window / 10 * 7, FLOOR * packet_of(e));
    at->threshold = at->window;
    at->since = now;
}

/* Has this path lost more of so many packets than it may? With a margin that does not grow with the packets, a fast
 * path with a hundredth lost at random would seem full several times a second. */
static int too_many(uint64_t lost, uint64_t packets) {
    uint64_t may = LOSS_PERCENT * packets, all = 100 * lost; /* in hundredths of a packet */
    return lost > LOSSES && all > may && (all - may) * (all - may) >= DEVIATIONS * DEVIATIONS * 100 * may;
}

static void judge(sc_engine *e, sc_peer_congestion *at, int64_t now) {
    uint64_t all = (uint64_t)at->came + at->lost, window = at->window / packet_of(e);
    if (too_many(at->lost, sc_most(all, window))) {
        shrink(e, at, now);
    } else if (now - at->round >= at->smooth && all >= sc_least(ROUND_PACKETS, window)) {
        if (at->lost && queues(e, at)) shrink(e, at, now);
        if (all >= ROUND_PACKETS || !at->lost) {
            at->round = now;
            at->came = at->lost = 0;
        }
    }
}

/* `packets` with charges of `bytes` have left the path; `before` were on it. */
static void came(sc_engine *e, sc_peer *peer, uint64_t packets, uint64_t bytes, uint64_t before, int64_t now) {
    sc_peer_congestion *at = &peer->congestion;
    at->came += (uint32_t)packets;
    if (at->window < at->threshold && at->smooth && queues(e, at)) {
        at->threshold = at->window;
        at->most = at->window / 7 * 10; /* growth begins as after a loss at this window */
        at->since = now;
    }
    int half_full = before >= at->window / 2;
    leave_out(at, half_full, now);
    if (half_full) grow(e, at, bytes, now);
    judge(e, at, now);
    sc_congestion_wider(e);
}

static void measure(sc_peer_congestion *at, int64_t took) {
    if (took <= 0) return;
    at->smooth += at->smooth ? (took - at->smooth) / SMOOTHING : took;
    at->least += at->least ? (at->smooth - at->least) / FORGETS : took;
    if (took < at->least) at->least = took;
}

static void reached(sc_engine *e, sc_peer *peer, const sc_tx_stream *tx, uint64_t seqno, int64_t now) {
    sc_peer_congestion *at = &peer->congestion;
    if (seqno <= at->arrived) return;
    uint64_t before = on_the_way(e, peer, now), passed = sc_most(charged_to(tx, seqno), at->passed);
    uint64_t packets = seqno - at->arrived, bytes = passed - at->passed;
    at->arrived = seqno;
    at->passed = passed;
    came(e, peer, packets, bytes, before, now);
}

void sc_congestion_acked(sc_engine *e, sc_peer *peer, sc_tx_stream *tx, uint64_t received, int64_t now) {
    if (!sc_congestion_on(e)) return;
    int group = tx == &e->group;
    uint64_t known = group ? peer->congestion.arrived : arrived(tx);
    if (received <= known) return;
    if (!group) tx->arrived = received;
    if (sc_tx_has(tx, received) && !sc_tx_at(tx, received)->retransmitted_to)
        measure(&peer->congestion, now - sc_tx_at(tx, received)->sent_at);
    if (group)
        reached(e, peer, tx, received, now);
    else
        came(e, peer, received - known, charged_to(tx, received) - charged_to(tx, known), on_the_way(e, peer, now),
             now);
}

void sc_congestion_asked(sc_engine *e, sc_peer *peer, const sc_tx_stream *tx, uint64_t seqno, int64_t now) {
    if (!sc_congestion_on(e)) return;
    sc_peer_congestion *at = &peer->congestion;
    int group = tx == &e->group, known = group ? seqno <= at->asked : sc_tx_at(tx, seqno)->retransmitted_to != 0;
    if (known) return;
    if (group) at->asked = seqno;
    at->lost++;
    if (group) reached(e, peer, tx, seqno, now);
    judge(e, at, now);
    sc_congestion_wider(e);
}
