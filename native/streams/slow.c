/* Receivers that are too slow (the setting `slow`). A sender looks at each heartbeat, as in holdup.c, but judges for
 * the group:
 *
 *   evidence   the time for which a receiver has held the sender at its limit, with half or more of the bytes in flight
 *              left to take, while most have taken theirs. The evidence falls four times as fast while that is not so.
 *              After slow_ns the receiver is too slow, if
 *   others     less than half of the members are busy in more than a sixteenth of the looks, this receiver among them:
 *              packets wait at least 16 times as long for it as for most. (How fast the others could be does not show
 *              while this one holds all to its rate: one at a quarter of theirs goes, too, if its queue alone is full.)
 *              If half of them are busy, the sender is fast, and nobody is slow. A look counts for slow_ns at most, so
 *              a receiver that stops after an hour of full load, when all are busy, is named as soon.
 *   no time    is counted in which this member did not run, or the gate was closed; nor against a member that takes
 *              over the state, whose application cannot take messages yet.
 *   one        The heartbeats name one receiver, so that one is excluded at a time, and a view that has lost a member
 *              begins with no evidence: a network that makes all receivers slow in turn does not empty the group.
 *
 * The consequence is the core's decision, or else (`skips`) the receiver's own. It stays, and drops of this sender's
 * stream the oldest packets that its application has not taken, whenever more than a part of the sender's share waits:
 * they count as taken, and the sender never waits for this application again. The member receives and keeps every
 * packet as before, so stability, the cut and repairs do not change. An application that has taken everything has a
 * heartbeat's time before more is dropped, so one that keeps up again misses nothing. Skipping ends when nothing was
 * dropped for slow_ns and the packets that waited then are taken: else each stop would cost its senders slow_ns
 * again. */
#include "engine/internal.h"

#define BUSY 16 /* busy: in one of this many looks, */
#define FLIGHT 16 /* with this part of the bytes in flight left to take */
#define FORGETS 4 /* times as fast as the arrival */

/* Is this member judged? A sender does not judge itself: if its own application is slow, no other member waits. A
 * sequencer that multicasts the messages of all does. */
static int is_judged(const sc_engine *e, uint32_t rank) {
    return rank == e->view.rank ? e->order.ops->forwarding != NULL : sc_counts(e->peers[rank]);
}

static int64_t within(int64_t value, int64_t most) { return value < 0 ? 0 : value > most ? most : value; }

/* How many of the bytes in flight this member has left to take, in charged bytes. */
static uint64_t left_by(const sc_engine *e, uint32_t rank) {
    const sc_tx_stream *tx = &e->group;
    uint64_t consumed = sc_taken_by(e, rank);
    if (consumed == tx->consumed) return tx->charged - tx->charged_consumed;
    return sc_tx_has(tx, consumed) ? tx->charged - sc_tx_at(tx, consumed)->charged : 0;
}

/* The own application may do without its own messages, but has those of all others to take: a sender that takes
 * nothing itself does not call another one slow for that. Bytes that are taken until the next look are not left. */
static void look_at_self(sc_engine *e) {
    uint64_t took = e->queue.taken - e->slow.taken;
    e->slow.taken = e->queue.taken;
    e->slow.left = e->queue.bytes > took ? e->queue.bytes : 0;
}

static int has_left(const sc_engine *e, uint32_t rank, uint64_t flight) {
    uint64_t left = rank == e->view.rank ? sc_most(left_by(e, rank), e->slow.left) : left_by(e, rank);
    return left > flight / FLIGHT;
}

/* The sum of a member's looks, up for one in which it is busy, and down by less for others: above 0 if one in BUSY
 * is. */
static void count_busy(sc_engine *e, uint64_t flight) {
    int64_t looks = e->config.slow_ns / e->config.heartbeat_ns;
    for (uint32_t r = 0; r < e->view.n; r++) {
        int64_t *busy = &e->peers[r]->slow.busy;
        *busy = within(*busy + (has_left(e, r, flight) ? BUSY - 1 : -1), looks > BUSY ? looks : BUSY);
    }
}

/* Is the sender too fast for half of the members? `flight` 0: in many looks, else in this one. */
static int is_fast(const sc_engine *e, uint64_t flight) {
    uint32_t busy = 0, members = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (r != e->view.rank && !sc_counts(e->peers[r])) continue;
        members++;
        busy += flight ? has_left(e, r, flight) : e->peers[r]->slow.busy > 0;
    }
    return 2 * busy >= members;
}

static void weigh(sc_engine *e, int held, uint64_t flight, int64_t passed) {
    uint8_t waited[SC_MEMBERS_MAX] = {0};
    if (held && !is_fast(e, flight)) sc_waited_for(e, waited);
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (!is_judged(e, r)) continue;
        int holds = waited[r] && !peer->slow.loads && 2 * left_by(e, r) >= flight;
        peer->slow.evidence = within(peer->slow.evidence + (holds ? passed : -FORGETS * passed), e->config.slow_ns);
    }
}

/* The member that is to go: of several the one that has taken least, and of these the last in rank. */
static uint32_t judge(const sc_engine *e) {
    uint32_t worst = 0;
    uint64_t most = 0;
    if (is_fast(e, 0)) return 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (!is_judged(e, r) || peer->slow.evidence < e->config.slow_ns || left_by(e, r) < most) continue;
        worst = r + 1;
        most = left_by(e, r);
    }
    return worst;
}

static void changed(sc_engine *e) {
    if (!e->config.skips) sc_push_event(e, SC_EVENT_TOO_SLOW, 0, e->view.tag, NULL, NULL, 0);
}

/* ---- looks and heartbeats -------------------------------------------------------------------------------------- */

void sc_slow_look(sc_engine *e, int64_t now) {
    sc_slow *s = &e->slow;
    const sc_tx_stream *tx = &e->group;
    int64_t passed = now - s->looked, most = 2 * e->config.heartbeat_ns; /* time without a look is not evidence */
    s->looked = now;
    look_at_self(e);
    if (!e->config.slow_ns || e->order.own != tx || sc_is_closing(e)) return;
    uint64_t whose, mark, flight = tx->charged - tx->charged_consumed;
    int held = sc_credit_held(e, &whose, &mark);
    if (held) count_busy(e, flight);
    weigh(e, held, flight, passed < most ? passed : most);
    uint32_t gives_up = judge(e), before = s->gives_up;
    s->gives_up = gives_up;
    if (gives_up != before) changed(e);
}

void sc_slow_heard(sc_engine *e, sc_peer *peer, uint32_t gives_up, int loads) {
    peer->slow.loads = loads;
    if (peer->slow.gives_up == gives_up) return;
    peer->slow.gives_up = gives_up;
    changed(e);
}

/* By rank, whether a member that is trusted calls this one too slow. */
size_t sc_engine_too_slow(const sc_engine *e, uint64_t *ids) {
    size_t n = 0;
    for (uint32_t r = 0; e->in_view && r < e->view.n; r++) {
        int named = e->slow.gives_up == r + 1;
        for (uint32_t by = 0; by < e->view.n; by++)
            named |= by != e->view.rank && !e->peers[by]->detect.suspected && e->peers[by]->slow.gives_up == r + 1;
        if (named) ids[n++] = e->view.ids[r];
    }
    return n;
}

/* A view begins; `lost_one`: a member of the one before is gone. */
void sc_slow_begin(sc_engine *e, int lost_one, int64_t now) {
    e->slow = (sc_slow){.looked = now, .taken = e->queue.taken};
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer_slow *slow = &e->peers[r]->slow;
        *slow = (sc_peer_slow){.evidence = lost_one ? 0 : slow->evidence, .loads = slow->loads};
    }
}
