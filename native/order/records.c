/* The records mechanism: members multicast their packets themselves, and the sequencer says in which order they are
 * delivered, by records: small packets of its own group stream that name the members whose next packets follow. Its own
 * packets are ordered by their place among the records. So records are repaired, acknowledged and cut as all packets of
 * a group stream are, and each payload crosses the network once.
 *
 * The cut orders everything that was sent: first by the records of the sequencer up to the cut, then the rest by (rank,
 * seqno). An entry whose packet lies beyond the cut is void, as no survivor has that packet. So nothing is resent, and
 * a message is delivered in the view of its sending, whoever falls. A sequencer that fell may have delivered in another
 * order the packets after the first void entry, or the end of its stream: that is transitional. One that survived has
 * delivered by its records alone.
 *
 * Packets beside the order are in their sender's stream too, and no record counts them: they are delivered as soon as
 * the packets before them are, so that all messages of a sender stay in order.
 *
 * An order policy of the application may say in which sequence packets are recorded. The policy is offered the waiting
 * packets in batches, with a time limit, after which everything is recorded by arrival. The sequencer's own packets
 * then wait for the policy like everyone's: they are multicast when they are packed, with SC_FLAG_RECORDED, and
 * delivered when a record behind them in the same stream names them. So members read the sequencer's stream ahead of
 * their deliveries from it. Members see flag and records only, so they need not know the policy.
 *
 * Credit. A record needs credit of the sequencer's window, and a further reserve that no data packet uses, because the
 * window is always full when the sequencer sends much itself. Records that wait for credit cannot block the credit they
 * wait for, because that depends only on packets that have been sent. */
#include "engine/internal.h"
#include "order/record.h"

/* Descriptors that own packets leave to the records that order them: those of a batch of the policy, and of the one
 * before. */
#define SPARE 8u

typedef struct {
    uint64_t global_next; /* of the next message to be delivered */
    uint64_t own_next; /* seqno of the next own packet to be delivered */
    /* Members. */
    uint64_t read; /* seqno in the sequencer's stream: earlier records are carried out, earlier packets wait for one */
    uint32_t entry, delivered; /* progress in the record that comes next */
    int ending; /* the view is over: records beyond the cut are void */
    /* The sequencer. */
    int arrived; /* there may be packets that are not ordered yet */
    uint64_t newest; /* seqno of the newest record */
    sc_sharing sharing; /* holds the records */
    /* Its policy. */
    int64_t due; /* waiting packets are ordered as they arrived; SC_NEVER: none waits for the policy */
    uint64_t batch; /* that the policy has been offered; 0: none */
    uint16_t plan[SC_OFFERS_MAX]; /* ranks, as the policy has ordered their packets, */
    size_t planned, carried_out; /* as far as credit has allowed */
} recording;

static int has_policy(const sc_engine *e) { return sc_is_sequencer(e) && e->config.policy_ns; }

static void begin(sc_engine *e) {
    *(recording *)e->order.state = (recording){.global_next = 1,
                                               .own_next = e->view.base[e->view.rank] + 1,
                                               .read = e->view.base[e->view.sequencer] + 1,
                                               .due = SC_NEVER};
    e->order.own = &e->group;
    e->order.spare = has_policy(e) ? SPARE : 0;
}

/* ---- delivery ------------------------------------------------------------------------------------------------ */

/* The global seqno of the first message that ends in this packet, which is delivered next; 0: beside the order. */
static uint64_t number(recording *s, const uint8_t *p) {
    if (sc_is_beside(p)) return 0;
    uint64_t global = s->global_next;
    s->global_next += sc_messages_ending(p);
    return global;
}

static void deliver_own_packet(sc_engine *e) {
    recording *s = e->order.state;
    uint64_t seqno = s->own_next++;
    const sc_tx_packet *packet = sc_tx_at(&e->group, seqno);
    sc_queue_own(e, packet->p, packet->len, seqno, seqno, number(s, packet->p));
}

/* Passes own packets that no record names: delivers those beside the order, skips records. */
static void pass_own(sc_engine *e) {
    recording *s = e->order.state;
    while (s->own_next < e->group.next) {
        const sc_tx_packet *packet = sc_tx_at(&e->group, s->own_next);
        if (packet->slab)
            s->own_next++;
        else if (sc_is_beside(packet->p))
            deliver_own_packet(e);
        else
            return;
    }
}

static int deliver_own(sc_engine *e) {
    pass_own(e);
    if (((recording *)e->order.state)->own_next == e->group.next) return 0;
    deliver_own_packet(e);
    pass_own(e);
    return 1;
}

/* Delivers the packet that is next in the stream of `peer`. 0: without memory. */
static int deliver_packet(sc_engine *e, sc_peer *peer) {
    recording *s = e->order.state;
    const uint8_t *p = sc_rx_at(e, &peer->group, peer->group.queued)->p;
    if (!sc_rx_deliver(e, peer, peer->rank, peer->group.queued, sc_is_beside(p) ? 0 : s->global_next)) return 0;
    number(s, p);
    return 1;
}

/* The end of the packets [queued, end) of the member that may be delivered: for the sequencer, those that have been
 * read. */
static uint64_t end_of(const sc_engine *e, const sc_peer *peer) {
    const recording *s = e->order.state;
    int reads = peer->rank == (uint32_t)e->view.sequencer && s->read < peer->group.next;
    return reads ? s->read : peer->group.next;
}

/* A record that is carried out gives credit like a packet that was taken. */
static void skip_record(sc_engine *e, sc_peer *peer, uint32_t len) {
    sc_rx_skip(&peer->group);
    if (!((recording *)e->order.state)->ending) sc_ack_consumed(e, peer, SC_STREAM_GROUP, len, e->now);
}

/* Passes packets that no record names: delivers those beside the order, which wait only for earlier ones of their
 * sender, and skips records. */
static void pass(sc_engine *e, sc_peer *peer) {
    const sc_rx_stream *rx = &peer->group;
    while (rx->queued < end_of(e, peer)) {
        const sc_rx_packet *slot = sc_rx_at(e, rx, rx->queued);
        if (sc_get_type(slot->p) == SC_TYPE_RECORD)
            skip_record(e, peer, slot->len);
        else if (!sc_is_beside(slot->p) || !deliver_packet(e, peer))
            return;
    }
}

/* Delivers the next packet of the member `rank`; 0 if not here. */
static int deliver_next(sc_engine *e, uint32_t rank) {
    if (rank == e->view.rank) return deliver_own(e);
    sc_peer *peer = e->peers[rank];
    const sc_rx_stream *rx = &peer->group;
    pass(e, peer);
    if (rx->queued >= end_of(e, peer) || sc_is_beside(sc_rx_at(e, rx, rx->queued)->p) || !deliver_packet(e, peer))
        return 0;
    pass(e, peer);
    return 1;
}

/* ---- the sequencer ------------------------------------------------------------------------------------------- */

/* Its own packets are ordered as they are packed, or wait for its policy. */
static void packed(sc_engine *e, sc_tx_stream *tx, sc_tx_packet *packet) {
    recording *s = e->order.state;
    packet->own = tx->next - 1;
    sc_own_packet(e, packet->own, packet->messages);
    if (has_policy(e) && !sc_is_beside(packet->p)) {
        sc_put_flags(packet->p, sc_get_flags(packet->p) | SC_FLAG_RECORDED);
        s->arrived = 1;
    } else if (has_policy(e) || !sc_is_sequencer(e)) {
        pass_own(e);
    } else {
        deliver_own(e);
    }
}

/* Own packets up to this seqno are ordered. */
static uint64_t ordered(const sc_engine *e) { return ((recording *)e->order.state)->own_next - 1; }

/* The newest record, if it can take another entry: with nothing after, and never transmitted. */
static uint8_t *unsent_record(const sc_engine *e) {
    const recording *s = e->order.state;
    if (s->newest + 1 != e->group.next || s->newest < e->group.unsent) return NULL;
    uint8_t *p = sc_tx_at(&e->group, s->newest)->p;
    return sc_get_pieces(p) < SC_RECORD_ENTRIES_MAX ? p : NULL;
}

/* Packets of the same member join the last entry. Returns how many bytes longer the record is. */
static uint32_t put_entry(uint8_t *p, uint32_t rank, uint32_t count) {
    uint16_t entries = sc_get_pieces(p);
    if (entries && sc_get_record_rank(p, entries - 1u) == rank) {
        uint32_t sum = count + sc_get_record_count(p, entries - 1u);
        if (sum <= UINT16_MAX) {
            sc_put_record_count(p, entries - 1u, (uint16_t)sum);
            return 0;
        }
    }
    sc_put_record_rank(p, entries, (uint16_t)rank);
    sc_put_record_count(p, entries, (uint16_t)count);
    sc_put_pieces(p, ++entries);
    sc_put_data_len(p, (uint32_t)(SC_RECORD_LEN(entries) - SC_DATA_HEADER));
    return SC_RECORD_LEN(1) - SC_RECORD_LEN(0);
}

/* Memory for a new record, with its header. */
static uint8_t *new_record(sc_engine *e, sc_slab **slab) {
    uint8_t blank[SC_RECORD_LEN(SC_RECORD_ENTRIES_MAX)] = {0};
    recording *s = e->order.state;
    return sc_record_copy(e, &s->sharing, blank, sizeof blank, slab);
}

/* Delivers here this member's packets that have come, at most `most`; returns how many. */
static uint32_t deliver_come(sc_engine *e, uint32_t rank, uint64_t most) {
    uint32_t count = 0;
    while (count < most && count < UINT16_MAX && deliver_next(e, rank)) count++;
    return count;
}

/* Each orders this member's packets that have come, and returns how many: 0 without credit or memory. */
static uint32_t begin_record(sc_engine *e, uint32_t rank, uint64_t most) {
    recording *s = e->order.state;
    if (!sc_tx_may_insert(e, &e->group, SC_RECORD_LEN(1), SC_RECORD_RESERVE(e->group.window))) {
        e->counters->credit_stalls++;
        return 0;
    }
    sc_rx_packet record = {.len = SC_RECORD_LEN(1)};
    if (!(record.p = new_record(e, &record.slab))) return 0;
    uint32_t count = deliver_come(e, rank, most);
    if (!count) {
        sc_slab_unref(record.slab);
        return 0;
    }
    put_entry(record.p, rank, count);
    s->newest = e->group.next;
    sc_tx_insert(e, &e->group, &record, 0, 0, e->own.last);
    pass_own(e);
    e->counters->records++;
    return count;
}

static uint32_t continue_record(sc_engine *e, uint8_t *p, uint32_t rank, uint64_t most) {
    uint32_t count = deliver_come(e, rank, most), longer = count ? put_entry(p, rank, count) : 0;
    if (longer) sc_tx_extend(e, &e->group, longer);
    return count;
}

/* The first packet of this member from *seqno on that waits for a record; NULL: none is here. */
static const uint8_t *waiting(const sc_engine *e, uint32_t rank, uint64_t *seqno) {
    int own = rank == e->view.rank;
    const sc_rx_stream *rx = &e->peers[rank]->group;
    for (uint64_t end = own ? e->group.next : rx->next; *seqno < end; ++*seqno) {
        const uint8_t *p = own ? sc_tx_at(&e->group, *seqno)->p : sc_rx_at(e, rx, *seqno)->p;
        if (sc_get_type(p) != SC_TYPE_RECORD && !sc_is_beside(p)) return p;
    }
    return NULL;
}

/* Seqno of its first packet that is not delivered yet. */
static uint64_t front_of(const sc_engine *e, uint32_t rank) {
    return rank == e->view.rank ? ((recording *)e->order.state)->own_next : e->peers[rank]->group.queued;
}

static int is_waiting(const sc_engine *e, uint32_t rank) {
    uint64_t seqno = front_of(e, rank);
    return waiting(e, rank, &seqno) != NULL;
}

/* Orders this member's packets that have come, at most `most`. 0: not all of them could be ordered. */
static int order_stream(sc_engine *e, uint32_t rank, uint64_t most) {
    while (most && is_waiting(e, rank)) {
        uint8_t *p = unsent_record(e);
        uint32_t count = p ? continue_record(e, p, rank, most) : begin_record(e, rank, most);
        if (!count) return 0;
        e->counters->stamped += count;
        most -= count;
    }
    return 1;
}

/* A member whose packets may wait for the sequencer. */
static int is_ordered(const sc_engine *e, uint32_t rank) {
    return rank == e->view.rank ? has_policy(e) : !e->peers[rank]->cut.lost;
}

/* Orders everything that has come. */
static void order_all(sc_engine *e) {
    recording *s = e->order.state;
    for (uint32_t r = 0; r < e->view.n && s->arrived; r++)
        if (is_ordered(e, r) && !order_stream(e, r, UINT64_MAX)) return;
    s->arrived = 0;
}

/* ---- its policy ---------------------------------------------------------------------------------------------- */

static void describe(sc_offer *out, const uint8_t *p, uint64_t seqno, uint32_t rank) {
    uint32_t begins = sc_get_flags(p) & SC_FLAG_CONT_IN ? 1 : 0;
    *out = (sc_offer){.seqno = seqno,
                      .sent_ns = (int64_t)sc_get_sent_ns(p),
                      .rank = rank,
                      .messages = sc_messages_ending(p),
                      .bytes = sc_get_data_len(p)};
    if (begins == sc_get_pieces(p)) return;
    uint32_t from = sc_piece_at(p, begins), len = sc_piece_at(p, begins + 1u) - from;
    out->head_len = len < SC_HEAD_MAX ? len : SC_HEAD_MAX;
    if (out->head_len) memcpy(out->head, p + SC_DATA_HEADER + from, out->head_len);
}

static size_t offer(sc_engine *e, sc_offer *out, uint64_t *batch) {
    recording *s = e->order.state;
    if (s->due == SC_NEVER || s->batch || e->cut.gate_closed) return 0;
    uint64_t at[SC_MEMBERS_MAX];
    size_t n = 0;
    for (uint32_t r = 0; r < e->view.n; r++) at[r] = front_of(e, r);
    for (size_t before = SIZE_MAX; n != before && n < SC_OFFERS_MAX;) {
        before = n;
        for (uint32_t r = 0; r < e->view.n && n < SC_OFFERS_MAX; r++) {
            const uint8_t *p = is_ordered(e, r) ? waiting(e, r, &at[r]) : NULL;
            if (p) describe(&out[n++], p, at[r]++, r);
        }
    }
    if (n) s->batch = *batch = ++e->counters->policy_batches;
    return n;
}

static int decide(sc_engine *e, uint64_t batch, const uint16_t *ranks, size_t n) {
    recording *s = e->order.state;
    if (!batch || batch != s->batch || n > SC_OFFERS_MAX) return 0;
    s->batch = 0;
    s->due = SC_NEVER;
    s->planned = s->carried_out = 0;
    if (!ranks) {
        e->counters->policy_failed++;
        if (!e->cut.gate_closed) order_all(e);
        return 1;
    }
    memcpy(s->plan, ranks, n * sizeof *ranks);
    s->planned = n;
    return 1;
}

/* 0: credit or memory ended first. */
static int carry_out(sc_engine *e) {
    recording *s = e->order.state;
    for (; s->carried_out < s->planned; s->carried_out++) {
        uint32_t rank = s->plan[s->carried_out];
        if (rank < e->view.n && is_ordered(e, rank) && !order_stream(e, rank, 1)) return 0;
    }
    return 1;
}

static int is_any_waiting(const sc_engine *e) {
    for (uint32_t r = 0; r < e->view.n; r++)
        if (is_ordered(e, r) && is_waiting(e, r)) return 1;
    return 0;
}

/* Waiting packets are the policy's until `due`. */
static void order_by_policy(sc_engine *e, int64_t now) {
    recording *s = e->order.state;
    if (!carry_out(e) || !s->arrived) return;
    if (!is_any_waiting(e)) {
        s->arrived = 0;
        s->due = SC_NEVER;
        s->batch = 0;
    } else if (s->due == SC_NEVER) {
        s->due = now + e->config.policy_ns;
        sc_push_event(e, SC_EVENT_OFFERS, 0, e->view.tag, NULL, NULL, 0);
    } else if (now >= s->due) {
        e->counters->policy_late++;
        s->batch = 0;
        s->due = SC_NEVER;
        order_all(e);
    }
}

static int64_t deadline(const sc_engine *e) {
    const recording *s = e->order.state;
    return e->cut.gate_closed ? SC_NEVER : s->due;
}

/* After the gate has closed, packets are left to the cut. A record gives credit as soon as the application has taken
 * the earlier own packets. */
static void settle(sc_engine *e, int64_t now) {
    const recording *s = e->order.state;
    if (!sc_is_sequencer(e)) return;
    if (e->queue.own_bytes == e->queue.closed_bytes) sc_credit_self(e, s->own_next - 1);
    if (!s->arrived || e->cut.gate_closed) return;
    if (e->config.policy_ns)
        order_by_policy(e, now);
    else
        order_all(e);
}

/* ---- the others ---------------------------------------------------------------------------------------------- */

static int accepts(const sc_engine *e, const sc_peer *peer, int stream, const uint8_t *p) {
    int record = sc_get_type(p) == SC_TYPE_RECORD, sequenced = record || sc_get_flags(p) & SC_FLAG_RECORDED;
    if (stream != SC_STREAM_GROUP || (sequenced && peer->rank != (uint32_t)e->view.sequencer)) return 0;
    int valid = 1;
    for (uint32_t i = 0; record && i < sc_get_pieces(p); i++) valid &= sc_get_record_rank(p, i) < e->view.n;
    return valid;
}

/* From here on the order is that of the cut, not of a sequencer that fell. */
static void own_order(sc_engine *e) {
    if (e->cut.fell[e->view.sequencer]) sc_queue_transitional(e);
}

/* Delivers the packets that this record orders. 0: a packet is missing. */
static int follow_record(sc_engine *e, const uint8_t *p) {
    recording *s = e->order.state;
    for (; s->entry < sc_get_pieces(p); s->entry++, s->delivered = 0) {
        while (s->delivered < sc_get_record_count(p, s->entry)) {
            if (deliver_next(e, sc_get_record_rank(p, s->entry))) {
                s->delivered++;
                continue;
            }
            if (!s->ending) return 0;
            own_order(e);
            break;
        }
    }
    s->entry = 0;
    return 1;
}

/* Reads the next packet of the sequencer's stream: carries out a record, delivers a packet, or leaves that to a later
 * record. 0: a packet that a record names is missing, or memory. */
static int read_next(sc_engine *e, sc_peer *peer) {
    recording *s = e->order.state;
    const sc_rx_stream *rx = &peer->group;
    const uint8_t *p = sc_rx_at(e, rx, s->read)->p;
    int waits = rx->queued < s->read || sc_get_flags(p) & SC_FLAG_RECORDED;
    if (sc_get_type(p) == SC_TYPE_RECORD ? !follow_record(e, p) : !waits && !deliver_packet(e, peer)) return 0;
    s->read++;
    pass(e, peer);
    return 1;
}

/* Delivers as far as the sequencer's stream orders. */
static void follow(sc_engine *e) {
    const recording *s = e->order.state;
    sc_peer *peer = e->peers[e->view.sequencer];
    while (s->read < peer->group.next && read_next(e, peer)) {}
}

static void advance(sc_engine *e, sc_peer *peer) {
    pass(e, peer);
    if (sc_is_sequencer(e))
        ((recording *)e->order.state)->arrived = 1;
    else
        follow(e);
}

/* ---- the end of the view ------------------------------------------------------------------------------------- */

static void finish(sc_engine *e) {
    ((recording *)e->order.state)->ending = 1;
    if (!sc_is_sequencer(e)) follow(e);
    own_order(e);
    for (uint32_t r = 0; r < e->view.n; r++)
        while (deliver_next(e, r)) {}
}

static const sc_order_work work = {.settle = settle, .deadline = deadline};
static const sc_order_policy policy = {.offer = offer, .decide = decide};

const sc_order_ops sc_order_records = {
    .name = "records",
    .beside = 1,
    .state_bytes = sizeof(recording),
    .begin = begin,
    .packed = packed,
    .accepts = accepts,
    .advance = advance,
    .finish = finish,
    .work = &work,
    .policy = &policy,
    .fits = sc_has_sequencer,
    .ordered = ordered,
};
