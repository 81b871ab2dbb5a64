/* Receivers that are too slow (the setting `slow`). A sender looks at each heartbeat, as in holdup.c, but judges for
 * the group:
 *
 *   evidence   the time for which a receiver has held the sender at its limit, with half or more of the bytes in flight
 *              left to take, while most have taken theirs. The evidence falls four times as fast while that is not the
 * case.
 *              After slow_ns the receiver is too slow, if
 *   others     most members could take more than 16 times as much. All take at the rate of the slowest, so that rate
 *              says nothing about the others; but their heartbeats report the bytes that their applications took, and
 *              for how long they worked on these, from a batch to the next look, or to now. The bytes by the time of
 *              work are the rate at which a member could take, however long it had to wait. A member that has some of
 *              the bytes in flight left to take at more than a sixteenth of the looks is as slow in any case; a look
 *              counts for slow_ns at most, so a receiver that stops after an hour of full load, when all are busy, is
 *              named as soon. (With `skips` these looks alone count: a full queue is enough if those of most are not
 *              full, as the consequence is mild, and the sender is to wait for nobody.)
 *              Members that only send (`receive=False`) are no measure: of these the sender alone counts as one.
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

#define MUCH 16 /* times as fast as one that is too slow */
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

/* Our own application may do without its own messages, but has those of all others to take: a sender that takes nothing
 * itself does not call another one slow for that. Bytes that are taken until the next look are not left. */
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

/* At this look: is the sender too fast for half of the members? */
static int is_fast(const sc_engine *e, uint64_t flight) {
    uint32_t busy = 0, members = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (!sc_compares(e, r)) continue;
        members++;
        busy += (uint32_t)has_left(e, r, flight);
    }
    return 2 * busy >= members;
}

/* Could this member take MUCH times the bytes that `slow` has taken since its older mark, or more? */
static int could_take_more(const sc_engine *e, const sc_peer_slow *one, const sc_peer_slow *slow) {
    const sc_slow_mark *from = &slow->marks[1];
    double bytes = (double)(one->lately[0].bytes + one->lately[1].bytes);
    double ns = (double)(one->lately[0].ns + one->lately[1].ns);
    double time = (double)(e->slow.counted - from->time), took = (double)(slow->ever.bytes - from->bytes);
    return ns == 0 || bytes * time > MUCH * took * ns;
}

/* Are half of the members as slow as this one, itself included? */
static int has_company(const sc_engine *e, uint32_t rank) {
    const sc_peer_slow *slow = &e->peers[rank]->slow;
    uint32_t near = 0, members = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer_slow *one = &e->peers[r]->slow;
        if (!sc_compares(e, r)) continue;
        members++;
        near += r == rank || one->busy > 0 || (!e->config.skips && !could_take_more(e, one, slow));
    }
    return 2 * near >= members;
}

/* The marks pass whether something was taken or not: a receiver that stops is soon judged by the time since. */
static void mark(const sc_engine *e, sc_peer_slow *slow, int64_t passed) {
    int64_t now = e->slow.counted;
    if (!slow->evidence) {
        slow->marks[0] = slow->marks[1] = (sc_slow_mark){now - passed, slow->ever.bytes};
    } else if (now - slow->marks[0].time >= e->config.slow_ns) {
        slow->marks[1] = slow->marks[0];
        slow->marks[0] = (sc_slow_mark){now, slow->ever.bytes};
    }
}

static void weigh(sc_engine *e, int held, uint64_t flight, int64_t passed) {
    uint8_t waited[SC_MEMBERS_MAX] = {0};
    e->slow.counted += passed;
    if (held && !is_fast(e, flight)) sc_waited_for(e, waited);
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer *peer = e->peers[r];
        if (!is_judged(e, r)) continue;
        int holds = waited[r] && !peer->slow.loads && 2 * left_by(e, r) >= flight;
        mark(e, &peer->slow, passed);
        peer->slow.evidence = within(peer->slow.evidence + (holds ? passed : -FORGETS * passed), e->config.slow_ns);
    }
}

/* The member that is to go: of several the one that has taken least, and of these the last in rank. */
static uint32_t judge(const sc_engine *e) {
    uint32_t worst = 0;
    uint64_t most = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        const sc_peer *peer = e->peers[r];
        if (!is_judged(e, r) || peer->slow.evidence < e->config.slow_ns || left_by(e, r) < most) continue;
        if (has_company(e, r)) continue;
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
    sc_slow_took(e, sc_self(e), (sc_work){e->queue.taken, sc_worked(e, now)}, now);
    if (!e->config.slow_ns || e->order.own != tx || sc_is_closing(e)) return;
    uint64_t whose, mark, flight = tx->charged - tx->charged_consumed;
    int held = sc_credit_held(e, &whose, &mark);
    if (held) count_busy(e, flight);
    weigh(e, held, flight, passed < most ? passed : most);
    uint32_t gives_up = judge(e), before = s->gives_up;
    s->gives_up = gives_up;
    if (gives_up != before) changed(e);
}

void sc_slow_heard(sc_engine *e, sc_peer *peer, uint32_t gives_up, uint8_t flags) {
    peer->slow.loads = (flags & SC_FLAG_LOADS) != 0;
    peer->slow.only_sends = (flags & SC_FLAG_ONLY_SENDS) != 0;
    if (peer->slow.gives_up == gives_up) return;
    peer->slow.gives_up = gives_up;
    changed(e);
}

/* Only a time in which something was taken passes: a member that waits for long is judged by the time before. */
void sc_slow_took(const sc_engine *e, sc_peer *peer, sc_work ever, int64_t now) {
    sc_peer_slow *slow = &peer->slow;
    sc_work *new = &slow->lately[0], before = slow->ever;
    if (ever.bytes < before.bytes || ever.ns < before.ns) return; /* it came late */
    slow->ever = ever;
    if (!before.bytes) { /* nothing to compare with: not taken since the evidence began */
        if (ever.bytes) slow->marks[0] = slow->marks[1] = (sc_slow_mark){e->slow.counted, ever.bytes};
        return;
    }
    new->bytes += ever.bytes - before.bytes;
    new->ns += ever.ns - before.ns;
    if (!new->bytes || now - slow->since < e->config.slow_ns) return;
    slow->lately[1] = *new;
    *new = (sc_work){0, 0};
    slow->since = now;
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
    e->slow = (sc_slow){.looked = now, .counted = e->slow.counted, .taken = e->queue.taken};
    for (uint32_t r = 0; r < e->view.n; r++) {
        sc_peer_slow *slow = &e->peers[r]->slow;
        slow->evidence = lost_one ? 0 : slow->evidence;
        slow->busy = 0;
        slow->gives_up = 0;
    }
}
