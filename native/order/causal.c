/* Causal order: a packet is delivered after everything that its sender had delivered before closing the packet, and
 * concurrent packets in any order. Members multicast their packets themselves.
 *
 * The needs of a packet stand in a record before it, in the same stream: for each member of whose stream the sender has
 * delivered more since its last record, how many packets. So the records of a sender, one after another, are the vector
 * of the seqnos delivered there, and a sender that has delivered nothing new sends none.
 *
 * A packet delivered here counts as delivered to the application, though perhaps still in the delivery queue: a packet
 * waits for too much rather than for too little.
 *
 * The cut delivers everything before its end, in causal order. A packet may depend on one beyond the cut, if only
 * members that fell had that one: no survivor has it, so nothing waits. */
#include "engine/internal.h"
#include "order/record.h"

/* After this many packets of a member a record reports them, even without an own packet. */
#define TOLD_AT_LEAST 32768u
/* Descriptors for records before one packet: 2 for 127 members, and more if a stream has to wait for long. */
#define RECORDS_MAX 4u

typedef struct {
    int overdue; /* a record is due, with or without a packet */
    sc_sharing sharing; /* holds the records */
    uint64_t told[SC_MEMBERS_MAX]; /* by rank: the needs that own records named */
    uint32_t entry[SC_MEMBERS_MAX]; /* by rank: progress in the record that is next in its stream */
    uint64_t needs[]; /* by rank of the sender, and rank: the needs that its records named */
} vectors;

static void begin(sc_engine *e) {
    vectors *s = e->order.state;
    size_t row = e->view.n * sizeof(uint64_t);
    memcpy(s->told, e->view.base, row);
    for (uint32_t r = 0; r < e->view.n; r++) memcpy(s->needs + (size_t)r * e->view.n, e->view.base, row);
    e->order.own = &e->group;
    e->order.spare = RECORDS_MAX;
}

/* ---- own packets --------------------------------------------------------------------------------------------- */

/* Fills a record with deliveries that no record reports yet; returns the number of entries. */
static uint32_t fill(const sc_engine *e, uint8_t *p) {
    const vectors *s = e->order.state;
    uint32_t entries = 0;
    for (uint32_t rank = 0; rank < e->view.n && entries < SC_RECORD_ENTRIES_MAX; rank++) {
        uint64_t more = rank == e->view.rank ? 0 : e->peers[rank]->group.queued - 1 - s->told[rank];
        if (!more) continue;
        sc_put_record_rank(p, entries, (uint16_t)rank);
        sc_put_record_count(p, entries++, (uint16_t)(more < UINT16_MAX ? more : UINT16_MAX));
    }
    return entries;
}

/* Before the next own packet: records of its needs. Without memory the packet waits for too little, as a packet that is
 * being closed cannot wait itself; the rest is recorded as soon as there is memory. */
static void tell(sc_engine *e) {
    vectors *s = e->order.state;
    s->overdue = 0;
    for (uint32_t records = 0; records < RECORDS_MAX; records++) {
        uint8_t p[SC_RECORD_LEN(SC_RECORD_ENTRIES_MAX)] = {0};
        uint32_t entries = fill(e, p);
        if (!entries) return;
        if (!sc_record_put(e, &s->sharing, p, entries)) {
            e->counters->drop_slabs++;
            break;
        }
        for (uint32_t i = 0; i < entries; i++) s->told[sc_get_record_rank(p, i)] += sc_get_record_count(p, i);
        e->counters->records++;
    }
    s->overdue = 1;
}

static void closing(sc_engine *e, const sc_tx_stream *tx) {
    if (tx == &e->group) tell(e);
}

/* A record gives credit as soon as the application has taken the earlier own packets. */
static void settle(sc_engine *e, int64_t now) {
    (void)now;
    const vectors *s = e->order.state;
    if (s->overdue && !e->cut.gate_closed) {
        if (e->group.open)
            sc_tx_close(e, &e->group);
        else if (sc_tx_has_place(e, &e->group))
            tell(e);
    }
    if (e->queue.own_bytes == e->queue.closed_bytes) sc_credit_self(e, e->group.next - 1);
}

/* ---- the others ---------------------------------------------------------------------------------------------- */

static int accepts(const sc_engine *e, const sc_peer *peer, int stream, const uint8_t *p) {
    if (stream != SC_STREAM_GROUP || sc_get_type(p) != SC_TYPE_RECORD) return stream == SC_STREAM_GROUP;
    int valid = 1;
    for (uint32_t i = 0; i < sc_get_pieces(p); i++) {
        uint32_t rank = sc_get_record_rank(p, i);
        valid &= rank < e->view.n && rank != peer->rank;
    }
    return valid;
}

/* Before the cut; at the cut; for packets left over then because members claim to wait for each other. */
enum { RUNNING = 0, ENDING = 1, FORCED = 2 };

/* Is this much of the member's stream delivered here; or, at the cut, all that there ever will be? */
static int is_delivered(const sc_engine *e, uint32_t rank, uint64_t seqno, int when) {
    const sc_rx_stream *rx = &e->peers[rank]->group;
    if (when == FORCED) return 1;
    if (rank == e->view.rank) return seqno < e->group.next || when == ENDING;
    return seqno < rx->queued || (when == ENDING && rx->queued >= rx->next);
}

/* Passes over the record if all its needs are delivered. */
static int pass_record(sc_engine *e, sc_peer *peer, const sc_rx_packet *slot, int when) {
    vectors *s = e->order.state;
    for (; s->entry[peer->rank] < sc_get_pieces(slot->p); s->entry[peer->rank]++) {
        uint32_t entry = s->entry[peer->rank], rank = sc_get_record_rank(slot->p, entry);
        uint64_t *need = &s->needs[(size_t)peer->rank * e->view.n + rank];
        uint64_t seqno = *need + sc_get_record_count(slot->p, entry);
        if (!is_delivered(e, rank, seqno, when)) return 0;
        *need = seqno;
    }
    s->entry[peer->rank] = 0;
    uint32_t len = slot->len;
    sc_rx_skip(&peer->group);
    if (when == RUNNING) sc_ack_consumed(e, peer, SC_STREAM_GROUP, len, e->now);
    return 1;
}

/* Delivers as much of this stream as possible; 0: nothing. */
static int follow(sc_engine *e, sc_peer *peer, int when) {
    vectors *s = e->order.state;
    sc_rx_stream *rx = &peer->group;
    uint64_t before = rx->queued;
    while (rx->queued < rx->next) {
        const sc_rx_packet *slot = sc_rx_at(e, rx, rx->queued);
        if (sc_get_type(slot->p) == SC_TYPE_RECORD ? !pass_record(e, peer, slot, when)
                                                   : !sc_rx_deliver(e, peer, peer->rank, rx->queued, 0))
            break;
    }
    s->overdue |= rx->queued - s->told[peer->rank] > TOLD_AT_LEAST;
    return rx->queued != before;
}

/* Any delivery from one stream may release the others. */
static void follow_all(sc_engine *e, int when) {
    int more = 1;
    while (more) {
        more = 0;
        for (uint32_t r = 0; r < e->view.n; r++)
            if (r != e->view.rank) more |= follow(e, e->peers[r], when);
    }
}

static void advance(sc_engine *e, sc_peer *peer) {
    if (follow(e, peer, RUNNING)) follow_all(e, RUNNING);
}

static void finish(sc_engine *e) {
    follow_all(e, ENDING);
    follow_all(e, FORCED);
}

static const sc_order_work work = {.settle = settle, .deadline = sc_never_due};

const sc_order_ops sc_order_causal = {
    .name = "causal",
    .state_bytes = sizeof(vectors),
    .pair_bytes = sizeof(uint64_t),
    .begin = begin,
    .packed = sc_packed_and_ordered,
    .accepts = accepts,
    .advance = advance,
    .finish = finish,
    .work = &work,
    .closing = closing,
};
