/* The grant mechanism (the older scheme that SEQ-01 contrasts): members multicast their packets themselves, each with a
 * place in the one order of the view, which the sequencer grants on request. Members deliver in the order of the
 * places.
 *
 * A member asks for places for packets that are packed; they are transmitted when they have one. So a lone message
 * takes one round trip to the sequencer longer than with the order fifo. Packets that were packed during a round trip
 * share the next one, and a member that packs more during each asks for that many places ahead, as long as nobody else
 * sends. A member soon gives back unused places by a record in its stream, because nothing behind them can be
 * delivered. There is one request at a time, repeated until the answer, and the sequencer gives a repeated request the
 * same answer (E-08).
 *
 * A sound member uses its places, or gives them back, within a millisecond. One that does neither would hold up
 * everyone's messages until the end of its membership, so the sequencer keeps track of who holds the next place, and
 * reports that member after suspect_ns_max.
 *
 * The cut closes holes: packets up to the cut are delivered in the order of their places, then by (rank, seqno) those
 * without one, because the gate closed first. So places of a member that crashed block the others no longer than until
 * the view changes, nothing is sent again, and a message is delivered in the view of its sending, whoever falls. */
#include "engine/internal.h"
#include "order/record.h"

/* An unused place is given back after this long. */
#define UNUSED_NS 500000
#define AHEAD_MAX 256
/* A member asks for places ahead once nobody else has sent for this long. */
#define ALONE_NS 50000000
/* Descriptors for records of places: of two ranges in hand, and of an answer that is under way. */
#define VOIDS_MAX 4u
#define REQUEST_MAX 4096u
#define ANSWERS_MAX 512u /* with places that are not past; beyond this many, requests are not answered */

typedef struct {
    uint64_t first, end;
} places;

typedef struct {
    uint64_t number, first;
    uint32_t count;
} answer;

typedef struct {
    places of;
    uint32_t rank;
} granted_places;

typedef struct {
    uint64_t place_next, global_next; /* of the next packet, and message, to be delivered */
    uint64_t own_next; /* seqno of the next own packet to be delivered */
    uint32_t last; /* rank of the sender of the packet delivered last: often the owner of the next place too */
    /* Members. */
    places hand[2]; /* granted and not used, in order */
    uint64_t number; /* of the newest request */
    uint32_t count;
    int asks; /* no answer yet */
    int64_t ask_due, ask_wait;
    uint32_t packed; /* own packets since the newest request */
    uint32_t ahead; /* packets packed during the last round trip */
    int64_t others_at; /* when a packet of another member was delivered last */
    int used; /* a place, since `unused_due` was set */
    int64_t unused_due;
    sc_sharing sharing; /* holds the records */
    /* The sequencer. */
    uint64_t granted; /* the next place to be granted */
    answer answers[SC_MEMBERS_MAX]; /* the newest, by rank */
    granted_places open[ANSWERS_MAX]; /* a queue of the answers whose places are not past, in order */
    uint32_t open_first, n_open;
    uint64_t awaited; /* the next place, if another member's */
    int64_t awaited_due;
} granting;

static void begin(sc_engine *e) {
    *(granting *)e->order.state = (granting){.others_at = -ALONE_NS,
                                             .place_next = 1,
                                             .global_next = 1,
                                             .granted = 1,
                                             .awaited_due = SC_NEVER,
                                             .own_next = e->view.base[e->view.rank] + 1};
    e->order.own = &e->group;
    e->order.spare = VOIDS_MAX;
}

/* ---- delivery ------------------------------------------------------------------------------------------------ */

/* The next packet of this member that is not delivered; NULL: not here. */
static const uint8_t *front(const sc_engine *e, uint32_t rank) {
    const granting *s = e->order.state;
    const sc_rx_stream *rx = &e->peers[rank]->group;
    if (rank == e->view.rank) return s->own_next < e->group.next ? sc_tx_at(&e->group, s->own_next)->p : NULL;
    return rx->queued < rx->next ? sc_rx_at(e, rx, rx->queued)->p : NULL;
}

/* Its place; 0: not here, or without a place. */
static uint64_t place_of(const sc_engine *e, uint32_t rank) {
    const uint8_t *p = front(e, rank);
    return p ? sc_get_place(p) : 0;
}

static void pass_own(sc_engine *e, const uint8_t *p, int record) {
    granting *s = e->order.state;
    uint64_t seqno = s->own_next++;
    if (!record) sc_queue_own(e, p, sc_tx_at(&e->group, seqno)->len, seqno, seqno, s->global_next);
}

static int pass_of_peer(sc_engine *e, sc_peer *peer, int record) {
    granting *s = e->order.state;
    sc_rx_stream *rx = &peer->group;
    if (!record) return sc_rx_deliver(e, peer, peer->rank, rx->queued, s->global_next);
    uint32_t len = sc_rx_at(e, rx, rx->queued)->len;
    sc_rx_skip(rx);
    sc_ack_consumed(e, peer, SC_STREAM_GROUP, len, e->now);
    return 1;
}

/* Delivers the next packet of this member, or passes over its record. 0 without memory. */
static int pass(sc_engine *e, uint32_t rank) {
    granting *s = e->order.state;
    const uint8_t *p = front(e, rank);
    int record = sc_get_type(p) == SC_TYPE_RECORD;
    uint32_t count = record ? sc_get_record_count(p, 0) : 1, messages = record ? 0 : sc_messages_ending(p);
    if (rank == e->view.rank)
        pass_own(e, p, record);
    else if (!pass_of_peer(e, e->peers[rank], record))
        return 0;
    s->place_next += count;
    s->global_next += messages;
    if (rank != e->view.rank && !record) s->others_at = e->now;
    return 1;
}

/* Finds the sender of the packet with the next place. 0: not here. */
static int find_next(sc_engine *e) {
    granting *s = e->order.state;
    if (place_of(e, s->last) == s->place_next) return 1;
    for (uint32_t r = 0; r < e->view.n; r++) {
        if (place_of(e, r) != s->place_next) continue;
        s->last = r;
        return 1;
    }
    return 0;
}

/* No place is granted twice: a packet with a past place does not come from its sender. */
static void refuse_past(sc_engine *e, uint32_t rank) {
    const granting *s = e->order.state;
    uint64_t place = place_of(e, rank);
    if (rank == e->view.rank || !place || place >= s->place_next) return;
    e->counters->drop_field++;
    sc_rx_refuse(e, &e->peers[rank]->group);
}

static void deliver(sc_engine *e) {
    const granting *s = e->order.state;
    while (find_next(e)) {
        uint32_t rank = s->last;
        if (!pass(e, rank)) return;
        refuse_past(e, rank);
    }
}

static void advance(sc_engine *e, sc_peer *peer) {
    const granting *s = e->order.state;
    refuse_past(e, peer->rank);
    if (place_of(e, peer->rank) == s->place_next) deliver(e);
}

/* ---- own packets --------------------------------------------------------------------------------------------- */

static uint64_t count_of(places each) { return each.end - each.first; }
static uint64_t in_hand(const granting *s) { return count_of(s->hand[0]) + count_of(s->hand[1]); }

static uint64_t take_place(granting *s) {
    if (!count_of(s->hand[0])) {
        s->hand[0] = s->hand[1];
        s->hand[1] = (places){0};
    }
    if (!count_of(s->hand[0])) return 0;
    s->used = 1;
    return s->hand[0].first++;
}

static void packed(sc_engine *e, sc_tx_stream *tx, sc_tx_packet *packet) {
    granting *s = e->order.state;
    packet->own = tx->next - 1;
    sc_own_packet(e, packet->own, packet->messages);
    s->packed++;
    e->counters->stamped += (uint64_t)sc_is_sequencer(e);
    uint64_t place = sc_is_sequencer(e) ? s->granted++ : take_place(s);
    if (!place) {
        e->order.held++;
        return;
    }
    sc_put_place(packet->p, place);
    deliver(e);
}

/* Packets that wait get the places that have come. */
static void place_held(sc_engine *e) {
    granting *s = e->order.state;
    while (e->order.held && in_hand(s)) {
        const sc_tx_packet *packet = sc_tx_at(&e->group, e->group.next - e->order.held--);
        e->order.held_bytes -= packet->len < e->order.held_bytes ? packet->len : e->order.held_bytes;
        sc_put_place(packet->p, take_place(s));
    }
    deliver(e);
}

/* Own packets up to this seqno are ordered. */
static uint64_t ordered(const sc_engine *e) { return ((granting *)e->order.state)->own_next - 1; }

/* ---- requests ------------------------------------------------------------------------------------------------ */

static int say(sc_engine *e, const sc_peer *to, uint8_t type, const answer *what) {
    uint8_t *p = sc_out_new(e, &to->address, type, SC_GRANT_LEN);
    if (!p) return 0;
    sc_put_grant_number(p, what->number);
    sc_put_grant_count(p, what->count);
    sc_put_grant_place(p, what->first);
    return 1;
}

static void say_want(sc_engine *e, int64_t now) {
    granting *s = e->order.state;
    say(e, e->peers[e->view.sequencer], SC_TYPE_WANT, &(answer){.number = s->number, .count = s->count});
    s->ask_due = sc_back_off(e, &s->ask_wait, now);
    e->counters->wants_sent++;
}

/* A new request: for waiting packets, and, while nobody else sends, for those that will probably be packed until the
 * answers to this request and the next. Other senders would have to wait for each place that is not used at once. */
static void want(sc_engine *e, int64_t now) {
    granting *s = e->order.state;
    uint64_t hand = in_hand(s), ahead = now - s->others_at < ALONE_NS ? 0 : s->ahead, count = e->order.held + 2 * ahead;
    if (count_of(s->hand[1]) || (!e->order.held && (!s->packed || hand >= ahead))) return;
    s->number++;
    s->count = (uint32_t)(count - hand < REQUEST_MAX ? count - hand : REQUEST_MAX);
    s->asks = 1;
    s->packed = 0;
    s->ask_wait = e->config.nak_backoff_ns_min;
    say_want(e, now);
}

/* Places for all held packets are requested: nothing needs to be transmitted before they are granted. */
static void count_held(sc_engine *e) {
    e->order.held_bytes = 0;
    for (uint64_t seqno = e->group.next - e->order.held; seqno < e->group.next; seqno++)
        e->order.held_bytes += sc_tx_at(&e->group, seqno)->len;
}

/* ---- unused places ------------------------------------------------------------------------------------------- */

/* 0 without credit or memory. */
static int put_void(sc_engine *e, places each) {
    uint8_t p[SC_RECORD_LEN(1)] = {0};
    granting *s = e->order.state;
    if (!sc_tx_may_insert(e, &e->group, sizeof p, SC_RECORD_RESERVE(e->group.window))) return 0;
    sc_put_place(p, each.first);
    sc_put_record_rank(p, 0, (uint16_t)e->view.rank);
    sc_put_record_count(p, 0, (uint16_t)count_of(each));
    if (!sc_record_put(e, &s->sharing, p, 1)) return 0;
    e->counters->places_void += count_of(each);
    return 1;
}

static void give_back(sc_engine *e, int64_t now) {
    granting *s = e->order.state;
    if (!in_hand(s) || now < s->unused_due) return;
    s->unused_due = now + UNUSED_NS;
    if (s->used) {
        s->used = 0;
        return;
    }
    sc_tx_close(e, &e->group); /* owner of the first of them */
    s->ahead = 0;
    for (int i = 0; i < 2; i++) {
        if (!count_of(s->hand[i])) continue;
        if (!put_void(e, s->hand[i])) break;
        s->hand[i] = (places){0};
    }
    deliver(e);
}

/* ---- places of others ---------------------------------------------------------------------------------------- */

static void note_granted(granting *s, uint32_t rank, const answer *what) {
    s->open[(s->open_first + s->n_open++) % ANSWERS_MAX] =
        (granted_places){{what->first, what->first + what->count}, rank};
}

/* Reports the member that holds the next place for too long. */
static void await_place(sc_engine *e, int64_t now) {
    granting *s = e->order.state;
    for (; s->n_open && s->open[s->open_first].of.end <= s->place_next; s->n_open--)
        s->open_first = (s->open_first + 1) % ANSWERS_MAX;
    const granted_places *next = &s->open[s->open_first];
    if (!s->n_open || next->of.first > s->place_next) {
        s->awaited = 0;
        s->awaited_due = SC_NEVER;
    } else if (s->awaited != s->place_next) {
        s->awaited = s->place_next;
        s->awaited_due = now + e->config.suspect_ns_max;
    } else if (now >= s->awaited_due) {
        s->awaited_due = SC_NEVER;
        sc_push_event(e, SC_EVENT_SLOW, e->view.ids[next->rank], e->view.tag, NULL, NULL, 0);
    }
}

/* A record gives credit as soon as the application has taken the earlier own packets. */
static void settle(sc_engine *e, int64_t now) {
    granting *s = e->order.state;
    if (e->queue.own_bytes == e->queue.closed_bytes) sc_credit_self(e, s->own_next - 1);
    if (e->cut.gate_closed) return;
    if (sc_is_sequencer(e)) {
        await_place(e, now);
        return;
    }
    give_back(e, now);
    if (!s->asks)
        want(e, now);
    else if (now >= s->ask_due)
        say_want(e, now);
    count_held(e);
}

static int64_t deadline(const sc_engine *e) {
    const granting *s = e->order.state;
    int64_t due = s->asks ? s->ask_due : SC_NEVER;
    if (e->cut.gate_closed) return SC_NEVER;
    if (sc_is_sequencer(e)) return s->awaited_due;
    return in_hand(s) && s->unused_due < due ? s->unused_due : due;
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

/* Each request has a number one higher than the one before; its answer shows that the one before was answered. */
static int answer_want(sc_engine *e, const sc_peer *peer, const uint8_t *p) {
    granting *s = e->order.state;
    answer *last = &s->answers[peer->rank];
    uint64_t number = sc_get_grant_number(p);
    uint32_t count = sc_get_grant_count(p);
    if (!sc_is_sequencer(e) || number > last->number + 1 || count > REQUEST_MAX) return 0;
    if (number <= last->number) e->counters->packets_duplicate++;
    if (number < last->number || e->cut.gate_closed) return 1;
    if (number > last->number && s->n_open == ANSWERS_MAX) return 1; /* to be repeated */
    if (number > last->number) {
        *last = (answer){.number = number, .count = count, .first = s->granted};
        note_granted(s, peer->rank, last);
        s->granted += count;
        e->counters->stamped += count;
    }
    say(e, peer, SC_TYPE_GRANT, last);
    return 1;
}

static int take_grant(sc_engine *e, const sc_peer *peer, const uint8_t *p, int64_t now) {
    granting *s = e->order.state;
    places got = {sc_get_grant_place(p), sc_get_grant_place(p) + sc_get_grant_count(p)};
    if (peer->rank != (uint32_t)e->view.sequencer || sc_get_grant_number(p) > s->number) return 0;
    if (!s->asks || sc_get_grant_number(p) != s->number) {
        e->counters->packets_duplicate++;
        return 1;
    }
    if (count_of(got) != s->count || got.first < s->place_next || got.first < s->hand[0].end) return 0;
    if (e->cut.gate_closed) return 1;
    s->asks = 0;
    s->ahead = s->packed < AHEAD_MAX ? s->packed : AHEAD_MAX;
    s->hand[count_of(s->hand[0]) != 0] = got;
    s->used = 0;
    s->unused_due = now + UNUSED_NS;
    place_held(e);
    return 1;
}

static void hear(sc_engine *e, sc_peer *peer, const uint8_t *p, int64_t now) {
    uint8_t type = sc_get_type(p);
    if (type == SC_TYPE_WANT ? answer_want(e, peer, p) : type == SC_TYPE_GRANT && take_grant(e, peer, p, now)) return;
    e->counters->drop_field++;
}

/* ---- the others ---------------------------------------------------------------------------------------------- */

static int accepts(const sc_engine *e, const sc_peer *peer, int stream, const uint8_t *p) {
    (void)e;
    if (stream != SC_STREAM_GROUP || sc_get_type(p) != SC_TYPE_RECORD) return stream == SC_STREAM_GROUP;
    return sc_get_pieces(p) == 1 && sc_get_record_rank(p, 0) == peer->rank && sc_get_place(p);
}

/* ---- the end of the view ------------------------------------------------------------------------------------- */

/* The member whose next packet has the lowest place; n: there is none. */
static uint32_t lowest(const sc_engine *e) {
    uint64_t least = UINT64_MAX;
    uint32_t rank = e->view.n;
    for (uint32_t r = 0; r < e->view.n; r++) {
        uint64_t place = place_of(e, r);
        if (!place || place >= least) continue;
        least = place;
        rank = r;
    }
    return rank;
}

/* The packets that follow have no place, or one after a hole: a member that fell may have delivered something else
 * there. */
static void own_order(sc_engine *e) {
    for (uint32_t r = 0; r < e->view.n; r++)
        if (e->cut.fell[r]) sc_queue_transitional(e);
}

static void finish(sc_engine *e) {
    granting *s = e->order.state;
    for (uint32_t r = lowest(e); r < e->view.n; r = lowest(e)) {
        if (place_of(e, r) != s->place_next) own_order(e);
        s->place_next = place_of(e, r);
        if (!pass(e, r)) return;
    }
    own_order(e);
    for (uint32_t r = 0; r < e->view.n; r++)
        while (front(e, r) && pass(e, r)) {}
}

static const sc_order_work work = {.settle = settle, .deadline = deadline};

const sc_order_ops sc_order_grant = {
    .name = "grant",
    .state_bytes = sizeof(granting),
    .begin = begin,
    .packed = packed,
    .accepts = accepts,
    .advance = advance,
    .finish = finish,
    .work = &work,
    .fits = sc_has_sequencer,
    .ordered = ordered,
    .hear = hear,
};
