/* Which receiver holds our senders up. At each heartbeat we look whether our stream is out of credit, and who has taken
 * least.
 *
 * A receiver is slow if, for ENOUGH, the member was one of the few (less than half of the members) that had taken less
 * than half of the bytes in flight, each time that our senders were out of credit. If half of the members are as slow,
 * none is: the sender is fast. Other members that only send do not count. A receiver is stuck if it has taken nothing
 * for PATIENCE. Its heartbeats tell a member that a sender waits, and so a member whose messages go by way of the
 * sequencer learns for whom that one waits. */
#include "engine/internal.h"

#define ENOUGH ((int64_t)1000000000) /* of evidence */
#define PATIENCE ((int64_t)900000000) /* with a member that takes nothing */
#define LOOKS 3 /* heartbeats that either takes at least */
#define SAYS 8 /* heartbeats until the sequencer has said for whom, and was heard */
#define SECOND ((int64_t)1000000000)

static int64_t at_least(const sc_engine *e, int64_t ns, int heartbeats) {
    int64_t least = heartbeats * e->config.heartbeat_ns;
    return ns > least ? ns : least;
}

static int64_t enough(const sc_engine *e) { return at_least(e, ENOUGH, LOOKS); }

/* The sequencer may only pass on its own wait, and is given the time to say for whom. */
static int64_t patience(const sc_engine *e) {
    return e->order.own == &e->forward ? at_least(e, 2 * PATIENCE, SAYS) : at_least(e, PATIENCE, LOOKS);
}

static void report(sc_engine *e, uint64_t member, int how, uint64_t rate, int64_t took) {
    sc_event *event = sc_push_event(e, SC_EVENT_HOLDUP, member, e->view.tag, NULL, NULL, 0);
    if (!event) return;
    event->evidence = how;
    event->rate = rate;
    event->took = took;
}

static uint64_t per_second(uint64_t n, int64_t ns) { return ns > 0 ? (uint64_t)((double)n * SECOND / (double)ns) : 0; }

/* Of our group stream: has a member that took this much left half of the bytes in flight, or more? */
static int is_behind(const sc_engine *e, uint64_t consumed) {
    const sc_tx_stream *tx = &e->group;
    uint64_t charged = tx->charged_consumed;
    if (consumed != tx->consumed) charged = sc_tx_has(tx, consumed) ? sc_tx_at(tx, consumed)->charged : tx->charged;
    return charged - tx->charged_consumed < (tx->charged - tx->charged_consumed) / 2;
}

uint64_t sc_taken_by(const sc_engine *e, uint32_t rank) {
    return rank == e->view.rank ? e->credit.self : e->peers[rank]->credit.consumed;
}

/* Is this member one of a few that are behind? */
static int is_slow(const sc_engine *e, uint64_t member) {
    uint32_t behind = 0, members = 0, itself = 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (!sc_compares(e, r)) continue;
        int late = is_behind(e, sc_taken_by(e, r));
        members++;
        behind += (uint32_t)late;
        if (late && e->view.ids[r] == member) itself = 1;
    }
    return itself && 2 * behind < members;
}

/* The member for which the receiver of our forwards waits, by its own report; 0: for none. */
static uint64_t told_by_sequencer(const sc_engine *e) {
    uint32_t says = e->order.forward_to < 0 ? 0 : e->peers[e->order.forward_to]->awaits;
    return says ? e->view.ids[says - 1] : 0;
}

/* Our senders are out of credit: because of this member, as far as can be seen now? */
static int holds_up(const sc_engine *e, uint64_t member) {
    if (e->holdup.stuck) return 1;
    return e->order.own == &e->forward ? told_by_sequencer(e) == member : is_slow(e, member);
}

static void weigh(sc_engine *e, uint64_t member, int64_t more, int64_t now) {
    sc_holdup *h = &e->holdup;
    uint64_t taken = e->order.own->charged_consumed;
    h->evidence += more;
    if (h->evidence > enough(e)) h->evidence = enough(e);
    if (h->evidence < 0) h->evidence = 0;
    if (!h->named && h->evidence == enough(e)) {
        h->named = member;
        report(e, member, SC_HOLDUP_SLOW, per_second(taken - h->charged, now - h->began), 0);
    } else if (h->named && !h->evidence) {
        report(e, h->named, SC_HOLDUP_OVER, 0, now - h->began);
        h->named = 0;
    }
    if (!h->evidence) h->slowest = 0;
}

static void judge(sc_engine *e, uint64_t whose, int held, int64_t passed, int64_t now) {
    sc_holdup *h = &e->holdup;
    uint64_t member = h->named ? h->named : h->slowest;
    int holds = held && member && holds_up(e, member);
    if (member && (h->named || holds || !held)) {
        weigh(e, member, holds ? passed : -passed, now);
        return;
    }
    h->slowest = held ? whose : 0; /* now another member is behind: the evidence starts over */
    h->evidence = 0;
    h->began = now;
    h->charged = e->order.own->charged_consumed;
}

/* Nothing was taken for a long time: reported after `patience`, and after each doubling of the time. */
static void judge_stuck(sc_engine *e, uint64_t whose, int held, uint64_t mark, int64_t now) {
    sc_holdup *h = &e->holdup;
    if (!held || mark != h->mark) {
        h->mark = mark;
        h->since = now;
        h->stuck = 0;
    }
    int64_t took = now - h->since;
    if (!held || took < patience(e) || took < 2 * h->stuck) return;
    if (h->named && h->named != whose) report(e, h->named, SC_HOLDUP_OVER, 0, now - h->began);
    if (h->named != whose) h->began = h->since;
    h->named = whose;
    h->evidence = enough(e);
    h->stuck = took;
    report(e, whose, SC_HOLDUP_STUCK, 0, took);
}

/* ---- whom our senders wait for ------------------------------------------------------------------------------- */

/* Nothing more fits into the window, or the ring, until those that have taken least of our stream take more. */
static int is_full(const sc_engine *e) {
    const sc_tx_stream *tx = &e->group;
    uint64_t flight = tx->charged - tx->charged_consumed;
    return (flight && flight + sc_charge_most(tx->packet_bytes) > tx->window) || !sc_tx_has_place(e, tx);
}

/* Of our group stream: must this member take more before a packet can follow? */
static int is_waited_for(const sc_engine *e, uint32_t rank, int full) {
    const sc_tx_stream *tx = &e->group;
    if (rank == e->view.rank) return (full && e->credit.self <= tx->consumed) || sc_own_closed_full(e);
    const sc_peer *peer = e->peers[rank];
    if (!sc_counts(peer)) return 0;
    int no_room = tx->charged + sc_charge_most(tx->packet_bytes) > peer->credit.limit;
    return no_room || (full && peer->credit.consumed <= tx->consumed);
}

int sc_waited_for(const sc_engine *e, uint8_t *out) {
    uint64_t whose, mark;
    int found = 0, full = is_full(e), forwards = e->order.own == &e->forward;
    memset(out, 0, e->view.n);
    if (!e->in_view || sc_is_closing(e) || !(sc_credit_held(e, &whose, &mark) || sc_own_closed_full(e))) return 0;
    uint64_t said = forwards ? told_by_sequencer(e) : 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        out[r] = (uint8_t)(forwards ? e->view.ids[r] == (said ? said : whose) : is_waited_for(e, r, full));
        found |= out[r];
    }
    return found;
}

size_t sc_engine_stalls(const sc_engine *e, sc_stall *out) {
    uint8_t waited[SC_MEMBERS_MAX];
    size_t n = 0;
    if (!e->in_view || !sc_waited_for(e, waited)) return 0;
    for (uint32_t r = 0; r < e->view.n; r++) {
        int64_t since = e->holdup.stalled[r];
        if (waited[r]) out[n++] = (sc_stall){e->view.ids[r], since ? since : SC_NEVER};
    }
    return n;
}

/* `passed`: since the last look. Each look that finds senders waiting stands for that time, as in any sample. */
static void note_stalls(sc_engine *e, int64_t passed, int64_t now) {
    uint8_t waited[SC_MEMBERS_MAX];
    sc_waited_for(e, waited);
    for (uint32_t r = 0; r < e->view.n; r++) {
        int64_t *since = &e->holdup.stalled[r];
        *since = !waited[r] ? 0 : *since ? *since : now > 0 ? now : 1;
        if (waited[r]) e->peers[r]->waited += passed;
    }
}

/* ---- the looks ------------------------------------------------------------------------------------------------- */

static void rate(sc_engine *e, int64_t now) {
    sc_holdup *h = &e->holdup;
    if (now - h->rated < SECOND) return;
    h->rate = per_second(e->counters->messages_delivered - h->delivered, now - h->rated);
    h->delivered = e->counters->messages_delivered;
    h->rated = now;
}

void sc_holdup_look(sc_engine *e, int64_t now) {
    sc_holdup *h = &e->holdup;
    int64_t passed = now - h->looked, most = 2 * e->config.heartbeat_ns; /* time without a look is not evidence */
    uint64_t whose = 0, mark = 0, said = 0;
    const sc_peer *peer;
    passed = passed > most ? most : passed < 0 ? 0 : passed; /* threads may be late with their time */
    h->looked = now;
    rate(e, now);
    note_stalls(e, passed, now);
    int closing = sc_is_closing(e), held = !closing && sc_credit_held(e, &whose, &mark);
    if (held && e->order.own == &e->forward && (said = told_by_sequencer(e))) whose = said;
    if (!held && !closing && sc_own_closed_full(e)) { /* whatever credit this view would give */
        held = 1;
        whose = e->config.member;
        mark = e->queue.taken;
    } else if (held && e->order.own == &e->group && (peer = sc_find_peer(e, whose)) != NULL) {
        mark += peer->slow.ever.bytes; /* it may still take messages of earlier views, or of others */
    }
    if (said == e->config.member) held = 0; /* told by sc_holdup_heard */
    judge_stuck(e, whose, held && !said, mark,
                now); /* the sequencer alone knows how much of its stream each member takes */
    judge(e, whose, held, passed, now);
    if (h->awaited && now - h->awaited >= enough(e)) {
        report(e, e->config.member, SC_HOLDUP_OVER, 0, now - h->awaited_since);
        h->awaited = 0;
    }
}

/* For our heartbeats: 1 more than the rank of the member for which our senders wait; 0: for none. */
uint32_t sc_holdup_says(const sc_engine *e) {
    if (e->order.own == &e->forward) return 0; /* the sequencer, who knows, says so */
    for (uint32_t r = 0; r < e->view.n; r++)
        if (e->holdup.named == e->view.ids[r]) return r + 1;
    return 0;
}

void sc_holdup_heard(sc_engine *e, sc_peer *peer, uint32_t says, int64_t now) {
    sc_holdup *h = &e->holdup;
    peer->awaits = says;
    if (says != e->view.rank + 1) return;
    if (!h->awaited) {
        h->awaited_since = now;
        report(e, e->config.member, SC_HOLDUP_SLOW, h->rate, 0);
    }
    h->awaited = now;
}

/* A view begins. */
void sc_holdup_begin(sc_engine *e, int64_t now) {
    sc_holdup *h = &e->holdup;
    if (h->named) report(e, h->named, SC_HOLDUP_OVER, 0, now - h->began);
    if (h->awaited && h->named != e->config.member)
        report(e, e->config.member, SC_HOLDUP_OVER, 0, now - h->awaited_since);
    e->holdup = (sc_holdup){
        .looked = now, .since = now, .began = now, .rate = h->rate, .rated = h->rated, .delivered = h->delivered};
    for (uint32_t r = 0; r < e->view.n; r++) e->peers[r]->awaits = 0;
}
